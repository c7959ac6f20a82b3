package leaseapi

import (
	"crypto/tls"
	"net/http"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ringfence.io/client/go/internal/testnode"
)

// leeway is by how much the clock of the signer of a token may differ.
const leeway = 60 * time.Second

// enforce lets accounts have the leases of their own namespaces, and others nothing.
func (c *cluster) enforce(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{
		{"access", "grant", "sa:prod:*", "acquire", "k8s/{namespace}/*"},
		{"access", "mode", "enforced"},
	} {
		all := append([]string{"--endpoints", "unix:" + c.nodes[0].admin}, arguments...)
		if _, err := testnode.Command(within(t, 30*time.Second), all...); err != nil {
			t.Fatal(err)
		}
	}
}

// leadsLate starts an elector that leads by a token which ends some seconds later, and returns what the lease
// says, the token and its end.
func (s *stage) leadsLate(t *testing.T, release bool) (*elector, *coordinationv1.Lease, string, time.Time) {
	t.Helper()
	ends := time.Now().Add(4 * time.Second)
	late := s.cluster.tokenUntil("shop", s.name+"-a", ends.Add(-leeway))
	a := s.electWith(t, "a", late, release)
	return a, s.leads(t, a, 3*time.Second), late, ends
}

// What goes on while no Pod gets a new token: an expired one renews what its Pod holds, is granted
// nothing, and ends with the grace.
func TestAnExpiredTokenRenewsAndIsGrantedNothing(t *testing.T) {
	t.Parallel()
	const grace = 15 * time.Second
	c, err := startCluster(1, "--lease-api-token-grace", grace.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	ctx := within(t, 90*time.Second)
	c.enforce(t)
	s := newStage(t, c)
	_, first, late, ends := s.leadsLate(t, true)
	b := s.elect(t, "b", settings{})
	first = s.stays(t, first, time.Until(ends.Add(leaseDuration*2)))

	free := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-free"}}
	if _, err := s.leases(t, "looker").Create(ctx, free, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for pod, token := range map[string]string{
		"the holder":  late,
		"another Pod": c.tokenUntil("shop", "other", ends.Add(-leeway)),
	} {
		holds := pod == "the holder"
		client, err := c.client(newLink(c.hosts()...), token)
		if err != nil {
			t.Fatal(err)
		}
		leases := client.CoordinationV1().Leases("shop")
		if _, err := leases.Get(ctx, s.name, metav1.GetOptions{}); holds != (err == nil) || !holds && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s gets the lease: %v", pod, err)
		}
		if !holds {
			if _, err = leases.Update(ctx, s.lease(t), metav1.UpdateOptions{}); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s updates the lease: %v", pod, err)
			}
		}
		refused := map[string]func() error{
			"get another": func() error {
				_, err := leases.Get(ctx, free.Name, metav1.GetOptions{})
				return err
			},
			"list": func() error {
				_, err := leases.List(ctx, metav1.ListOptions{})
				return err
			},
			"watch": func() error {
				watching, err := leases.Watch(ctx, metav1.ListOptions{})
				if err == nil {
					watching.Stop()
				}
				return err
			},
			"create": func() error {
				_, err := leases.Create(ctx, &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: s.name + "-new"}, Spec: first.Spec}, metav1.CreateOptions{})
				return err
			},
			"acquire what is free": func() error {
				present, err := s.leases(t, "looker").Get(ctx, free.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				present.Spec = first.Spec
				_, err = leases.Update(ctx, present, metav1.UpdateOptions{})
				return err
			},
			"delete": func() error { return leases.Delete(ctx, s.name, metav1.DeleteOptions{}) },
			"begin another term": func() error {
				return beginTerm(t, c, token, s)
			},
		}
		for what, ask := range refused {
			if err := ask(); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s, %s: %v", pod, what, err)
			}
		}
	}
	s.stays(t, first, leaseDuration)

	// The grace has an end, and with it the term.
	second := s.leads(t, b, time.Until(ends.Add(grace))+nextMax)
	if time.Now().Before(ends.Add(grace)) {
		t.Errorf("the term ended %v before the grace", time.Until(ends.Add(grace)))
	}
	if token(t, second) <= token(t, first) {
		t.Error(first, second)
	}
	s.stays(t, second, leaseDuration)
}

// A holder whose token has expired gives its lease back.
func TestAnExpiredTokenReleasesWhatItHolds(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a, first, _, ends := s.leadsLate(t, true)
	b := s.elect(t, "b", settings{})
	s.stays(t, first, time.Until(ends.Add(leaseDuration)))
	s.resign(t, a)
	second := s.leads(t, b, endMax-retryPeriod)
	if token(t, second) <= token(t, first) {
		t.Error(first, second)
	}
}

