package tests

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgolock "k8s.io/client-go/tools/leaderelection/resourcelock"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/k8s/resourcelock"
	"ringfence.io/client/go/tests/internal/controlplane"
)

func TestAManagerThatWakesBehindItsSuccessorIsRefused(t *testing.T) {
	plane := startControlPlane(t)
	admin := plane.Client(t, controlplane.AdminToken)
	ctx := within(t, 3*time.Minute)
	orders := admin.CoreV1().ConfigMaps("shop")
	for _, name := range []string{"orders", "prices"} {
		object := &corev1.ConfigMap{Data: map[string]string{"n": "1"}}
		object.Name = name
		if _, err := orders.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	order := func(n string) {
		t.Helper()
		patch := fmt.Sprintf(`{"data":{"n":%q}}`, n)
		if _, err := orders.Patch(ctx, "orders", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first := plane.startManager(t, "a")
	first.until(t, "wrote 1")
	order("2")
	// The write has its fence, the clock was asked, and then the process is stopped.
	fence := strings.TrimPrefix(first.until(t, "sending"), "sending ")
	first.signal(t, syscall.SIGSTOP)

	second := plane.startManager(t, "b")
	second.until(t, "wrote 2")
	first.signal(t, syscall.SIGCONT)
	_, _ = io.WriteString(first.stdin, "\n")
	told := first.until(t, "refused 2")
	if !strings.Contains(told, "ringfence: stale fence "+fence) {
		t.Error(told)
	}
	// It tries again, as every controller does, and sends nothing any more.
	first.until(t, "unsent 2")
	order("3")
	second.until(t, "wrote 3")
	prices, err := orders.Get(ctx, "prices", metav1.GetOptions{})
	if err != nil || prices.Data["by"] != "b" || prices.Data["seen"] != "3" {
		t.Error(prices, err)
	}
	first.until(t, "ended")
}

func TestTheLockKeepsClientGosRules(t *testing.T) {
	client := connect(t)
	ctx := within(t, time.Minute)
	name := "k8s/shop/rules"
	locks := make(map[string]*resourcelock.Lock)
	for _, identity := range []string{"a", "b"} {
		lock, err := resourcelock.New(client, name, resourcelock.WithIdentity(identity))
		if err != nil {
			t.Fatal(err)
		}
		locks[identity] = lock
	}
	a, b := locks["a"], locks["b"]
	record := func(holder string) clientgolock.LeaderElectionRecord {
		return clientgolock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 2}
	}
	if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	term := a.Term()
	if _, err := term.Lease(); err == nil {
		t.Error("a term before the election")
	}
	if err := a.Create(ctx, record("a")); err != nil {
		t.Fatal(err)
	}
	lease, err := term.Lease()
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range locks {
		if seen, _, err := lock.Get(ctx); err != nil || seen.HolderIdentity != "a" || seen.LeaseDurationSeconds != 2 {
			t.Error(seen, err)
		}
	}
	// Another's identity, another's lease: conflicts.
	for what, err := range map[string]error{
		"another identity": a.Update(ctx, record("b")),
		"held":             b.Update(ctx, record("b")),
		"not its lease":    b.Update(ctx, record("")),
	} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.Update(ctx, record("a")); err != nil || !lease.Valid() {
		t.Error("renewal:", err)
	}

	short := record("a")
	short.LeaseDurationSeconds = 0
	if err := a.Update(ctx, short); err == nil || !lease.Valid() {
		t.Error("a lease duration of less than a second:", err)
	}

	// A term that is lost is never gone on with, for one lease duration and a second after the first try.
	if err := client.Revoke(ctx, lease.Fence(), ringfence.RevokeOptions{}); err != nil {
		t.Fatal(err)
	}
	<-lease.Lost()
	if _, err := term.Lease(); err == nil {
		t.Error("a term that is lost")
	}
	time.Sleep(2500 * time.Millisecond) // However late that try comes.
	began := time.Now()
	for time.Since(began) < 2800*time.Millisecond {
		if err := a.Update(ctx, record("a")); !apierrors.IsConflict(err) {
			t.Fatal("a lost term went on:", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	eventually(t, 20*time.Second, "it may be elected anew", func() bool { return a.Update(ctx, record("a")) == nil })
	if _, err := term.Lease(); err == nil {
		t.Error("a term took another token")
	}
	next, err := a.Term().Lease()
	if err != nil || next.Token() <= lease.Token() {
		t.Fatal(next, err)
	}

	// A release: belief ends, and another holder is granted at once.
	if err := a.Update(ctx, record("")); err != nil || next.Valid() {
		t.Error(err)
	}
	if err := b.Update(ctx, record("b")); err != nil {
		t.Error(err)
	}
	// The elector of b does not come back: it loses the lease as in Kubernetes.
	eventually(t, 20*time.Second, "the lease of a dead elector ends", func() bool {
		seen, _, err := a.Get(ctx)
		return err == nil && seen.HolderIdentity == ""
	})
	if err := b.Update(ctx, record("b")); !apierrors.IsConflict(err) {
		t.Error("an elector that slept goes on under another token:", err)
	}
}

// controlPlane is a Kubernetes with the policy of a fenced controller.
type controlPlane struct{ *controlplane.Plane }

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	if _, err := controlplane.Assets(); err != nil {
		without(t, err.Error())
	}
	account := map[string]string{"system:serviceaccount:shop:controller": "account-token"}
	p := &controlPlane{controlplane.Start(t, controlplane.Options{Accounts: account})}
	p.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: ringfence}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: controller, namespace: shop}
rules: [{apiGroups: [""], resources: [configmaps], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: controller, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: controller}
subjects: [{kind: User, name: "system:serviceaccount:shop:controller"}]
`)
	policy := exec.Command(ringfenceBinary(t), "kube", "policy", "--lease", "shop/controller", "--resource", "configmaps",
		"--carrier", "impersonate", "--service-account", "shop/controller")
	manifests, err := policy.Output()
	if err != nil {
		t.Fatal("ringfence kube policy:", err)
	}
	p.Apply(t, string(manifests))
	// The policies are in force when what has no fence is refused.
	unfenced := p.Client(t, "account-token").CoreV1().ConfigMaps("shop")
	eventually(t, time.Minute, "an unfenced write is refused", func() bool {
		object := &corev1.ConfigMap{}
		object.Name = "unfenced"
		_, err := unfenced.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "ringfence: ")
	})
	return p
}

// managerProcess is a manager of its own.
type managerProcess struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string
}

func (p *controlPlane) startManager(t *testing.T, name string) *managerProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &managerProcess{command: exec.Command(self), lines: make(chan string, 1000)}
	settings := []string{name, sharedCluster(t).Endpoints[0], p.Address, "account-token"}
	m.command.Env = append(os.Environ(), managerVariable+"="+strings.Join(settings, " "))
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := &buffer{}
	m.command.Stderr = said
	if m.stdin, err = m.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := m.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(m.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			m.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = m.command.Process.Kill()
		_ = m.command.Wait()
		if t.Failed() {
			t.Logf("manager %s:\n%s", name, said)
		}
	})
	return m
}

// until reads what the manager says up to a line that begins so.
func (m *managerProcess) until(t *testing.T, beginning string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var before []string
	for {
		select {
		case line, open := <-m.lines:
			if !open {
				t.Fatalf("the manager has ended and did not say %q, but %q", beginning, before)
			}
			if strings.HasPrefix(line, beginning) {
				return line
			}
			before = append(before, line)
		case <-ctx.Done():
			t.Fatalf("the manager did not say %q, but %q", beginning, before)
		}
	}
}

func (m *managerProcess) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := m.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
