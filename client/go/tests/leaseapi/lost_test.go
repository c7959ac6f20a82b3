package leaseapi

import (
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The cluster starts again without its state: informers must not keep what is gone.
func TestAnInformerBehindALostState(t *testing.T) { testLostState(t, false) }

// loseState restarts the only node of a cluster without its data, as with a lost disk.
func loseState(t *testing.T, c *cluster) {
	t.Helper()
	n := c.nodes[0]
	n.kill()
	if err := os.RemoveAll(n.data); err != nil {
		t.Fatal(err)
	}
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	if err := c.ready(); err != nil {
		t.Fatal(err)
	}
}

func testLostState(t *testing.T, older bool) {
	t.Parallel()
	c, err := startCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	s := newStage(t, c)
	ghost := create(t, s, s.name+"-ghost")
	informer, _, requests := inform(t, c, newLink(c.hosts()...), "", older)
	if stored(informer, "shop/"+ghost.Name) == nil {
		t.Fatal("not seen")
	}
	loseState(t, c)
	fresh := create(t, s, s.name+"-fresh")
	defer func() {
		lists, starts := requests.watches()
		t.Logf("%s, then %s; %d lists, watches %q", ghost.ResourceVersion, fresh.ResourceVersion, lists, starts)
	}()
	eventually(t, 40*time.Second, "the new lease is told", func() bool { return stored(informer, "shop/"+fresh.Name) != nil })
	eventually(t, 3*time.Second, "what is lost is forgotten", func() bool { return stored(informer, "shop/"+ghost.Name) == nil })
}

// A cluster without its state knows nothing of what was before: a watch from there has to start again.
func TestAWatchBehindALostState(t *testing.T) {
	t.Parallel()
	c, err := startCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	s := newStage(t, c)
	ghost := create(t, s, s.name+"-ghost")
	loseState(t, c)
	expired(t, s, ghost.ResourceVersion)
}

func TestAnOlderInformerBehindALostState(t *testing.T) { testLostState(t, true) }

// expired begins a watch from a version that is no part of the present state's past.
func expired(t *testing.T, s *stage, version string) {
	t.Helper()
	watching, err := s.leases(t, "watcher").Watch(within(t, 20*time.Second), metav1.ListOptions{ResourceVersion: version})
	if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	select {
	case event := <-watching.ResultChan():
		if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch goes on behind a version of another cluster: %v %v", event.Type, event.Object)
		}
	case <-time.After(2 * time.Second):
		t.Error("a watch goes on behind a version of another cluster")
	}
}
