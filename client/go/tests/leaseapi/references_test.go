package leaseapi

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// What three programs do with client-go's election, each as its users know it: the collector of
// prometheus-engine, the shards of kcp, and the example of client-go's own documents.

// ranged is a lock that knows for which time its holder may write: from its grant to the end of the last
// renewal that was answered. prometheus-engine wraps client-go's lock so.
type ranged struct {
	resourcelock.Interface
	mu         sync.Mutex
	start, end time.Time
}

func (l *ranged) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(record, l.Interface.Create(ctx, record))
}

func (l *ranged) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(record, l.Interface.Update(ctx, record))
}

func (l *ranged) written(record resourcelock.LeaderElectionRecord, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = record.AcquireTime.Time
	l.end = record.RenewTime.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
	return nil
}

func (l *ranged) times() (start, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.end
}

// lock is client-go's, over this link. Its requests are in protobuf, and name their sender.
func (s *stage) lock(t *testing.T, l *link, identity string) *resourcelock.LeaseLock {
	t.Helper()
	config := rest.AddUserAgent(s.cluster.config(l, s.cluster.token(s.name+"-"+identity)), "leader-election")
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.Timeout = renewDeadline / 2
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: s.name},
		Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
}

// Rows S2.3, S2.4, S2.8 and S2.11: ranges of time follow each other, and a failed renewal leaves them.
func TestRangesOfHoldersDoNotOverlap(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	type collector struct {
		lock *ranged
		*elector
	}
	start := func(identity string) collector {
		c := collector{elector: &elector{identity: identity, link: newLink(s.cluster.hosts()...),
			began: make(chan time.Time, 10), ended: make(chan struct{})}}
		c.lock = &ranged{Interface: s.lock(t, c.link, identity)}
		le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: c.lock,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			// A released lease would be granted inside of the range of its last holder.
			ReleaseOnCancel: false,
			Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(context.Context) {
				c.began <- time.Now()
			}}})
		if err != nil {
			t.Fatal(err)
		}
		c.run(t, le)
		return c
	}
	var before time.Time
	for _, identity := range []string{"a", "b", "c"} {
		next := start(identity)
		s.leads(t, next.elector, nextMax)
		began, _ := next.lock.times()
		if began.Before(before) {
			t.Errorf("the range of %s begins %v before the one before it has ended", identity, before.Sub(began))
		}
		time.Sleep(leaseDuration / 2)
		next.link.cut()
		time.Sleep(renewDeadline / 2)
		again, end := next.lock.times()
		if !again.Equal(began) {
			t.Errorf("%s began at %v, and at %v", identity, began, again)
		}
		<-next.ended
		if _, last := next.lock.times(); !last.Equal(end) || end.Before(began) {
			t.Errorf("a renewal without an answer moved the end of %s from %v to %v", identity, end, last)
		}
		before = end
	}
}

// Rows S4.1 to S4.4: a shard that loses its lease stops its controllers, lives on, and leads again.
func TestAShardThatLostItsLeaseLeadsAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	ctx, stop := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	shard := func(identity string) *elector {
		e := &elector{identity: identity, link: newLink(s.cluster.hosts()...), began: make(chan time.Time, 10), ended: make(chan struct{})}
		lock := s.lock(t, e.link, identity)
		go func() {
			defer close(e.ended)
			for ctx.Err() == nil {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, Name: s.name,
					LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(term context.Context) {
						s.enter(t, identity)
						for range 3 {
							workers.Go(func() { <-term.Done() })
						}
						e.began <- time.Now()
						<-term.Done()
						s.leave(identity)
					}}})
				time.Sleep(retryPeriod) // The loop's own pause.
			}
		}()
		return e
	}
	a := shard("a")
	first := s.leads(t, a, 5*time.Second)
	b := shard("b")
	t.Cleanup(func() {
		stop()
		a.link.cut()
		b.link.cut()
		<-a.ended
		<-b.ended
	})
	a.link.cut()
	second := s.leads(t, b, nextMax)
	a.link.mend()
	s.stays(t, second, leaseDuration)
	b.link.cut()
	// It lost its last term, so it is refused once, and for a duration from then on.
	third := s.leads(t, a, nextMax+leaseDuration)
	if token(t, second) <= token(t, first) || token(t, third) <= token(t, second) {
		t.Error(first, second, third)
	}
	s.stays(t, third, leaseDuration)
	stop()
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("a controller outlived its term")
	}
}

// Rows S3.1 to S3.4, with the durations of client-go's documents: the second process names the leader at
// once, waits, and takes over when the first one has been killed.
func TestTheExampleOfClientGo(t *testing.T) {
	t.Parallel()
	const lease, renew, retry = 15 * time.Second, 10 * time.Second, 2 * time.Second
	s := newStage(t, sharedCluster(t))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	heard := map[string][]string{}
	heardBy := func(identity string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(heard[identity])
	}
	start := func() *elector {
		identity := host + "_" + string(uuid.NewUUID())
		e := &elector{identity: identity, link: newLink(s.cluster.hosts()...), began: make(chan time.Time, 10), ended: make(chan struct{})}
		lock := s.lock(t, e.link, identity[len(host)+1:])
		lock.LockConfig.Identity = identity
		le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock,
			LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.began <- time.Now() },
				OnStoppedLeading: func() {},
				OnNewLeader: func(leader string) {
					mu.Lock()
					defer mu.Unlock()
					heard[identity] = append(heard[identity], leader)
				},
			}})
		if err != nil {
			t.Fatal(err)
		}
		e.run(t, le)
		return e
	}
	one := start()
	first := s.leads(t, one, 10*time.Second)
	if !strings.HasPrefix(holder(first), host+"_") || *first.Spec.LeaseDurationSeconds != 15 {
		t.Error(first.Spec)
	}
	two := start()
	eventually(t, 3*time.Second, "the second process names the leader", func() bool {
		return slices.Equal(heardBy(two.identity), []string{one.identity})
	})
	time.Sleep(2 * retry)
	killed := time.Now()
	one.die()
	// 1.5 durations behind the last renewal, which is at most one retry old; tries are up to 2.2 retries apart.
	second := s.leads(t, two, lease*3/2+4*retry)
	if took := time.Since(killed); took < lease*3/2-2*retry {
		t.Errorf("a takeover after %v", took)
	}
	if token(t, second) <= token(t, first) || !slices.Equal(heardBy(two.identity), []string{one.identity, two.identity}) {
		t.Error(second, heardBy(two.identity))
	}
}
