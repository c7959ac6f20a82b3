package leaseapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/k8s/fenced"
	"ringfence.io/client/go/k8s/leaseapi"
)

// fencedElector is client-go's election with the fences of its terms.
type fencedElector struct {
	*elector
	terms chan *leaseapi.Term // One of each term.

	mu      sync.Mutex
	written []error // Of each write of the lease: what the term says while it is sent.
}

// electFenced starts an elector of this Pod.
func (s *stage) electFenced(t *testing.T, pod string) *fencedElector {
	t.Helper()
	election, err := leaseapi.New("shop", s.name)
	if err != nil {
		t.Fatal(err)
	}
	e := &fencedElector{elector: &elector{identity: pod, link: newLink(s.cluster.hosts()...), began: make(chan time.Time, 10),
		ended: make(chan struct{})}, terms: make(chan *leaseapi.Term, 10)}
	watched := election.Term()
	config := s.cluster.config(e.link, s.cluster.token(pod))
	config.Timeout = renewDeadline / 2
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sending{e, watched, next} })
	client, err := kubernetes.NewForConfig(election.Wrap(config))
	if err != nil {
		t.Fatal(err)
	}
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: s.name},
		Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: pod}}
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          election.Lock(lock),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(ctx context.Context) {
			e.terms <- election.Term()
			e.began <- time.Now()
			<-ctx.Done()
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(e.ended)
		le.Run(ctx)
	}()
	t.Cleanup(func() {
		e.cancel()
		e.link.cut()
		<-e.ended
	})
	return e
}

// sending notes what the term says at the moment at which a write of the lease leaves.
type sending struct {
	elector *fencedElector
	term    *leaseapi.Term
	next    http.RoundTripper
}

func (s sending) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPut {
		_, err := s.term.Fence()
		s.elector.mu.Lock()
		s.elector.written = append(s.elector.written, err)
		s.elector.mu.Unlock()
	}
	return s.next.RoundTrip(request)
}

// leads waits for a term, and returns it with the fence that the object shows.
func (s *stage) leadsFenced(t *testing.T, e *fencedElector, limit time.Duration) (*leaseapi.Term, ringfence.Fence) {
	t.Helper()
	lease := s.leads(t, e.elector, limit)
	return <-e.terms, ringfence.Fence{Name: "k8s/shop/" + s.name, Token: token(t, lease)}
}

// workStore takes what is written, and remembers the fence of each write.
type workStore struct {
	server *httptest.Server
	mu     sync.Mutex
	fences []string
}

