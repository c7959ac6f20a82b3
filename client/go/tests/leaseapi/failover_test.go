package leaseapi

import (
	"testing"
	"time"
)

// Electors go on while nodes of the cluster die, one after the other, the leading one each time.
func TestElectionsOutliveNodes(t *testing.T) {
	t.Parallel()
	c, err := startCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	s := newStage(t, c)
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{})
	before := version(t, first)

	for range 2 {
		n := c.leader(t)
		n.kill()
		killed := time.Now()
		// RenewDeadline may be too short for the nodes' own election: then a ends its term, and one of both
		// is elected again. In no case do two lead: see enter.
		for time.Since(killed) < 2*endMax {
			now := s.lease(t)
			if version(t, now) < before {
				t.Fatalf("version %d after %d", version(t, now), before)
			}
			before = version(t, now)
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case <-a.ended:
			t.Log("a ended its term for want of a leading node")
			a = s.elect(t, "a", settings{})
		default:
		}
		eventually(t, nextMax, "somebody leads", func() bool { return s.leaders() == 1 })
		now := s.lease(t)
		if token(t, now) < token(t, first) {
			t.Error(first, now)
		}
		s.stays(t, now, leaseDuration)
		first = now
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
		if err := c.ready(); err != nil {
			t.Fatal(err)
		}
	}

	// The node that dies last takes the elector's leader with it.
	dying, heir := a, b
	if holder(first) == "b" {
		dying, heir = b, a
	}
	n := c.leader(t)
	dying.die()
	n.kill()
	next := s.leads(t, heir, 2*nextMax)
	if token(t, next) <= token(t, first) {
		t.Error(first, next)
	}
	s.stays(t, next, leaseDuration)
}

func (s *stage) leaders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leading)
}
