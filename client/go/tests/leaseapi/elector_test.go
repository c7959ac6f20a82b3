package leaseapi

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 300 * time.Millisecond
	// endMax is the time in which the lease of a dead leader ends: the server waits 1.5 durations.
	endMax = leaseDuration * 3 / 2
	// nextMax is the time in which its successor leads.
	nextMax = endMax + 3*time.Second

	tokenAnnotation = "ringfence.io/token"
)

// stage is one lease and those who want it.
type stage struct {
	cluster *cluster
	name    string
	looker  *kubernetes.Clientset

	mu      sync.Mutex
	leading map[string]bool
}

func newStage(t *testing.T, c *cluster) *stage {
	t.Helper()
	looker, err := c.client(newLink(c.hosts()...), c.token("looker"))
	if err != nil {
		t.Fatal(err)
	}
	return &stage{cluster: c, name: leaseName(t), looker: looker, leading: make(map[string]bool)}
}

// lease is the object as it is now.
func (s *stage) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := s.looker.CoordinationV1().Leases("shop").Get(within(t, 20*time.Second), s.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// token is the fencing token of the lease's holder.
func token(t *testing.T, lease *coordinationv1.Lease) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(lease.Annotations[tokenAnnotation], 10, 64)
	if err != nil {
		t.Fatalf("no token beside holder %q: %v", holder(lease), lease.Annotations)
	}
	return n
}

// elector is a program with client-go's leader election.
type elector struct {
	identity string
	link     *link
	cancel   context.CancelFunc
	began    chan time.Time // One of each term.
	ended    chan struct{}  // Closed when Run has returned.
}

type settings struct {
	release bool
	pod     string // The identity otherwise.
}

// elect starts an elector.
func (s *stage) elect(t *testing.T, identity string, with settings) *elector {
	t.Helper()
	if with.pod == "" {
		with.pod = s.name + "-" + identity
	}
	return s.electWith(t, identity, s.cluster.token(with.pod), with.release)
}

// electWith starts an elector with this token.
func (s *stage) electWith(t *testing.T, identity, token string, release bool) *elector {
	t.Helper()
	e := &elector{identity: identity, link: newLink(s.cluster.hosts()...), began: make(chan time.Time, 10),
		ended: make(chan struct{})}
	le, err := newElector(s.cluster.config(e.link, token), s.name, identity, release, func(ctx context.Context) {
		s.enter(t, identity)
		e.began <- time.Now()
		<-ctx.Done()
		s.leave(identity)
	})
	if err != nil {
		t.Fatal(err)
	}
	e.run(t, le)
	return e
}

// run runs it until the test ends.
func (e *elector) run(t *testing.T, le *leaderelection.LeaderElector) {
	t.Helper()
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(e.ended)
		le.Run(ctx)
	}()
	t.Cleanup(func() {
		e.cancel()
		e.link.cut()
		<-e.ended
	})
}

// newElector is what programs do with client-go.
func newElector(config *rest.Config, name, identity string, release bool, work func(context.Context)) (*leaderelection.LeaderElector, error) {
	config.Timeout = renewDeadline / 2 // As in every controller manager.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity}},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: release,
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
	})
}

func (s *stage) enter(t *testing.T, identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.leading {
		t.Errorf("%s leads while %s does", identity, other)
	}
	s.leading[identity] = true
}

func (s *stage) leave(identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leading, identity)
}

// leads waits until the elector leads, and returns what the lease says then.
func (s *stage) leads(t *testing.T, e *elector, limit time.Duration) *coordinationv1.Lease {
	t.Helper()
	select {
	case <-e.began:
	case <-time.After(limit):
		t.Fatalf("%s does not lead within %v", e.identity, limit)
	}
	lease := s.lease(t)
	if holder(lease) != e.identity {
		t.Fatalf("%s leads, and the lease says %q", e.identity, holder(lease))
	}
	return lease
}