func newWorkStore(t *testing.T) *workStore {
	store := &workStore{}
	store.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		store.mu.Lock()
		store.fences = append(store.fences, request.Header.Get("Impersonate-Extra-Ringfence.io%2ffence"))
		store.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"work"}}`))
	}))
	t.Cleanup(store.server.Close)
	return store
}

// write writes under a term, as a controller does.
func (w *workStore) write(t *testing.T, term *leaseapi.Term) error {
	t.Helper()
	config := &rest.Config{Host: w.server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfig(fenced.Wrap(config, term, fenced.As("system:serviceaccount:shop:web")))
	if err != nil {
		t.Fatal(err)
	}
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "work"}}
	_, err = client.CoreV1().ConfigMaps("shop").Update(within(t, 10*time.Second), work, metav1.UpdateOptions{})
	return err
}

func TestATermIsFencedByTheTokenOfItsGrant(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	store := newWorkStore(t)
	a := s.electFenced(t, s.name)
	term, fence := s.leadsFenced(t, a, 5*time.Second)
	work, cancel := term.Context(t.Context())
	defer cancel()
	for until := time.Now().Add(2 * leaseDuration); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if shown, err := term.Fence(); err != nil || shown != fence {
			t.Fatal(shown, err)
		}
	}
	if err := store.write(t, term); err != nil || store.fences[0] != fence.String() {
		t.Fatal(store.fences, err)
	}
	if work.Err() != nil {
		t.Error("the work was stopped in its term:", context.Cause(work))
	}

	// Its process is started again: the first write begins a new term, while the old one lasts.
	a.die()
	again := s.electFenced(t, s.name)
	_, next := s.leadsFenced(t, again, endMax)
	if next.Token <= fence.Token {
		t.Error("the new process has the token of the one before:", fence, next)
	}
}

func TestATermIsOverBeforeItsSuccessorBegins(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	store := newWorkStore(t)
	a := s.electFenced(t, s.name+"-a")
	term, fence := s.leadsFenced(t, a, 5*time.Second)
	work, cancel := term.Context(t.Context())
	defer cancel()
	a.link.darken()
	b := s.electFenced(t, s.name+"-b")
	began := <-b.began
	if _, err := term.Fence(); !errors.Is(err, ringfence.ErrLost) {
		t.Errorf("%v lasts when its successor begins: %v", fence, err)
	}
	eventually(t, time.Second, "the work is stopped", func() bool { return work.Err() != nil })
	if !errors.Is(context.Cause(work), leaseapi.ErrNoTerm) {
		t.Error(context.Cause(work))
	}
	var unsent *fenced.Unsent
	if err := store.write(t, term); !errors.As(err, &unsent) || len(store.fences) != 0 {
		t.Error(store.fences, err)
	}
	if next, err := (<-b.terms).Fence(); err != nil || next.Token <= fence.Token {
		t.Error(began, next, err)
	}
	a.link.lighten()
}

// client-go sends its release before it cancels the work's context.
func TestATermIsOverBeforeItsReleaseLeaves(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.electFenced(t, s.name)
	term, _ := s.leadsFenced(t, a, 5*time.Second)
	s.resign(t, a.elector)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.written) < 2 {
		t.Fatal("nothing was renewed:", a.written)
	}
	last := len(a.written) - 1
	if !errors.Is(a.written[last], leaseapi.ErrReleased) {
		t.Error("while the release is sent the term says", a.written[last])
	}
	if a.written[last-1] != nil {
		t.Error("a renewal is sent when its term is over:", a.written[last-1])
	}
	if _, err := term.Fence(); !errors.Is(err, leaseapi.ErrReleased) {
		t.Error(err)
	}
	if free := s.lease(t); holder(free) != "" {
		t.Error("it was not released:", free.Spec)
	}
}

// A loop that goes on after the loss of its term writes nothing before it has ended, and has a new token
// then.
func TestWhatFollowsALostTermIsANewOne(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	election, err := leaseapi.New("shop", s.name)
	if err != nil {
		t.Fatal(err)
	}
	term := election.Term()
	client, err := kubernetes.NewForConfig(election.Wrap(s.cluster.config(newLink(s.cluster.hosts()...), s.cluster.token(s.name))))
	if err != nil {
		t.Fatal(err)
	}
	leases := client.CoordinationV1().Leases("shop")
	ctx := within(t, time.Minute)
	identity, seconds := "a", int32(leaseDuration/time.Second)
	held, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fence, err := term.Fence()
	if err != nil || fence.Token != token(t, held) {
		t.Fatal(fence, err)
	}
	eventually(t, endMax, "the term ends without a renewal", func() bool {
		_, err := term.Fence()
		return errors.Is(err, ringfence.ErrLost)
	})
	lost := time.Now()
	renew := func() error {
		fresh, err := leases.Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		fresh.Spec = held.Spec
		fresh.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_, err = leases.Update(ctx, fresh, metav1.UpdateOptions{})
		return err
	}
	if err := renew(); !errors.Is(err, leaseapi.ErrNoTerm) || !strings.Contains(err.Error(), "lost") {
		t.Error(err)
	}
	eventually(t, 4*endMax, "it is granted again", func() bool { return renew() == nil })
	if took := time.Since(lost); took < leaseDuration {
		t.Errorf("granted again after %v, inside of the term it believed in", took)
	}
	if _, err := term.Fence(); !errors.Is(err, ringfence.ErrLost) {
		t.Error("a lost term has come back:", err)
	}
	if next, err := election.Term().Fence(); err != nil || next.Token <= fence.Token {
		t.Error(next, err)
	}
}
