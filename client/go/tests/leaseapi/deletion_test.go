package leaseapi

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// In Kubernetes a deletion event carries the last state: handlers that filter by labels rely on it.
func TestADeletionIsToldWithTheLastState(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	ctx := within(t, 20*time.Second)
	leases := s.leases(t, "holder")
	identity, seconds := "one", int32(30)
	held, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{"color": "blue"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: held.ResourceVersion, FieldSelector: "metadata.name=" + s.name})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	if err := leases.Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-watching.ResultChan()
	last, is := event.Object.(*coordinationv1.Lease)
	if event.Type != watch.Deleted || !is || last.UID != held.UID || version(t, last) <= version(t, held) {
		t.Fatal(event)
	}
	if last.Labels["color"] != "blue" || holder(last) == "" && last.Spec.LeaseDurationSeconds == nil {
		t.Error("a deletion without the last state:", last)
	}
}

// A watch of one lease that goes on from a list tells no other lease's deletion.
func TestAWatchOfOneLeaseTellsOfNoOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	ctx := within(t, 20*time.Second)
	leases := s.leases(t, "watcher")
	other := create(t, s, s.name+"-other")
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.delete(t, other.Name)
	watching, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=" + s.name})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	create(t, s, s.name)
	event := <-watching.ResultChan()
	if told, is := event.Object.(*coordinationv1.Lease); event.Type != watch.Added || !is || told.Name != s.name {
		t.Error(event.Type, event.Object)
	}
}
