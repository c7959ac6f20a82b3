package leaseapi

import (
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A cluster that begins anew knows nothing of what was before: a watch from there has to begin anew, too.
func TestAWatchBehindALostState(t *testing.T) {
	t.Parallel()
	c, err := startCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	s := newStage(t, c)
	ghost := create(t, s, s.name+"-ghost")
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
