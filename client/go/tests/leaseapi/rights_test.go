package leaseapi

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ringfence.io/client/go/internal/testnode"
)

// With rights enforced, an account has the leases of its own namespace.
func TestRights(t *testing.T) {
	t.Parallel()
	c, err := startCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	ctx := within(t, 90*time.Second)
	command := func(arguments ...string) {
		t.Helper()
		all := append([]string{"--endpoints", "unix:" + c.nodes[0].admin}, arguments...)
		if _, err := testnode.Command(ctx, all...); err != nil {
			t.Fatal(err)
		}
	}
	command("access", "grant", "sa:prod:*", "acquire", "k8s/{namespace}/*")
	command("access", "mode", "enforced")

	s := newStage(t, c)
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{release: true})
	first = s.stays(t, first, leaseDuration)

	for name, refused := range map[string]struct {
		token string
		is    func(error) bool
	}{
		"another namespace's account": {c.tokenIn("other", "web-1"), apierrors.IsForbidden},
		"a token that nobody signed":  {c.token("x")[:40] + ".e30.AAAA", apierrors.IsUnauthorized},
		"no token at all":             {"", func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }},
	} {
		client, err := c.client(newLink(c.hosts()...), refused.token)
		if err != nil {
			t.Fatal(err)
		}
		leases := client.CoordinationV1().Leases("shop")
		if _, err = leases.Get(ctx, s.name, metav1.GetOptions{}); !refused.is(err) {
			t.Errorf("get with %s: %v", name, err)
		}
		if _, err = leases.List(ctx, metav1.ListOptions{}); !refused.is(err) {
			t.Errorf("list with %s: %v", name, err)
		}
		if watching, err := leases.Watch(ctx, metav1.ListOptions{}); !refused.is(err) {
			t.Errorf("watch with %s: %v", name, err)
			if err == nil {
				watching.Stop()
			}
		}
		if _, err = leases.Update(ctx, first, metav1.UpdateOptions{}); !refused.is(err) {
			t.Errorf("update with %s: %v", name, err)
		}
		if err = leases.Delete(ctx, s.name, metav1.DeleteOptions{}); !refused.is(err) {
			t.Errorf("delete with %s: %v", name, err)
		}
	}
	// Who may acquire may not take from another.
	if err := s.leases(t, "operator").Delete(ctx, s.name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Error("a deletion of what another holds, without the right to revoke:", err)
	}
	// The same account in another Pod renews nothing.
	if _, err := s.leases(t, "operator").Update(ctx, s.lease(t), metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		t.Error(err)
	}
	s.stays(t, s.lease(t), leaseDuration)
	a.die()
	second := s.leads(t, b, nextMax)
	if token(t, second) <= token(t, first) {
		t.Error(first, second)
	}
	s.resign(t, b)
	if free := s.lease(t); holder(free) != "" {
		t.Error(free)
	}
}
