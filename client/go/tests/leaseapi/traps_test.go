package leaseapi

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leases is the typed client of one Pod.
func (s *stage) leases(t *testing.T, pod string) v1.LeaseInterface {
	t.Helper()
	client, err := s.cluster.client(newLink(s.cluster.hosts()...), s.cluster.token(pod))
	if err != nil {
		t.Fatal(err)
	}
	return client.CoordinationV1().Leases("shop")
}

// release() fetches a fresh version, but trusts its old belief.
func TestAReleaseAfterAPartitionIsNotTheSuccessors(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{release: true})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{})
	// a notices by its RenewDeadline that it no longer leads; its Get of release() is the first request
	// that gets through, when b leads.
	a.link.darken()
	second := s.leads(t, b, nextMax)
	a.link.lighten()
	second = s.stays(t, second, leaseDuration)
	if token(t, second) <= token(t, first) {
		t.Error(second)
	}
	a.cancel()
	<-a.ended
	s.stays(t, second, leaseDuration)
}

// The program that releases sees the successor's lease under its newest version, and empties it.
func TestNobodyReleasesWhatAnotherHolds(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	ctx := within(t, 20*time.Second)
	stranger := s.leases(t, "stranger")
	refused := 0
	for range 20 {
		lease := s.lease(t)
		empty := ""
		lease.Spec.HolderIdentity = &empty
		_, err := stranger.Update(ctx, lease, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		// Under its identity, with another Pod's credential: no renewal either.
		lease = s.lease(t)
		now := metav1.NewMicroTime(time.Now())
		lease.Spec.RenewTime = &now
		if _, err = stranger.Update(ctx, lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		refused++
	}
	if refused == 0 {
		t.Error("nothing was tried")
	}
	s.stays(t, first, leaseDuration)
}

// A leader that slept through its own loss and its successor's whole term must not be granted again
// inside its old term: its loop would go on, and its work with it.
func TestALeaderThatSleptEndsItsTermFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	leases := s.leases(t, s.name+"-a")
	ctx := within(t, time.Minute)
	identity, seconds, now := "a", int32(leaseDuration/time.Second), metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}}
	mine, err := leases.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// It sleeps from here on. A successor comes, and releases.
	b := s.elect(t, "b", settings{release: true})
	s.leads(t, b, nextMax)
	s.resign(t, b)

	// It wakes, and does as tryAcquireOrRenew: optimistically, then with a fresh version.
	woke := time.Now()
	granted := time.Time{}
	for time.Since(woke) < 3*leaseDuration && granted.IsZero() {
		try := mine.DeepCopy()
		renewed := metav1.NewMicroTime(time.Now())
		try.Spec.RenewTime = &renewed
		_, err := leases.Update(ctx, try, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			t.Fatal("with an old version:", err)
		}
		fresh, err := leases.Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fresh.Spec = try.Spec
		switch _, err = leases.Update(ctx, fresh, metav1.UpdateOptions{}); {
		case err == nil:
			granted = time.Now()
		case !apierrors.IsConflict(err):
			t.Fatal(err)
		}
		time.Sleep(retryPeriod)
	}
	if granted.IsZero() {
		t.Fatal("it is never granted again")
	}
	if took := granted.Sub(woke); took < leaseDuration-100*time.Millisecond {
		t.Errorf("granted again after %v, inside of the term it believes in", took)
	}
}

// The same with client-go's own loop, whose network was gone.
func TestALeaderWithoutNetworkIsElectedAnewByAnotherRun(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	a.link.darken()
	b := s.elect(t, "b", settings{release: true})
	second := s.leads(t, b, nextMax)
	select {
	case <-a.ended:
	case <-time.After(renewDeadline):
		t.Fatal("a believes in its lease while b leads")
	}
	s.resign(t, b)
	// Programs exit now, and Kubernetes starts the container again: the same Pod, the same identity.
	a = s.elect(t, "a", settings{})
	again := s.leads(t, a, leaseDuration+3*time.Second)
	if token(t, first) >= token(t, second) || token(t, second) >= token(t, again) {
		t.Error(first, second, again)
	}
}

func TestADeletedLeaseEndsTheTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{})
	deleted := time.Now()
	deleting := s.leases(t, "operator").Delete(within(t, 20*time.Second), s.name, metav1.DeleteOptions{})
	if deleting != nil {
		t.Fatal(deleting)
	}
	// a's work ends before anybody else's begins: see enter.
	select {
	case <-a.ended:
	case <-time.After(nextMax):
		t.Fatal("a goes on after its lease was deleted")
	}
	second := s.leads(t, b, nextMax)
	if second.UID == first.UID || token(t, second) <= token(t, first) {
		t.Error(first, second)
	}
	if took := time.Since(deleted); took < renewDeadline {
		t.Errorf("a successor %v after the deletion: the first may not have noticed", took)
	}
	s.stays(t, second, leaseDuration)
}

