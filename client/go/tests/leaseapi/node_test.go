package leaseapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ringfence.io/client/go/internal/testnode"
)

const (
	issuer   = "https://kubernetes.example"
	readyMax = 40 * time.Second
)

// node is a process that serves the Lease endpoint.
type node struct {
	name, host string // host: of the Lease endpoint, HOST:PORT.
	client     string // The client port, HOST:PORT.
	admin      string // Its own socket.
	arguments  []string
	data       string
	log        *os.File
	command    *exec.Cmd
}

// cluster is one node, or several.
type cluster struct {
	folder string
	nodes  []*node
	key    *ecdsa.PrivateKey
	ca     []byte
}

// startCluster starts nodes with these further flags, and waits until one serves the Lease endpoint. A port
// that was free may be another program's by the time that a node listens.
func startCluster(size int, flags ...string) (*cluster, error) {
	for try := 1; ; try++ {
		c, err := tryCluster(size, flags)
		if err == nil || try == 3 || !strings.Contains(err.Error(), "Address already in use") {
			return c, err
		}
	}
}

func tryCluster(size int, flags []string) (*cluster, error) {
	folder, err := os.MkdirTemp("", "ringfence-lease-")
	if err != nil {
		return nil, err
	}
	c := &cluster{folder: folder}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	ports, err := freePorts(4 * size)
	if err != nil {
		return nil, err
	}
	var members []string
	for i := range size {
		members = append(members, fmt.Sprintf("n%d=127.0.0.1:%d", i+1, ports[4*i]))
	}
	for i := range size {
		own := ports[4*i : 4*i+4]
		name := fmt.Sprintf("n%d", i+1)
		n := &node{name: name, host: fmt.Sprintf("127.0.0.1:%d", own[3]), data: filepath.Join(folder, name)}
		n.admin = filepath.Join(n.data, "admin.sock")
		n.client = fmt.Sprintf("127.0.0.1:%d", own[1])
		n.arguments = []string{"serve", "--name", name, "--data-dir", n.data,
			"--initial-cluster", strings.Join(members, ","),
			"--listen-peer", fmt.Sprintf("127.0.0.1:%d", own[0]),
			"--listen-client", n.client,
			"--listen-http", fmt.Sprintf("127.0.0.1:%d", own[2]),
			"--listen-lease-api", n.host,
			"--cert-file", filepath.Join(folder, "cert.pem"), "--key-file", filepath.Join(folder, "key.pem"),
			"--jwt-issuer", "prod=" + issuer + ",audience=ringfence,jwks=" + filepath.Join(folder, "jwks.json") + ",kind=kubernetes"}
		n.arguments = append(n.arguments, flags...)
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			c.stop()
			return nil, err
		}
	}
	if err := c.ready(); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// ready waits until every node answers a linearizable read.
func (c *cluster) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	for _, n := range c.nodes {
		client, err := c.client(newLink(n.host), c.token("ready"))
		if err != nil {
			return err
		}
		for {
			_, err := client.CoordinationV1().Leases("shop").List(ctx, metav1.ListOptions{})
			if err == nil {
				break
			}
			if said := n.said(); ctx.Err() != nil || strings.Contains(said, "Address already in use") {
				return fmt.Errorf("%s is not ready within %v: %w\n%s", n.name, readyMax, err, said)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.kill()
	}
	_ = os.RemoveAll(c.folder)
}

func (n *node) start() error {
	binary, err := testnode.Binary()
	if err != nil {
		return err
	}
	if n.log == nil {
		if n.log, err = os.Create(n.data + ".log"); err != nil {
			return err
		}
	}
	n.command = exec.Command(binary, n.arguments...)
	n.command.Stdout, n.command.Stderr = n.log, n.log
	n.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.command.Start()
}

// kill is a kill -9.
func (n *node) kill() {
	if n.command != nil && n.command.Process != nil {
		_ = n.command.Process.Signal(syscall.SIGKILL)
		_ = n.command.Wait()
	}
	n.command = nil
}

// said is the end of a node's log.
func (n *node) said() string {
	text, _ := os.ReadFile(n.log.Name())
	return string(text[max(0, len(text)-3000):])
}

// leader is the node that leads.
func (c *cluster) leader(t *testing.T) *node {
	t.Helper()
	binary, err := testnode.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var leader *node
	eventually(t, 20*time.Second, "a node leads", func() bool {
		for _, n := range c.nodes {
			ask := exec.CommandContext(t.Context(), binary, "cluster", "status", "--json", "--timeout", "1s",
				"--endpoints", "unix:"+n.admin)
			told, err := ask.Output()
			var status struct {
				Role string `json:"role"`
			}
			if err == nil && json.Unmarshal(told, &status) == nil && status.Role == "leader" {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// writeFiles makes a certificate for loopback, and the key that tokens are signed with.
func (c *cluster) writeFiles() error {
	var err error
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	point, err := c.key.PublicKey.Bytes()
	if err != nil {
		return err
	}
	jwks := map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig",
		"kid": "k1", "x": encode(point[1:33]), "y": encode(point[33:])}}}
	keys, err := json.Marshal(jwks)
	if err != nil {
		return err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ringfence"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              []string{"ringfence.test"},
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	for name, text := range map[string][]byte{
		"jwks.json": keys,
		"cert.pem":  c.ca,
		"key.pem":   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(filepath.Join(c.folder, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// token is what Kubernetes projects into a Pod of this name, whose uid is uid-NAME.
func (c *cluster) token(pod string) string { return c.tokenIn("shop", pod) }

func (c *cluster) tokenIn(namespace, pod string) string {
	return c.tokenUntil(namespace, pod, time.Now().Add(24*time.Hour))
}

// tokenUntil is one that ends then, and was made a day before.
func (c *cluster) tokenUntil(namespace, pod string, ends time.Time) string {
	made := ends.Add(-24 * time.Hour).Unix()
	header := map[string]string{"alg": "ES256", "typ": "JWT", "kid": "k1"}
	claims := map[string]any{"iss": issuer, "aud": []string{"ringfence"}, "sub": "system:serviceaccount:" + namespace + ":web",
		"iat": made, "nbf": made, "exp": ends.Unix(),
		"kubernetes.io": map[string]any{"namespace": namespace,
			"serviceaccount": map[string]string{"name": "web", "uid": "su"},
			"pod":            map[string]string{"name": pod, "uid": "uid-" + pod}}}
	var parts []string
	for _, part := range []any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			panic(err)
		}
		parts = append(parts, encode(text))
	}
	signed := strings.Join(parts, ".")
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, c.key, digest[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature)
}

func encode(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func within(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
