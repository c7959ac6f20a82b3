package leaseapi

import (
	"os"
	"testing"
	"time"
)

// The cluster begins anew, as with a lost disk: informers must not keep what is gone.
func TestAnInformerBehindALostState(t *testing.T) { testLostState(t, false) }

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
	fresh := create(t, s, s.name+"-fresh")
	defer func() {
		lists, starts := requests.watches()
		t.Logf("%s, then %s; %d lists, watches %q", ghost.ResourceVersion, fresh.ResourceVersion, lists, starts)
	}()
	eventually(t, 40*time.Second, "the new lease is told", func() bool { return stored(informer, "shop/"+fresh.Name) != nil })
	eventually(t, 3*time.Second, "what is lost is forgotten", func() bool { return stored(informer, "shop/"+ghost.Name) == nil })
}
