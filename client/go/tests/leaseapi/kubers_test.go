package leaseapi

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// kubersBuildMax is how long cargo may take to build the program from nothing.
	kubersBuildMax = 15 * time.Minute
	// leaderMax is the time in which a crate's elector follows a dead leader: all of them are asleep for
	// a second or two between their tries.
	leaderMax = nextMax + 10*time.Second

	leaderElection = "kube-leader-election"
	leaseManager   = "kube-lease-manager"
	kubert         = "kubert"
)

// kubers is the program in the folder of this name: electors of crates of Rust.
var kubers = sync.OnceValues(func() (string, error) {
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		return "", errors.New("no cargo: electors of Rust are not tested; install Rust by rustup, or put cargo on the path")
	}
	target, err := filepath.Abs(filepath.Join("kubers", "target"))
	if err != nil {
		return "", err
	}
	// The elections of other tests come first.
	build := exec.Command("nice", "-n", "10", cargo, "build", "--locked", "--target-dir", target)
	build.Dir = "kubers"
	var said strings.Builder
	build.Stdout, build.Stderr = &said, &said
	build.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := build.Start(); err != nil {
		return "", err
	}
	late := time.AfterFunc(kubersBuildMax, func() { _ = build.Process.Kill() })
	defer late.Stop()
	if err := build.Wait(); err != nil {
		return "", fmt.Errorf("cargo build in client/go/tests/leaseapi/kubers: %w\n%s", err, said.String())
	}
	return filepath.Join(target, "debug", "ringfence-kubers"), nil
})

// kuber is a process of that program.
type kuber struct {
	identity string
	pod      string
	command  *exec.Cmd
	recorder *recorder
	ended    chan struct{} // Closed when it has exited.
	exit     error
	faults   strings.Builder // What it said on stderr.

	mu    sync.Mutex
	lines []string
	seen  int // How many of them a test has waited for.
}

// runKuber starts an elector of a crate, in a Pod of its own.
func (s *stage) runKuber(t *testing.T, crate, identity string) *kuber {
	t.Helper()
	program, err := kubers()
	if err != nil {
		t.Fatal(err)
	}
	k := &kuber{identity: identity, pod: s.name + "-" + identity, recorder: record(t, s.cluster), ended: make(chan struct{})}
	config := s.cluster.kubeconfig(t, k.recorder.host, s.cluster.token(k.pod))
	k.command = exec.Command(program, crate, s.name, identity, fmt.Sprint(int(leaseDuration/time.Second)))
	k.command.Env = append(os.Environ(), "KUBECONFIG="+config)
	k.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	k.command.Stderr = &k.faults
	out, err := k.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			k.mu.Lock()
			k.lines = append(k.lines, scanner.Text())
			k.mu.Unlock()
		}
		k.exit = k.command.Wait()
		close(k.ended)
	}()
	t.Cleanup(func() {
		_ = k.command.Process.Kill()
		<-k.ended
		if t.Failed() {
			t.Logf("%s, %v: %q, and on stderr:\n%s", identity, k.exit, k.lines, k.faults.String())
		}
	})
	return k
}

// says waits for a line behind those that were waited for before.
func (k *kuber) says(t *testing.T, line string, limit time.Duration) {
	t.Helper()
	eventually(t, limit, fmt.Sprintf("%s says %q", k.identity, line), func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		at := slices.Index(k.lines[k.seen:], line)
		if at >= 0 {
			k.seen += at + 1
		}
		return at >= 0
	})
}

// saidNot fails if it has ever said so.
func (k *kuber) saidNot(t *testing.T, line string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.lines, line) {
		t.Fatalf("%s said %q: %q", k.identity, line, k.lines)
	}
}

