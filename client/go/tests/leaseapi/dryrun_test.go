package leaseapi

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A dry run answers what the write would.
func TestADryRunIsJudged(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	leases, others := s.leases(t, "dry"), s.leases(t, "dry-2")
	ctx := within(t, 20*time.Second)
	all := []string{metav1.DryRunAll}
	identity, seconds := "one", int32(30)
	held, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again := held.DeepCopy()
	again.Labels = map[string]string{"color": "red"}
	would, err := leases.Update(ctx, again, metav1.UpdateOptions{DryRun: all})
	if err != nil || would.Labels["color"] != "red" {
		t.Error("the labels that the write would leave:", would.Labels, err)
	}
	taken := held.DeepCopy()
	two := "two"
	taken.Spec.HolderIdentity = &two
	if _, err = others.Update(ctx, taken, metav1.UpdateOptions{DryRun: all}); !apierrors.IsConflict(err) {
		t.Error("a dry run of what would be refused:", err)
	}
}

// A value that is none is refused in words, and the connection lives on.
func TestADryRunOfAnotherSortIsInvalid(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	leases := s.leases(t, "dry")
	ctx := within(t, 20*time.Second)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name,
		Annotations: map[string]string{"large": strings.Repeat("x", 100_000)}}}
	for range 20 {
		_, err := leases.Create(ctx, lease, metav1.CreateOptions{DryRun: []string{"Some"}})
		if !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		err = leases.Delete(ctx, s.name, metav1.DeleteOptions{DryRun: []string{"Some"}})
		if !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
	}
}
