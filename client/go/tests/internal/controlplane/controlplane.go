// Package controlplane runs etcd and an API server of Kubernetes, as they are, for a test.
package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// Issuer is that of the tokens of its service accounts.
	Issuer = "https://kubernetes.default.svc"
	// AdminToken is that of an administrator.
	AdminToken = "admin-token"

	readyMax = 3 * time.Minute
)

// Options say what runs.
type Options struct {
	// Members of etcd, one if it is 0. Three of them are durable and replicated; one writes without fsync,
	// for tests that measure nothing.
	Members int
	// Accounts with a token of their own each: a service account's name to its token.
	Accounts map[string]string
}

// Plane is etcd and an API server.
type Plane struct {
	// Address of the API server.
	Address string
	// Processes by their names: kube-apiserver, and etcd-1 and so on.
	Processes map[string]*exec.Cmd

	folder, binaries string
}

// ErrNone says that no components are there, and what to do.
var ErrNone = errors.New("no Kubernetes: build it with cargo xtask kubernetes, or set KUBEBUILDER_ASSETS")

// Assets finds the components: KUBEBUILDER_ASSETS, or what `cargo xtask kubernetes` has built.
func Assets() (string, error) {
	if named := os.Getenv("KUBEBUILDER_ASSETS"); named != "" {
		return named, nil
	}
	cached := os.Getenv("RINGFENCE_KUBERNETES_CACHE")
	if cached == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cached = filepath.Join(cache, "ringfence", "kubernetes")
	}
	found, _ := filepath.Glob(filepath.Join(cached, "v*", "kube-apiserver")) // Only a wrong pattern is an error.
	if len(found) == 0 {
		return "", ErrNone
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// Start starts it, and ends it with the test.
func Start(t *testing.T, options Options) *Plane {
	t.Helper()
	binaries, err := Assets()
	if err != nil {
		t.Fatal(err)
	}
	p := &Plane{folder: t.TempDir(), binaries: binaries, Processes: make(map[string]*exec.Cmd)}
	signing, checking := p.keys(t)
	var tokens strings.Builder
	fmt.Fprintf(&tokens, "%s,admin,admin,\"system:masters\"\n", AdminToken)
	for account, token := range options.Accounts {
		namespace := strings.Split(account, ":")[2]
		fmt.Fprintf(&tokens, "%s,%s,%s,\"system:serviceaccounts,system:serviceaccounts:%s\"\n", token, account, account, namespace)
	}
	known := p.write(t, "tokens.csv", []byte(tokens.String()))
	etcd := p.startEtcd(t, max(1, options.Members))
	port := freePorts(t, 1)[0]
	p.Address = fmt.Sprintf("https://127.0.0.1:%d", port)
	p.start(t, "kube-apiserver", "kube-apiserver", "--etcd-servers="+strings.Join(etcd, ","), "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--cert-dir="+filepath.Join(p.folder, "certificates"), "--service-account-issuer="+Issuer,
		"--service-account-key-file="+checking, "--service-account-signing-key-file="+signing,
		"--token-auth-file="+known, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount")
	admin := p.Client(t, AdminToken)
	var told []byte
	for deadline := time.Now().Add(readyMax); string(told) != "ok"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the API server is not ready within %v", readyMax)
		}
		told, _ = admin.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	}
	return p
}

// startEtcd starts so many members, and returns where clients find them.
func (p *Plane) startEtcd(t *testing.T, members int) []string {
	t.Helper()
	ports := freePorts(t, 2*members)
	var clients, all []string
	for i := range members {
		all = append(all, fmt.Sprintf("etcd-%d=http://127.0.0.1:%d", i+1, ports[2*i]))
		clients = append(clients, fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1]))
	}
	for i := range members {
		name, peer, _ := strings.Cut(all[i], "=")
		arguments := []string{"--name=" + name, "--data-dir=" + filepath.Join(p.folder, name),
			"--listen-client-urls=" + clients[i], "--advertise-client-urls=" + clients[i],
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(all, ",")}
		if members == 1 {
			arguments = append(arguments, "--unsafe-no-fsync")
		}
		p.start(t, name, "etcd", arguments...)
	}
	return clients
}

// keys are those that sign and check the tokens of service accounts.
func (p *Plane) keys(t *testing.T) (signing, checking string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	signing = p.write(t, "accounts.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	checking = p.write(t, "accounts.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	return signing, checking
}

func (p *Plane) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(p.folder, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (p *Plane) start(t *testing.T, name, program string, arguments ...string) {
	t.Helper()
	said, err := os.Create(filepath.Join(p.folder, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(p.binaries, program), arguments...)
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.Processes[name] = command
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = said.Close()
		if t.Failed() {
			text, _ := os.ReadFile(said.Name())
			t.Logf("%s:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
}

// Kill ends all of it, as kill -9 does.
func (p *Plane) Kill() {
	for _, command := range p.Processes {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

// Config is that of a client with a token.
func (p *Plane) Config(token string) *rest.Config {
	return &rest.Config{Host: p.Address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// Client is one with a token.
func (p *Plane) Client(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.Config(token))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Apply applies manifests, as the administrator.
func (p *Plane) Apply(t *testing.T, manifests string) {
	t.Helper()
	command := exec.Command(filepath.Join(p.binaries, "kubectl"), "--server", p.Address, "--token", AdminToken,
		"--insecure-skip-tls-verify", "apply", "--validate=ignore", "--filename", "-")
	command.Stdin = strings.NewReader(manifests)
	command.Env = append(os.Environ(), "HOME="+p.folder, "KUBECONFIG=/dev/null")
	if told, err := command.CombinedOutput(); err != nil {
		t.Fatalf("kubectl: %v\n%s", err, told)
	}
}

func freePorts(t *testing.T, count int) []int {
	t.Helper()
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