// beginTerm renews the lease as a process does that has started again.
func beginTerm(t *testing.T, c *cluster, token string, s *stage) error {
	t.Helper()
	config := c.config(newLink(c.hosts()...), token)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			request = request.Clone(request.Context())
			request.Header.Set("Ringfence-New-Term", "true")
			return next.RoundTrip(request)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// The holder renews meanwhile: what counts is the answer to a write of the newest version.
	for {
		lease := s.lease(t)
		lease.Spec.RenewTime = nil
		_, err = client.CoordinationV1().Leases("shop").Update(within(t, 10*time.Second), lease, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// A principal that one process has, by the word of the operator, releases as a Pod does.
func TestAPrincipalOfASingleProcessReleases(t *testing.T) {
	t.Parallel()
	c, err := startCluster(1, "--lease-api-single-process", "token:one,token:two")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	ctx := within(t, 90*time.Second)
	tokens := map[string]string{}
	for _, name := range []string{"one", "two", "many"} {
		text, err := testnode.Command(ctx, "--endpoints", "unix:"+c.nodes[0].admin, "access", "token", "create", name)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = text
	}
	for _, enforced := range []bool{false, true} {
		if enforced {
			if _, err := testnode.Command(ctx, "--endpoints", "unix:"+c.nodes[0].admin,
				"access", "grant", "token:*", "acquire", "k8s/shop/*"); err != nil {
				t.Fatal(err)
			}
			c.enforce(t)
		}
		s := newStage(t, c)
		if enforced {
			s.name += "-enforced"
		}
		one := s.electWith(t, "same", tokens["one"], true)
		first := s.leads(t, one, 5*time.Second)
		// Others neither renew nor release it, whatever they call themselves.
		for _, name := range []string{"two", "many"} {
			client, err := c.client(newLink(c.hosts()...), tokens[name])
			if err != nil {
				t.Fatal(err)
			}
			for what, identity := range map[string]string{"renews": "same", "releases": ""} {
				err := apierrors.NewConflict(coordinationv1.Resource("leases"), s.name, nil)
				for moved := true; moved; {
					lease := s.lease(t)
					lease.Spec.HolderIdentity, lease.Spec.RenewTime = &identity, nil
					_, failed := client.CoordinationV1().Leases("shop").Update(ctx, lease, metav1.UpdateOptions{})
					if failed == nil {
						t.Fatalf("%s %s what one holds, enforced: %v", name, what, enforced)
					}
					moved = failed.Error() == err.Error()
				}
			}
		}
		s.stays(t, first, leaseDuration)
		many := s.electWith(t, "many", tokens["many"], true)
		s.resign(t, one)
		second := s.leads(t, many, endMax-retryPeriod)
		if token(t, second) <= token(t, first) {
			t.Error(first, second)
		}
		// Several processes may have this one: it is held until its time is over.
		pod := s.elect(t, "pod", settings{})
		s.resign(t, many)
		if holder(s.lease(t)) != "many" {
			t.Error("a release was taken from a principal of which nothing is known:", s.lease(t).Spec)
		}
		s.leads(t, pod, nextMax)
	}
}

// Also where no rights bind an elector whose token has expired is no stranger: one that lost its lease is
// not granted another inside of its term.
func TestAnExpiredTokenThatLostItsLeaseEndsItsTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a, first, _, ends := s.leadsLate(t, false)
	s.stays(t, first, time.Until(ends.Add(leaseDuration)))
	if _, err := testnode.Command(within(t, 20*time.Second), "--endpoints", "unix:"+s.cluster.nodes[0].admin, "lease", "revoke",
		"k8s/shop/"+s.name, strconv.FormatUint(token(t, first), 10), "--now", "--reason", "a test"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.ended:
	case <-time.After(renewDeadline + 5*time.Second):
		t.Fatalf("its term goes on, and the lease says %v %v", s.lease(t).Spec, s.lease(t).Annotations)
	}
}

// Beside it the same token, and others that have expired, are refused at the client port: what fails there
// does not end what counts here.
func TestAnExpiredTokenAtTheClientPortEndsNoTerm(t *testing.T) {
	t.Parallel()
	// What expired tokens ask for in vain is no part of their account's share.
	c, err := startCluster(1, "--principal-requests-max", "40")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	c.enforce(t)
	s := newStage(t, c)
	_, first, late, ends := s.leadsLate(t, true)
	s.stays(t, first, time.Until(ends.Add(time.Second)))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	refused := func(url, token string) {
		request, err := http.NewRequestWithContext(within(t, 10*time.Second), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("%s: %s", url, answer.Status)
		}
	}
	other := c.tokenUntil("shop", "other", ends.Add(-leeway))
	for until := time.Now().Add(4 * leaseDuration); time.Now().Before(until); time.Sleep(time.Millisecond) {
		refused("https://"+c.nodes[0].client+"/v1/leases", late)
		refused("https://"+c.nodes[0].host+"/apis/coordination.k8s.io/v1/namespaces/shop/leases", other)
	}
	s.stays(t, first, leaseDuration)
}
