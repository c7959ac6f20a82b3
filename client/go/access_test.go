package ringfence_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/internal/testnode"
)

// enforced is a cluster that refuses what no rule allows, and a way to command it.
func enforced(t *testing.T, nodes int) (*testnode.Cluster, func(arguments ...string) string) {
	t.Helper()
	cluster, err := testnode.Start(nodes, "--access", "enforced")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	return cluster, func(arguments ...string) string {
		t.Helper()
		told, err := cluster.Command(within(t, 30*time.Second), arguments...)
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
}

func writeToken(t *testing.T, path, token string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// lines is a log that is looked at while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestATokenAndRightsDecideWhatMayBeDone(t *testing.T) {
	cluster, command := enforced(t, 3)
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, command("access", "token", "create", "app", "--ttl", "1h"))
	command("access", "grant", "token:app", "acquire", "team/exact")

	// A token that proves nothing, and none at all.
	_, err := ringfence.Connect(within(t, 10*time.Second), cluster.Endpoints, ringfence.WithToken("rft_4_secretsecret"))
	if !errors.Is(err, ringfence.ErrUnauthenticated) || strings.Contains(fmt.Sprint(err), "secretsecret") {
		t.Error(err)
	}
	anonymous, err := ringfence.Connect(within(t, 10*time.Second), cluster.Endpoints)
	if err == nil {
		_, err = anonymous.Lock(within(t, 10*time.Second), "team/exact", ringfence.SessionOptions{})
		_ = anonymous.Close(t.Context())
	}
	if !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error("without a token:", err)
	}

	client := connect(t, cluster, ringfence.WithTokenFile(file))
	s := session(t, client, 2*time.Second)
	if _, err := s.Acquire(within(t, 10*time.Second), "other/name"); !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error(err)
	}
	// A watch is of all names that begin alike, so the right to one name is not enough for it: that is
	// said, and the campaign goes on without.
	err = client.WatchHolder(within(t, 10*time.Second), "team/exact", func(*ringfence.Holder) {})
	if !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error(err)
	}
	var logged lines
	electing := connect(t, cluster, ringfence.WithTokenFile(file), ringfence.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	e := elector(t, electing, "app", func(o *ringfence.ElectorOptions) {
		o.OnNewLeader = func(string, ringfence.Holder) {}
	})
	err = e.Run(within(t, 30*time.Second), "team/exact", func(context.Context, *ringfence.Lease) error {
		eventually(t, 10*time.Second, "it is logged that nobody is told of leaders", func() bool {
			return strings.Contains(logged.String(), "PERMISSION_DENIED")
		})
		return ringfence.ErrLeave
	})
	if err != nil {
		t.Error(err)
	}
	if err := e.Close(within(t, 10*time.Second)); err != nil {
		t.Error(err)
	}

	lease := acquire(t, s, "team/exact")
	if err := client.Revoke(within(t, 10*time.Second), lease.Fence(), ringfence.RevokeOptions{}); !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error(err)
	}
	if _, err := client.List(within(t, 10*time.Second), "team/"); !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error(err)
	}
	// Another token for the same principal, and the end of the one before: the lease goes on.
	next := command("access", "token", "create", "app", "--ttl", "1h")
	writeToken(t, file, next)
	time.Sleep(7 * time.Second)
	if err := lease.Err(); err != nil {
		t.Error(err)
	}

	// All tokens end at once, as when one leaks. Nothing proves the session now; it ends in time, by
	// the clock.
	command("access", "token", "revoke", "app")
	revoked := time.Now()
	<-lease.Lost()
	if took := time.Since(revoked); took > 2500*time.Millisecond {
		t.Error("believed for", took)
	}
	// A token that comes later is taken up.
	writeToken(t, file, command("access", "token", "create", "app", "--ttl", "1h"))
	eventually(t, 20*time.Second, "it is held again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		again, err := client.Lock(ctx, "team/exact", ringfence.SessionOptions{TTL: 2 * time.Second})
		return err == nil && again.Token() > lease.Token()
	})
}

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
	pem  string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key, a.pem, _ = a.sign(template)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(template *x509.Certificate) (_ *x509.Certificate, _ *ecdsa.PrivateKey, certPEM, keyPEM string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return cert, key, block("CERTIFICATE", der), block("PRIVATE KEY", private)
}