// stays looks at the lease for a time, in which one holder renews it with one token.
func (s *stage) stays(t *testing.T, first *coordinationv1.Lease, limit time.Duration) *coordinationv1.Lease {
	t.Helper()
	return s.renews(t, first, limit, int(limit/(4*retryPeriod)))
}

// renews is stays for one that renews so many times or more.
func (s *stage) renews(t *testing.T, first *coordinationv1.Lease, limit time.Duration, want int) *coordinationv1.Lease {
	t.Helper()
	before, renewals := first, 0
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		now := s.lease(t)
		if holder(now) != holder(first) || token(t, now) != token(t, first) ||
			*now.Spec.LeaseTransitions != *first.Spec.LeaseTransitions || now.UID != first.UID {
			t.Fatalf("from %v %v to %v %v", first.Spec, first.Annotations, now.Spec, now.Annotations)
		}
		if now.Spec.RenewTime.Before(before.Spec.RenewTime) || !now.Spec.AcquireTime.Equal(first.Spec.AcquireTime) {
			t.Fatalf("from %v to %v", before.Spec, now.Spec)
		}
		if !now.Spec.RenewTime.Equal(before.Spec.RenewTime) {
			renewals++
		}
		before = now
	}
	if renewals < want {
		t.Errorf("%d renewals within %v", renewals, limit)
	}
	return before
}

// die stops an elector as kill -9 does: nothing more leaves it, and its work has ended.
func (e *elector) die() {
	e.link.cut()
	e.cancel()
	<-e.ended
}

// resign stops an elector that releases. One that is stopped while a renewal is under way may fail to:
// the renewal comes between what release() reads and what it writes.
func (s *stage) resign(t *testing.T, e *elector) {
	t.Helper()
	before := s.lease(t)
	eventually(t, leaseDuration, "a renewal", func() bool {
		return !s.lease(t).Spec.RenewTime.Equal(before.Spec.RenewTime)
	})
	time.Sleep(retryPeriod / 3)
	e.cancel()
	<-e.ended
}

func TestElection(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	if *first.Spec.LeaseTransitions != 0 || *first.Spec.LeaseDurationSeconds != int32(leaseDuration/time.Second) {
		t.Error(first.Spec)
	}
	b := s.elect(t, "b", settings{release: true})
	last := s.stays(t, first, 3*leaseDuration)

	died := time.Now()
	a.die()
	second := s.leads(t, b, nextMax)
	// The client's clock, and the server's, which may be an instant apart.
	if took := time.Since(died); took < endMax-retryPeriod-time.Second {
		t.Errorf("a successor %v after the last renewal", took)
	}
	if token(t, second) <= token(t, last) || *second.Spec.LeaseTransitions != 1 || second.UID != first.UID {
		t.Error(second)
	}
	second = s.stays(t, second, leaseDuration)

	c := s.elect(t, "c", settings{})
	s.resign(t, b)
	third := s.leads(t, c, endMax-retryPeriod)
	if token(t, third) <= token(t, second) || *third.Spec.LeaseTransitions != 2 {
		t.Error(third)
	}
	s.stays(t, third, leaseDuration)
}

func TestReleasedIsShownAsFree(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{release: true})
	held := s.leads(t, a, 5*time.Second)
	s.resign(t, a)
	free := s.lease(t)
	if _, shown := free.Annotations[tokenAnnotation]; shown || holder(free) != "" || free.UID != held.UID {
		t.Error(free)
	}
	if free.Spec.LeaseDurationSeconds == nil || free.Spec.RenewTime == nil || free.Spec.AcquireTime == nil ||
		free.Spec.LeaseTransitions == nil {
		t.Error("a free lease without its fields:", free.Spec)
	}
	// A release is no loss: the same process is elected again at once.
	again := s.elect(t, "a", settings{})
	if next := s.leads(t, again, endMax-retryPeriod); token(t, next) <= token(t, held) {
		t.Error(next)
	}
}
