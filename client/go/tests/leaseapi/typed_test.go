package leaseapi

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/coordination/v1"
)

func TestTypedClient(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	leases := s.leases(t, "typed")
	ctx := within(t, time.Minute)
	must := func(lease *coordinationv1.Lease, err error) *coordinationv1.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}

	_, err := leases.Get(ctx, s.name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	wanted := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{"of": s.name},
		Annotations:     map[string]string{"kept": "yes"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "u1"}}}}
	made := must(leases.Create(ctx, wanted, metav1.CreateOptions{}))
	if made.Namespace != "shop" || made.UID == "" || made.CreationTimestamp.IsZero() || len(made.OwnerReferences) != 1 || holder(made) != "" {
		t.Error(made)
	}
	if _, err = leases.Create(ctx, wanted, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Error(err)
	}

	// An update needs the newest version.
	changed := made.DeepCopy()
	changed.Labels["step"] = "one"
	changed = must(leases.Update(ctx, changed, metav1.UpdateOptions{}))
	if version(t, changed) <= version(t, made) || changed.UID != made.UID || changed.Annotations["kept"] != "yes" {
		t.Error(changed)
	}
	if _, err = leases.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Error("with an old version:", err)
	}
	without := changed.DeepCopy()
	without.ResourceVersion = ""
	if _, err = leases.Update(ctx, without, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Error("without a version:", err)
	}
	stranger := changed.DeepCopy()
	stranger.UID = "00000000-0000-0000-0000-000000000000"
	if _, err = leases.Update(ctx, stranger, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Error("with another uid:", err)
	}
	// An update that changes nothing is none.
	same := must(leases.Update(ctx, changed, metav1.UpdateOptions{}))
	if same.ResourceVersion != changed.ResourceVersion {
		t.Errorf("%s after %s without a change", same.ResourceVersion, changed.ResourceVersion)
	}

	patch := func(kind types.PatchType, body string) *coordinationv1.Lease {
		t.Helper()
		return must(leases.Patch(ctx, s.name, kind, []byte(body), metav1.PatchOptions{}))
	}
	merged := patch(types.MergePatchType, `{"metadata":{"labels":{"step":null,"merged":"yes"}}}`)
	if _, left := merged.Labels["step"]; left || merged.Labels["merged"] != "yes" || merged.Labels["of"] != s.name {
		t.Error(merged.Labels)
	}
	strategic := patch(types.StrategicMergePatchType,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u2"}],"labels":{"strategic":"yes"}}}`)
	if len(strategic.OwnerReferences) != 2 || strategic.Labels["strategic"] != "yes" || strategic.Labels["merged"] != "yes" {
		t.Error("owners are merged by their uid:", strategic.ObjectMeta)
	}
	tested := patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/merged","value":"yes"},{"op":"remove","path":"/metadata/labels/merged"}]`)
	if _, left := tested.Labels["merged"]; left {
		t.Error(tested.Labels)
	}
	_, err = leases.Patch(ctx, s.name, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"late":"yes"}}}`, made.ResourceVersion)), metav1.PatchOptions{})
	if !apierrors.IsConflict(err) {
		t.Error("a patch for an old version:", err)
	}

	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: "of=" + s.name + ",strategic in (yes,no),!merged"})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != made.UID || list.ResourceVersion == "" {
		t.Error(list, err)
	}
	if list, err = leases.List(ctx, metav1.ListOptions{LabelSelector: "of=" + s.name + ",merged"}); err != nil || len(list.Items) != 0 {
		t.Error(list, err)
	}
	if list, err = leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + s.name}); err != nil || len(list.Items) != 1 {
		t.Error(list, err)
	}

	// Preconditions, and the deletion.
	other, old := types.UID("other"), made.ResourceVersion
	for _, conditions := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &old}} {
		if err = leases.Delete(ctx, s.name, metav1.DeleteOptions{Preconditions: &conditions}); !apierrors.IsConflict(err) {
			t.Error(err)
		}
	}
	if err = leases.Delete(ctx, s.name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	must(leases.Get(ctx, s.name, metav1.GetOptions{}))
	if err = leases.Delete(ctx, s.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		t.Error(err)
	}
	if err = leases.Delete(ctx, s.name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if _, err = leases.Update(ctx, strategic, metav1.UpdateOptions{}); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Error("an update of what is gone:", err)
	}
	if again := must(leases.Create(ctx, wanted, metav1.CreateOptions{})); again.UID == made.UID || version(t, again) <= version(t, strategic) {
		t.Error(again)
	}
	if err = leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=" + s.name}); !apierrors.IsMethodNotSupported(err) {
		t.Error(err)
	}
	generated := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "g-"}}
	if _, err = leases.Create(ctx, generated, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Error(err)
	}
}

// kube-lease-manager holds its lock by server-side apply.
func TestServerSideApply(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	mine, others := s.leases(t, "applier"), s.leases(t, "applier-2")
	ctx := within(t, time.Minute)
	options := metav1.ApplyOptions{FieldManager: "test"}
	wanted := func(identity string) *apply.LeaseApplyConfiguration {
		now := metav1.NewMicroTime(time.Now())
		return apply.Lease(s.name, "shop").WithSpec(apply.LeaseSpec().WithHolderIdentity(identity).
			WithLeaseDurationSeconds(2).WithAcquireTime(now).WithRenewTime(now))
	}
	first, err := mine.Apply(ctx, wanted("one"), options)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := mine.Apply(ctx, wanted("one"), options)
	if err != nil || token(t, renewed) != token(t, first) || renewed.ResourceVersion == first.ResourceVersion {
		t.Fatal(renewed, err)
	}
	for _, force := range []bool{false, true} {
		if _, err = others.Apply(ctx, wanted("two"), metav1.ApplyOptions{FieldManager: "other", Force: force}); !apierrors.IsConflict(err) {
			t.Errorf("force %v: %v", force, err)
		}
	}
	// Leaving the spec out gives it up.
	freed, err := mine.Apply(ctx, apply.Lease(s.name, "shop"), options)
	if err != nil || holder(freed) != "" {
		t.Fatal(freed, err)
	}
	second, err := others.Apply(ctx, wanted("two"), metav1.ApplyOptions{FieldManager: "other"})
	if err != nil || token(t, second) <= token(t, first) {
		t.Fatal(second, err)
	}
	// Another's labels leave the holder alone.
	labelled, err := mine.Apply(ctx, apply.Lease(s.name, "shop").WithLabels(map[string]string{"a": "b"}), options)
	if err != nil || holder(labelled) != "two" || labelled.Labels["a"] != "b" || token(t, labelled) != token(t, second) {
		t.Error(labelled, err)
	}
}

// A dry run does nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	leases := s.leases(t, "dry")
	ctx := within(t, time.Minute)
	all := []string{metav1.DryRunAll}
	identity, seconds := "one", int32(30)
	wanted := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds}}
	if would, err := leases.Create(ctx, wanted, metav1.CreateOptions{DryRun: all}); err != nil || would.Name != s.name {
		t.Fatal(would, err)
	}
	if _, err := leases.Get(ctx, s.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal("a dry run has made it:", err)
	}
	held, err := leases.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again := held.DeepCopy()
	again.Labels = map[string]string{"color": "red"}
	if _, err = leases.Update(ctx, again, metav1.UpdateOptions{DryRun: all}); err != nil {
		t.Error(err)
	}
	now, err := leases.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != held.ResourceVersion || len(now.Labels) != 0 {
		t.Error(now, err)
	}
}

// Only leases are served.
func TestOtherResources(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	client, err := c.client(newLink(c.hosts()...), c.token("other"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 20*time.Second)
	if _, err = client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	// Programs that record events at their election's client are answered at once.
	if _, err = client.CoreV1().Events("shop").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	resources, err := client.Discovery().ServerResourcesForGroupVersion("coordination.k8s.io/v1")
	if err != nil || len(resources.APIResources) != 1 || resources.APIResources[0].Name != "leases" || !resources.APIResources[0].Namespaced {
		t.Error(resources, err)
	}
	if _, _, err = client.Discovery().ServerGroupsAndResources(); err != nil {
		t.Error(err)
	}
	if told, err := client.Discovery().ServerVersion(); err != nil {
		t.Error(told, err)
	}
	text, err := client.CoordinationV1().RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx)
	if err != nil || !json.Valid(text) {
		t.Error(string(text), err)
	}
}
