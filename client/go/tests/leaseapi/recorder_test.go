package leaseapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// recorder stands between one process and a node, and notes what that process writes.
type recorder struct {
	host string

	mu     sync.Mutex
	held   chan struct{} // Until it is closed, writes do not go on; nil if they do.
	behind int           // How many came meanwhile.
	writes []written
}

// written is a write of a lease, and its answer.
type written struct {
	at           time.Time
	method, kind string // kind: what Content-Type says.
	body         string
	code         int
	answer       string
}

type writtenKey struct{}

// record starts one. It has the node's own certificate, and HTTP/1.1 as the node has.
func record(t *testing.T, c *cluster) *recorder {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(filepath.Join(c.folder, "cert.pem"), filepath.Join(c.folder, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{host: listener.Addr().String()}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: c.nodes[0].host})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}, MaxIdleConnsPerHost: 10}
	proxy.ModifyResponse = r.answered
	proxy.ErrorLog = log.New(io.Discard, "", 0) // Processes that are killed leave requests behind.
	server := &http.Server{Handler: r.asked(proxy), ErrorLog: proxy.ErrorLog,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

func (r *recorder) asked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet {
			next.ServeHTTP(w, request)
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // The process has died.
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		ctx := request.Context()
		r.mu.Lock()
		held := r.held
		if held != nil {
			r.behind++
		}
		r.mu.Unlock()
		if held != nil {
			<-held
			// What is on its way arrives, also if its process has given it up.
			ctx = context.WithoutCancel(ctx)
		}
		one := &written{at: time.Now(), method: request.Method, kind: request.Header.Get("Content-Type"), body: string(body)}
		next.ServeHTTP(w, request.WithContext(context.WithValue(ctx, writtenKey{}, one)))
	})
}

// hold keeps what is written from now on, until what it returns is called.
func (r *recorder) hold(t *testing.T) (goOn func()) {
	t.Helper()
	held := make(chan struct{})
	r.mu.Lock()
	r.held, r.behind = held, 0
	r.mu.Unlock()
	goOn = sync.OnceFunc(func() {
		r.mu.Lock()
		r.held = nil
		r.mu.Unlock()
		close(held)
	})
	t.Cleanup(goOn)
	return goOn
}

// holds is whether a write is kept.
func (r *recorder) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind > 0
}

func (r *recorder) answered(response *http.Response) error {
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	one, write := response.Request.Context().Value(writtenKey{}).(*written)
	if !write {
		return nil
	}
	one.code, one.answer = response.StatusCode, string(answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, *one)
	return nil
}

// since is what was written and answered from then on.
func (r *recorder) since(then time.Time) []written {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []written
	for _, one := range r.writes {
		if !one.at.Before(then) {
			found = append(found, one)
		}
	}
	return found
}

// report shows in the log of a test what was asked from then on, and how it was answered.
func (r *recorder) report(t *testing.T, what string, then time.Time) {
	t.Helper()
	counts := make(map[string]int)
	for _, one := range r.since(then) {
		counts[fmt.Sprintf("%s %s %d", one.method, one.kind, one.code)]++
	}
	t.Logf("%s, in %v: %v", what, time.Since(then).Round(time.Millisecond), counts)
}
