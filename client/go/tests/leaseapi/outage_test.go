package leaseapi

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ringfence.io/client/go/internal/testnode"
	"ringfence.io/client/go/tests/internal/controlplane"
)

const (
	outage        = time.Minute
	leasesInAll   = 10
	candidatesOf  = 5
	tokenAudience = "ringfence"
)

// Elections go on without the API server that has signed the electors' tokens: nodes check these against its
// public keys, in a file.
func TestElectionsGoOnWhileTheAPIServerIsAway(t *testing.T) {
	if _, err := controlplane.Assets(); err != nil {
		without(t, err.Error())
	}
	plane := controlplane.Start(t, controlplane.Options{})
	tokens := podTokens(t, plane, leasesInAll*candidatesOf)
	keys, err := plane.Client(t, controlplane.AdminToken).RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubernetes.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := startCluster(3, "--jwt-issuer", "kube="+controlplane.Issuer+",audience="+tokenAudience+",jwks="+file+",kind=kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	for _, command := range [][]string{
		{"access", "grant", "sa:prod:*", "acquire", "k8s/{namespace}/*"},
		{"access", "grant", "sa:kube:shop/web", "acquire", "k8s/{namespace}/*"},
		{"access", "mode", "enforced"},
	} {
		all := append([]string{"--endpoints", "unix:" + c.nodes[0].admin}, command...)
		if _, err := testnode.Command(within(t, time.Minute), all...); err != nil {
			t.Fatal(err)
		}
	}

	stages := make([]*stage, leasesInAll)
	electors := make([][]*elector, leasesInAll)
	for i := range stages {
		stages[i] = newStage(t, c)
		stages[i].name = fmt.Sprintf("%s-%d", leaseName(t), i)
		for j := range candidatesOf {
			pod := fmt.Sprintf("web-%d", i*candidatesOf+j)
			electors[i] = append(electors[i], stages[i].electWith(t, pod, tokens[pod], false))
		}
	}
	leaders := make([]int, leasesInAll)
	tokensBefore := make([]uint64, leasesInAll)
	for i, s := range stages {
		leaders[i] = s.firstOf(t, electors[i], 10*time.Second)
		tokensBefore[i] = token(t, s.lease(t))
	}

	plane.Kill()
	began := time.Now()
	deaths := candidatesOf - 1
	pause := outage / time.Duration(deaths+1)
	for death := range deaths {
		time.Sleep(time.Until(began.Add(pause * time.Duration(death))))
		if _, err := plane.Client(t, controlplane.AdminToken).CoreV1().Pods("shop").Get(within(t, 5*time.Second), "web-0", metav1.GetOptions{}); err == nil {
			t.Fatal("the API server answers")
		}
		for i := range stages {
			select {
			case <-electors[i][leaders[i]].ended:
				t.Fatalf("%s lost its term", electors[i][leaders[i]].identity)
			default:
			}
			electors[i][leaders[i]].die()
			electors[i] = append(electors[i][:leaders[i]], electors[i][leaders[i]+1:]...)
		}
		for i, s := range stages {
			leaders[i] = s.firstOf(t, electors[i], nextMax)
			next := token(t, s.lease(t))
			if next <= tokensBefore[i] {
				t.Errorf("%s: token %d after %d", s.name, next, tokensBefore[i])
			}
			tokensBefore[i] = next
		}
	}
	time.Sleep(time.Until(began.Add(outage)))
	for i, s := range stages {
		if now := s.lease(t); holder(now) != electors[i][leaders[i]].identity || token(t, now) != tokensBefore[i] {
			t.Errorf("at the end of the outage: %v %v", now.Spec, now.Annotations)
		}
	}
	t.Logf("%d electors, %d takeovers without the API server, in %v", leasesInAll*candidatesOf, leasesInAll*deaths,
		time.Since(began).Round(time.Second))
}

// firstOf is the elector that leads first.
func (s *stage) firstOf(t *testing.T, all []*elector, limit time.Duration) int {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for i, e := range all {
			select {
			case <-e.began:
				return i
			default:
			}
		}
	}
	t.Fatalf("%s: no elector leads within %v", s.name, limit)
	return 0
}

// podTokens makes Pods and the tokens that Kubernetes projects into them, by their names.
func podTokens(t *testing.T, plane *controlplane.Plane, count int) map[string]string {
	t.Helper()
	plane.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
`)
	client := plane.Client(t, controlplane.AdminToken).CoreV1()
	ctx := within(t, 2*time.Minute)
	var mu sync.Mutex
	var made sync.WaitGroup
	tokens := make(map[string]string)
	hour := int64(3600)
	for i := range count {
		made.Add(1)
		go func() {
			defer made.Done()
			pod := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "web", Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
			pod.Name = fmt.Sprintf("web-%d", i)
			pod, err := client.Pods("shop").Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{tokenAudience}, ExpirationSeconds: &hour,
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
			granted, err := client.ServiceAccounts("shop").CreateToken(ctx, "web", request, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			tokens[pod.Name] = granted.Status.Token
		}()
	}
	made.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return tokens
}