func (k *kuber) signal(t *testing.T, signal syscall.Signal) time.Time {
	t.Helper()
	if err := k.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// ends waits until it has exited, and returns how.
func (k *kuber) ends(t *testing.T) error {
	t.Helper()
	select {
	case <-k.ended:
		return k.exit
	case <-time.After(20 * time.Second):
		t.Fatalf("%s has not ended", k.identity)
		return nil
	}
}

// kuberLeads waits until it leads, and returns what the lease says then.
func (s *stage) kuberLeads(t *testing.T, k *kuber, limit time.Duration) *coordinationv1.Lease {
	t.Helper()
	k.says(t, "leading", limit)
	lease := s.lease(t)
	if holder(lease) != k.identity {
		t.Fatalf("%s leads, and the lease says %q", k.identity, holder(lease))
	}
	return lease
}

// refused fails unless all that it has written from then on was refused.
func (k *kuber) refused(t *testing.T, then time.Time) {
	t.Helper()
	for _, one := range k.recorder.since(then) {
		if one.code != http.StatusConflict {
			t.Errorf("%s was answered %d: %s: %s", k.identity, one.code, one.body, one.answer)
		}
	}
	k.recorder.report(t, "refused", then)
}

// fewWrites fails if it has tried without a pause: kubert answers each refusal with another try.
func (k *kuber) fewWrites(t *testing.T, then time.Time) {
	t.Helper()
	// One in 250 ms, and some at the beginning and the end.
	most := 5 + int(time.Since(then)/(250*time.Millisecond))
	if tries := len(k.recorder.since(then)); tries > most {
		t.Errorf("%s wrote %d times, and %d are many", k.identity, tries, most)
	}
}

// keeps is stays for these crates, of which two renew only once in two thirds of the duration.
func (s *stage) keeps(t *testing.T, first *coordinationv1.Lease, limit time.Duration) *coordinationv1.Lease {
	t.Helper()
	return s.renews(t, first, limit, max(1, int(limit/leaseDuration)))
}

// forKubers makes the object, which kubert expects to be there, as its users do by kubectl.
func forKubers(t *testing.T, s *stage) {
	t.Helper()
	made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := s.leases(t, "operator").Create(within(t, 20*time.Second), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pair is a leader of a crate, and one that follows it.
func (s *stage) pair(t *testing.T, crate string) (a, b *kuber, first *coordinationv1.Lease) {
	t.Helper()
	if crate == kubert {
		forKubers(t, s)
	}
	a = s.runKuber(t, crate, "a")
	first = s.kuberLeads(t, a, 15*time.Second)
	b = s.runKuber(t, crate, "b")
	b.says(t, "following", 10*time.Second)
	return a, b, first
}

// successor waits until the other one leads, by a grant of its own.
func (s *stage) successor(t *testing.T, k *kuber, before *coordinationv1.Lease, limit time.Duration) *coordinationv1.Lease {
	t.Helper()
	next := s.kuberLeads(t, k, limit)
	if token(t, next) <= token(t, before) || *next.Spec.LeaseTransitions <= *before.Spec.LeaseTransitions || next.UID != before.UID {
		t.Fatalf("from %v %v to %v %v", before.Spec, before.Annotations, next.Spec, next.Annotations)
	}
	return next
}

func forEachCrate(t *testing.T, test func(t *testing.T, crate string)) {
	t.Parallel()
	for _, crate := range []string{leaderElection, leaseManager, kubert} {
		t.Run(crate, func(t *testing.T) {
			t.Parallel()
			test(t, crate)
		})
	}
}

// A leader renews with one token beside one that follows, and is followed by it when it is killed.
func TestKubeRsElects(t *testing.T) {
	forEachCrate(t, func(t *testing.T, crate string) {
		s := newStage(t, sharedCluster(t))
		a, b, first := s.pair(t, crate)
		if crate != leaseManager { // Which says whether it leads, and no name.
			b.says(t, "leader a", 10*time.Second)
		}
		last := s.keeps(t, first, 4*leaseDuration)
		b.saidNot(t, "leading")
		a.saidNot(t, "lost")
		died := a.signal(t, syscall.SIGKILL)
		second := s.successor(t, b, last, leaderMax)
		if took := time.Since(died); took < endMax-leaseDuration-time.Second {
			t.Errorf("a successor %v after the death", took)
		}
		b.recorder.report(t, "until it led", died)
		b.fewWrites(t, died)
		s.keeps(t, second, 2*leaseDuration)
		b.saidNot(t, "lost")
	})
}

// A leader sleeps through the end of its lease. When it wakes it neither renews nor releases what its
// successor has.
func TestKubeRsSleeper(t *testing.T) {
	forEachCrate(t, func(t *testing.T, crate string) {
		s := newStage(t, sharedCluster(t))
		a, b, first := s.pair(t, crate)
		a.signal(t, syscall.SIGSTOP)
		second := s.successor(t, b, first, leaderMax)
		woke := a.signal(t, syscall.SIGCONT)
		a.says(t, "lost", 10*time.Second)
		second = s.keeps(t, second, 2*leaseDuration)
		a.refused(t, woke)
		// kubert alone writes before it reads.
		if crate == kubert && len(a.recorder.since(woke)) == 0 {
			t.Error("it has not tried to renew")
		}

		// A release as each of them sends it.
		ctx, leases := within(t, 20*time.Second), s.leases(t, a.pod)
		for _, body := range []string{`{"spec":{"holderIdentity":""}}`, `{"spec":{"holderIdentity":null,"renewTime":null}}`} {
			if _, err := leases.Patch(ctx, s.name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("%s by the one that lost: %v", body, err)
			}
		}
		// It releases only what it believes to have.
		a.signal(t, syscall.SIGTERM)
		a.ends(t)
		s.keeps(t, second, 2*leaseDuration)
		b.saidNot(t, "lost")
	})
}

// It falls asleep between its read and its write: what it sends is a renewal of a lease that is its
// successor's by then.
func TestKubeRsSleepsBeforeItsWrite(t *testing.T) {
	forEachCrate(t, func(t *testing.T, crate string) {
		s := newStage(t, sharedCluster(t))
		a, b, first := s.pair(t, crate)
		goOn := a.recorder.hold(t)
		eventually(t, 3*leaseDuration, "a renewal", a.recorder.holds)
		a.signal(t, syscall.SIGSTOP)
		second := s.successor(t, b, first, leaderMax)
		woke := a.signal(t, syscall.SIGCONT)
		goOn()
		a.says(t, "lost", 10*time.Second)
		second = s.keeps(t, second, 2*leaseDuration)
		a.refused(t, woke)
		if renewals := a.recorder.since(woke); len(renewals) == 0 || !strings.Contains(renewals[0].body, `"renewTime":"`) {
			t.Errorf("no renewal: %+v", renewals)
		}
		b.saidNot(t, "lost")
	})
}

// One that lost its lease in its sleep is granted a new term when its successor has died.
func TestKubeRsIsElectedAgain(t *testing.T) {
	forEachCrate(t, func(t *testing.T, crate string) {
		s := newStage(t, sharedCluster(t))
		a, b, first := s.pair(t, crate)
		a.signal(t, syscall.SIGSTOP)
		second := s.successor(t, b, first, leaderMax)
		a.signal(t, syscall.SIGCONT)
		a.says(t, "lost", 10*time.Second)
		died := b.signal(t, syscall.SIGKILL)
		third := s.successor(t, a, second, leaderMax+leaseDuration)
		a.recorder.report(t, "until it led again", died)
		a.fewWrites(t, died)
		s.keeps(t, third, 2*leaseDuration)
	})
}

// What a leader releases when it is stopped is granted to the next one without a wait for its end.
func TestKubeRsReleases(t *testing.T) {
	forEachCrate(t, func(t *testing.T, crate string) {
		s := newStage(t, sharedCluster(t))
		a, b, first := s.pair(t, crate)
		first = s.keeps(t, first, 2*leaseDuration)
		stopped := a.signal(t, syscall.SIGTERM)
		if err := a.ends(t); err != nil {
			t.Fatal(err)
		}
		a.says(t, "released", 0)
		if free := s.lease(t); holder(free) == "a" {
			t.Fatalf("it was not released: %v", free.Spec)
		}
		writes := a.recorder.since(stopped)
		if len(writes) == 0 || writes[len(writes)-1].code != http.StatusOK {
			t.Errorf("the release: %+v", writes)
		}
		a.recorder.report(t, "to release", stopped)
		// kubert looks again when the claim that it knows of has ended, the others sooner.
		second := s.successor(t, b, first, leaseDuration+2*time.Second)
		s.keeps(t, second, 2*leaseDuration)
	})
}

// A free lease is shown as its last write left it: kube-lease-manager takes an empty name for a holder whose
// time is over, and kube-leader-election cannot read a lease without one.
func TestKubeRsFreeLeasesAreShownAsTheyWereLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	forKubers(t, s)
	ctx, leases := within(t, 20*time.Second), s.leases(t, "a")
	made := s.lease(t).Spec
	if made.HolderIdentity != nil || made.LeaseDurationSeconds != nil || made.AcquireTime != nil || made.RenewTime != nil {
		t.Error("created without a spec:", made)
	}
	for body, empty := range map[string]bool{
		`{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`:                                          true,
		`{"spec":{"holderIdentity":null,"leaseDurationSeconds":null,"acquireTime":null,"renewTime":null}}`: false,
	} {
		hold := `{"spec":{"holderIdentity":"a","leaseDurationSeconds":3}}`
		for _, patch := range []string{hold, body} {
			if _, err := leases.Patch(ctx, s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(patch, err)
			}
		}
		free := s.lease(t).Spec
		present := free.HolderIdentity != nil && free.LeaseDurationSeconds != nil && free.AcquireTime != nil && free.RenewTime != nil
		if holder(s.lease(t)) != "" || present != empty || free.LeaseTransitions == nil {
			t.Errorf("released by %s: %v", body, free)
		}
	}
	// What became free by time is empty, and nulls are a write of it.
	if _, err := leases.Patch(ctx, s.name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":"a","leaseDurationSeconds":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the end of the lease", func() bool { return holder(s.lease(t)) == "" })
	ended := s.lease(t)
	if ended.Spec.HolderIdentity == nil {
		t.Error(ended.Spec)
	}
	nulls := `{"spec":{"holderIdentity":null,"leaseDurationSeconds":null,"acquireTime":null,"renewTime":null}}`
	cleared, err := s.leases(t, "b").Patch(ctx, s.name, types.StrategicMergePatchType, []byte(nulls), metav1.PatchOptions{})
	if err != nil || cleared.Spec.HolderIdentity != nil || cleared.ResourceVersion == ended.ResourceVersion {
		t.Error(cleared, err)
	}
}
