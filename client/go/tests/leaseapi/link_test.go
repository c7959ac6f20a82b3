package leaseapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// link is the network of one process. Its dialer takes one address after the other, as a client does
// with the addresses of a headless Service.
type link struct {
	hosts []string

	mu    sync.Mutex
	next  int
	down  bool
	dark  chan struct{} // Closed when light is back; nil in the light.
	conns map[*wire]struct{}
}

func newLink(hosts ...string) *link { return &link{hosts: hosts, conns: make(map[*wire]struct{})} }

func (l *link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var failures []error
	for range l.hosts {
		l.mu.Lock()
		host, down := l.hosts[l.next%len(l.hosts)], l.down
		l.next++
		l.mu.Unlock()
		if down {
			return nil, errors.New("the network is cut")
		}
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
		dialer := net.Dialer{Timeout: time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		w := &wire{Conn: conn, link: l, closed: make(chan struct{})}
		l.mu.Lock()
		l.conns[w] = struct{}{}
		l.mu.Unlock()
		return w, nil
	}
	return nil, errors.Join(failures...)
}

// cut breaks all connections, and nothing is connected until mend.
func (l *link) cut() {
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	l.reset()
}

func (l *link) mend() {
	l.mu.Lock()
	l.down = false
	l.mu.Unlock()
}

// reset breaks all connections once.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(func(*wire) bool { return true })
}

// end breaks some connections.
func (l *link) end(which func(*wire) bool) {
	for w := range l.conns {
		if which(w) {
			w.once.Do(func() { close(w.closed) })
			_ = w.Conn.Close()
			delete(l.conns, w)
		}
	}
}

// darken loses what is sent and what comes, without a word, until lighten. A connection that lost
// something breaks then.
func (l *link) darken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dark = make(chan struct{})
}

func (l *link) lighten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(func(w *wire) bool { return w.lost })
	close(l.dark)
	l.dark = nil
}

func (l *link) darkness() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dark
}

func (l *link) wait(ctx context.Context) error {
	dark := l.darkness()
	if dark == nil {
		return nil
	}
	select {
	case <-dark:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wire is a connection of a link.
type wire struct {
	net.Conn
	link   *link
	once   sync.Once
	closed chan struct{}
	lost   bool
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	w.link.mu.Lock()
	delete(w.link.conns, w)
	w.link.mu.Unlock()
	return w.Conn.Close()
}

func (w *wire) Write(b []byte) (int, error) {
	w.link.mu.Lock()
	dark := w.link.dark != nil
	w.lost = w.lost || dark
	w.link.mu.Unlock()
	if dark {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if dark := w.link.darkness(); dark != nil {
		select {
		case <-dark:
		case <-w.closed:
		}
	}
	// Also if both came at once: what a broken connection had on its way is lost.
	select {
	case <-w.closed:
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

// config is what a Pod's program is given instead of the address of its API server.
func (c *cluster) config(l *link, token string) *rest.Config {
	return &rest.Config{Host: "https://ringfence.test", BearerToken: token, Dial: l.dial, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}
}

// kubeconfig is the same as a file, for a program of its own.
func (c *cluster) kubeconfig(t *testing.T, host, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: ringfence
contexts: [{name: ringfence, context: {cluster: ringfence, user: web, namespace: shop}}]
clusters: [{name: ringfence, cluster: {server: "https://%s", certificate-authority: "%s"}}]
users: [{name: web, user: {token: "%s"}}]
`, host, filepath.Join(c.folder, "cert.pem"), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *cluster) client(l *link, token string) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(c.config(l, token))
}

func (c *cluster) hosts() []string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.host)
	}
	return hosts
}
