package leaseapi

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// move is an election that goes from one place to another while its replicas are replaced.
type move struct {
	places  map[string]*cluster
	name    string
	mu      sync.Mutex
	leading map[string]bool
	both    bool // Whether two led at a time.
}

// replica leads when it holds the lease in all of its places, the later inside of the earlier.
func (m *move) replica(t *testing.T, identity string, places ...string) *elector {
	t.Helper()
	e := &elector{identity: identity, link: newLink(), began: make(chan time.Time, 10), ended: make(chan struct{})}
	work := func(ctx context.Context) {
		m.mu.Lock()
		m.both = m.both || len(m.leading) > 0
		m.leading[identity] = true
		m.mu.Unlock()
		e.began <- time.Now()
		<-ctx.Done()
		m.mu.Lock()
		delete(m.leading, identity)
		m.mu.Unlock()
	}
	elect := func(place string, lead func(context.Context)) *leaderelection.LeaderElector {
		c := m.places[place]
		le, err := newElector(c.config(newLink(c.hosts()...), c.token(identity)), m.name, identity, true, lead)
		if err != nil {
			t.Fatal(err)
		}
		return le
	}
	lead := work
	for i := len(places) - 1; i > 0; i-- {
		place, inner := places[i], lead
		lead = func(ctx context.Context) { elect(place, inner).Run(ctx) }
	}
	e.run(t, elect(places[0], lead))
	return e
}

// leads waits for its term, and says whether another one led meanwhile.
func (m *move) leads(t *testing.T, e *elector, limit time.Duration) {
	t.Helper()
	select {
	case <-e.began:
	case <-time.After(limit):
		t.Fatalf("%s does not lead", e.identity)
	}
}

func (m *move) twoLed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.both
}

// Replicas that elect in two places have a leader in each. With replicas in between that hold both leases
// there is one at every time.
func TestAnElectionMovesWithReplicasThatHoldBothLeases(t *testing.T) {
	t.Parallel()
	here, err := startCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(here.stop)
	start := func(name string) *move {
		return &move{places: map[string]*cluster{"old": sharedCluster(t), "new": here}, name: leaseName(t) + name,
			leading: make(map[string]bool)}
	}

	trap := start("-trap")
	trap.leads(t, trap.replica(t, "a", "old"), 5*time.Second)
	trap.leads(t, trap.replica(t, "b", "new"), 5*time.Second)
	if !trap.twoLed() {
		t.Error("two places had one leader")
	}

	m := start("")
	old := m.replica(t, "a", "old")
	m.leads(t, old, 5*time.Second)
	between := m.replica(t, "b", "old", "new")
	time.Sleep(leaseDuration)
	old.cancel()
	m.leads(t, between, nextMax)
	moved := m.replica(t, "c", "new")
	time.Sleep(leaseDuration)
	between.cancel()
	m.leads(t, moved, nextMax)
	if m.twoLed() {
		t.Error("two led at a time")
	}
}