func TestTLSAndCertificatesOfClients(t *testing.T) {
	folder := t.TempDir()
	ca := newAuthority(t)
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, _, serverCert, serverKey := ca.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	_, _, clientCert, clientKey := ca.sign(&x509.Certificate{DNSNames: []string{"app.test"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	shown, err := tls.X509KeyPair([]byte(clientCert), []byte(clientKey))
	if err != nil {
		t.Fatal(err)
	}
	binary, err := testnode.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var ports [3]string
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = listener.Addr().String()
		_ = listener.Close()
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	data := filepath.Join(folder, "data")
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	node := exec.Command(binary, "serve", "--name", "n1", "--data-dir", data, "--initial-cluster", "n1="+ports[1],
		"--listen-client", ports[0], "--listen-peer", ports[1], "--listen-http", ports[2],
		"--cluster-secret-file", file("secret", hex.EncodeToString(secret)),
		"--cert-file", file("cert", serverCert), "--key-file", file("key", serverKey),
		"--trusted-ca-file", file("ca", ca.pem), "--client-cert-principal", "dns", "--access", "enforced")
	node.Stderr = log
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("the node: %s", said[max(0, len(said)-3000):])
		}
	})
	socket := "unix:" + filepath.Join(data, "admin.sock")
	eventually(t, 60*time.Second, "the node serves", func() bool {
		_, err := testnode.Command(t.Context(), "--endpoints", socket, "access", "grant", "cert:dns:app.test", "acquire", "app/*")
		return err == nil
	})
	token, err := testnode.Command(t.Context(), "--endpoints", socket, "access", "token", "create", "other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testnode.Command(t.Context(), "--endpoints", socket, "access", "grant", "token:other", "acquire", "other"); err != nil {
		t.Fatal(err)
	}
	trusting := func() *tls.Config { return &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12} }

	tryLock := func(name string, endpoint string, with ...ringfence.Option) error {
		client, err := ringfence.Connect(within(t, 5*time.Second), []string{endpoint}, with...)
		if err != nil {
			return err
		}
		defer client.Close(t.Context())
		lease, err := client.Lock(within(t, 5*time.Second), name, ringfence.SessionOptions{})
		if err == nil {
			err = lease.Release(within(t, 5*time.Second))
		}
		return err
	}
	known := trusting()
	known.Certificates = []tls.Certificate{shown}
	if err := tryLock("app/a", ports[0], ringfence.WithTLS(known)); err != nil {
		t.Error("by a certificate:", err)
	}
	if err := tryLock("app/a", "https://"+ports[0], ringfence.WithTLS(known)); err != nil {
		t.Error("by https://:", err)
	}
	if err := tryLock("b", ports[0], ringfence.WithTLS(known)); !errors.Is(err, ringfence.ErrPermissionDenied) {
		t.Error("what is not the certificate's:", err)
	}
	if err := tryLock("other", ports[0], ringfence.WithTLS(trusting()), ringfence.WithToken(token)); err != nil {
		t.Error("by a token over TLS:", err)
	}
	if err := tryLock("other", ports[0], ringfence.WithTLS(known), ringfence.WithToken(token)); err != nil {
		t.Error("an offered token names who asks:", err)
	}
	if err := tryLock("app/a", ports[0], ringfence.WithTLS(trusting())); !errors.Is(err, ringfence.ErrPermissionDenied) && !errors.Is(err, ringfence.ErrUnauthenticated) {
		t.Error("anonymous over TLS:", err)
	}
	// It is not the server that was meant, and no TLS at all: nothing is reached, and the token is not shown.
	for what, err := range map[string]error{
		"another CA":   tryLock("other", ports[0], ringfence.WithTLS(&tls.Config{RootCAs: x509.NewCertPool()}), ringfence.WithToken(token)),
		"another name": tryLock("other", ports[0], ringfence.WithTLS(&tls.Config{RootCAs: ca.pool, ServerName: "elsewhere"}), ringfence.WithToken(token)),
		"no TLS":       tryLock("other", ports[0], ringfence.WithToken(token)),
	} {
		if !errors.Is(err, ringfence.ErrUnavailable) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := tryLock("other", socket, ringfence.WithTLS(trusting()), ringfence.WithToken(token)); err != nil {
		t.Error("by the node's socket:", err)
	}
}