// kube-leader-election renews with neither holder nor version.
func TestARenewalByPatchWithoutHolderAndVersion(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.leases(t, "patcher")
	ctx := within(t, time.Minute)
	stamp := func() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }
	create := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := a.Create(ctx, create, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(leases v1.LeaseInterface, spec map[string]any) (*coordinationv1.Lease, error) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		return leases.Patch(ctx, s.name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	first, err := patch(a, map[string]any{"holderIdentity": "a", "renewTime": stamp(), "acquireTime": stamp(),
		"leaseDurationSeconds": 2, "leaseTransitions": 7})
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
		renewed, err := patch(a, map[string]any{"renewTime": stamp()})
		if err != nil {
			t.Fatal(err)
		}
		if holder(renewed) != "a" || token(t, renewed) != token(t, first) || *renewed.Spec.LeaseDurationSeconds != 2 {
			t.Fatal(renewed)
		}
		if _, err := patch(s.leases(t, "other"), map[string]any{"renewTime": stamp()}); !apierrors.IsConflict(err) {
			t.Fatal("a renewal by another Pod:", err)
		}
	}
	freed, err := patch(a, map[string]any{"holderIdentity": nil, "renewTime": nil, "acquireTime": nil, "leaseDurationSeconds": nil})
	if err != nil {
		t.Fatal(err)
	}
	// As it was written: kube-lease-manager takes an empty holder for one.
	if freed.Spec.HolderIdentity != nil || freed.Spec.RenewTime != nil || freed.Spec.LeaseTransitions == nil {
		t.Error(freed.Spec)
	}
}

func TestTheSamePodAfterARestartKeepsItsToken(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{pod: s.name})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{})
	a.die()
	again := s.elect(t, "a", settings{pod: s.name})
	if second := s.leads(t, again, endMax); token(t, second) != token(t, first) {
		t.Error(first, second)
	}
	select {
	case <-b.began:
		t.Error("b leads, too")
	default:
	}
	// The same name in another Pod is another candidate.
	again.die()
	imposter := s.elect(t, "a", settings{pod: s.name + "-2"})
	var third *coordinationv1.Lease
	select {
	case <-imposter.began:
		third = s.lease(t)
	case <-b.began:
		third = s.lease(t)
	case <-time.After(nextMax):
		t.Fatal("nobody leads")
	}
	if token(t, third) <= token(t, first) {
		t.Error(first, third)
	}
}

func TestOthersMayAnnotateAHeldLease(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	b := s.elect(t, "b", settings{})
	annotator := s.leases(t, "annotator")
	ctx, cancel := context.WithCancel(t.Context())
	annotated := make(chan error, 1)
	n := 0
	go func() {
		defer close(annotated)
		for ctx.Err() == nil {
			n++
			body := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/n":"%d"},"labels":{"seen":"yes"}}}`, n)
			_, err := annotator.Patch(t.Context(), s.name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			if err != nil {
				annotated <- fmt.Errorf("annotation %d: %w", n, err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	last := s.stays(t, first, 2*leaseDuration)
	cancel()
	for err := range annotated {
		t.Error(err)
	}
	if n < 20 || last.Labels["seen"] != "yes" || last.Annotations["example.com/n"] == "" {
		t.Error(n, last.ObjectMeta)
	}
	// What was written there outlives terms, and is no keep-alive.
	a.die()
	for until := time.Now().Add(nextMax); holder(s.lease(t)) != "b"; time.Sleep(50 * time.Millisecond) {
		body := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/late":"%d"}}}`, time.Now().UnixNano())
		_, err := annotator.Patch(t.Context(), s.name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
		if time.Now().After(until) {
			t.Fatal("annotations keep the lease of a dead leader alive")
		}
	}
	if next := s.leads(t, b, nextMax); next.Labels["seen"] != "yes" || token(t, next) <= token(t, first) {
		t.Error(next)
	}
	body := `{"metadata":{"annotations":{"ringfence.io/token":"1"}}}`
	_, err := annotator.Patch(t.Context(), s.name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if shown := s.lease(t); err == nil && shown.Annotations[tokenAnnotation] == "1" {
		t.Error("anybody writes the token")
	}
}
