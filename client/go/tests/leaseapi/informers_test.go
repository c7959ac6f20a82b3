package leaseapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// seen is what an informer's handlers received.
type seen struct {
	mu       sync.Mutex
	added    map[string]int
	modified map[string]int
	deleted  map[string]int
	last     map[string]*coordinationv1.Lease
}

func (s *seen) count(of map[string]int, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of[name]
}

// asked counts requests of a sort.
type asked struct {
	next http.RoundTripper

	mu     sync.Mutex
	lists  int
	starts []string // The queries of watches.
}

func (a *asked) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	a.mu.Lock()
	if query.Get("watch") != "" {
		a.starts = append(a.starts, request.URL.RawQuery)
	} else {
		a.lists++
	}
	a.mu.Unlock()
	return a.next.RoundTrip(request)
}

// watches are the queries of the watches so far.
func (a *asked) watches() (lists int, starts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists, append([]string(nil), a.starts...)
}

// olderListWatch lists first and watches then, as client-go did before 1.35.
type olderListWatch struct{ *cache.ListWatch }

func (olderListWatch) IsWatchListSemanticsUnSupported() bool { return true }

// inform starts an informer on the leases of a namespace.
func inform(t *testing.T, c *cluster, l *link, namespace string, older bool) (cache.SharedIndexInformer, *seen, *asked) {
	t.Helper()
	counter := &asked{}
	config := c.config(l, c.token("informer"))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counter.next = next
		return counter
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var informer cache.SharedIndexInformer
	if older {
		leases := cache.NewListWatchFromClient(client.CoordinationV1().RESTClient(), "leases", namespace, fields.Everything())
		informer = cache.NewSharedIndexInformer(olderListWatch{leases}, &coordinationv1.Lease{}, 0, cache.Indexers{})
	} else {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
		informer = factory.Coordination().V1().Leases().Informer()
	}
	told := &seen{added: make(map[string]int), modified: make(map[string]int), deleted: make(map[string]int),
		last: make(map[string]*coordinationv1.Lease)}
	note := func(of map[string]int, object any) {
		told.mu.Lock()
		defer told.mu.Unlock()
		if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
			object = unknown.Obj
		}
		lease := object.(*coordinationv1.Lease)
		of[lease.Name]++
		told.last[lease.Name] = lease
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note(told.added, object) },
		UpdateFunc: func(_, object any) { note(told.modified, object) },
		DeleteFunc: func(object any) { note(told.deleted, object) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		informer.Run(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	eventually(t, 20*time.Second, "the informer has synced", informer.HasSynced)
	return informer, told, counter
}

func stored(informer cache.SharedIndexInformer, key string) *coordinationv1.Lease {
	object, exists, err := informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	return object.(*coordinationv1.Lease)
}

func create(t *testing.T, s *stage, name string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made, err := s.looker.CoordinationV1().Leases("shop").Create(within(t, 20*time.Second), lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (s *stage) delete(t *testing.T, name string) {
	t.Helper()
	leases := s.looker.CoordinationV1().Leases("shop")
	if err := leases.Delete(within(t, 20*time.Second), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestInformer(t *testing.T)      { testInformer(t, false) }
func TestOlderInformer(t *testing.T) { testInformer(t, true) }

func testInformer(t *testing.T, older bool) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)
	network := newLink(s.cluster.hosts()...)
	informer, told, requests := inform(t, s.cluster, network, "shop", older)

	wantLists := 0
	if older {
		wantLists = 1
	}
	eventually(t, 5*time.Second, "a watch", func() bool {
		_, starts := requests.watches()
		return len(starts) > 0
	})
	lists, starts := requests.watches()
	if lists != wantLists || strings.Contains(starts[0], "sendInitialEvents=true") == older {
		t.Errorf("the first state came by %d lists and the watches %q", lists, starts)
	}
	if lease := stored(informer, "shop/"+s.name); lease == nil || holder(lease) != "a" || lease.UID != first.UID {
		t.Fatal(lease)
	}
	// Renewals are changes.
	eventually(t, 5*time.Second, "renewals are told", func() bool { return told.count(told.modified, s.name) >= 5 })

	other := create(t, s, s.name+"-other")
	eventually(t, 2*time.Second, "another lease is told", func() bool { return told.count(told.added, other.Name) == 1 })

	// The connection breaks; what happened meanwhile comes by a watch that goes on, and not by a list.
	network.darken()
	s.delete(t, other.Name)
	third := create(t, s, s.name+"-third")
	s.delete(t, create(t, s, s.name+"-short").Name)
	network.reset()
	network.lighten()
	eventually(t, 20*time.Second, "a deletion is told after a broken connection", func() bool {
		return told.count(told.deleted, other.Name) == 1 && stored(informer, "shop/"+other.Name) == nil
	})
	eventually(t, 2*time.Second, "a creation is told after a broken connection", func() bool {
		return stored(informer, "shop/"+third.Name) != nil
	})
	if told.count(told.added, s.name+"-short") != 0 || told.count(told.added, s.name) != 1 {
		t.Error("told:", told.added)
	}
	lists, starts = requests.watches()
	again := starts[len(starts)-1]
	if lists != wantLists || len(starts) < 2 || !strings.Contains(again, "resourceVersion=") || strings.Contains(again, "resourceVersion=0&") {
		t.Errorf("resumed by %d lists and the watches %q", lists, starts)
	}
	before := told.count(told.modified, s.name)
	eventually(t, 5*time.Second, "renewals are told again", func() bool { return told.count(told.modified, s.name) > before })

	a.die()
	s.delete(t, s.name)
	eventually(t, 2*time.Second, "the deletion is told", func() bool { return told.count(told.deleted, s.name) == 1 })
	told.mu.Lock()
	defer told.mu.Unlock()
	if gone := told.last[s.name]; gone.UID != first.UID {
		t.Error(gone)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	ctx := within(t, time.Minute)
	leases := s.leases(t, "watcher")
	begin := func(options metav1.ListOptions) watch.Interface {
		t.Helper()
		options.FieldSelector = "metadata.name=" + s.name
		watching, err := leases.Watch(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watching.Stop)
		return watching
	}
	next := func(watching watch.Interface, kind watch.EventType) *coordinationv1.Lease {
		t.Helper()
		select {
		case event, open := <-watching.ResultChan():
			lease, is := event.Object.(*coordinationv1.Lease)
			if !open || event.Type != kind || !is {
				t.Fatalf("%v instead of %v: %v", event.Type, kind, event.Object)
			}
			return lease
		case <-time.After(3 * time.Second):
			t.Fatalf("no %v", kind)
			return nil
		}
	}
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := begin(metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	labelled := begin(metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "color in (red)"})
	made := create(t, s, s.name)
	if told := next(first, watch.Added); told.ResourceVersion != made.ResourceVersion || told.UID != made.UID {
		t.Error(told)
	}
	versions := []uint64{version(t, made)}
	// One that the selector no longer selects is gone.
	selected := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}
	for i, color := range []string{"red", "red", "blue"} {
		body := fmt.Sprintf(`{"metadata":{"labels":{"color":%q},"annotations":{"n":"%d"}}}`, color, len(versions))
		changed, err := leases.Patch(ctx, s.name, "application/merge-patch+json", []byte(body), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for watching, kind := range map[watch.Interface]watch.EventType{first: watch.Modified, labelled: selected[i]} {
			if told := next(watching, kind); told.ResourceVersion != changed.ResourceVersion {
				t.Error(told)
			}
		}
		versions = append(versions, version(t, changed))
	}
	for i := range versions[1:] {
		if versions[i] >= versions[i+1] {
			t.Error("versions:", versions)
		}
	}
	// Without a version, and from 0: the present state first.
	for _, from := range []string{"", "0"} {
		if told := next(begin(metav1.ListOptions{ResourceVersion: from}), watch.Added); version(t, told) != versions[3] {
			t.Error(told)
		}
	}
	// From an old version: the newest state, once.
	behind := begin(metav1.ListOptions{ResourceVersion: fmt.Sprint(versions[0])})
	if told := next(behind, watch.Modified); version(t, told) != versions[3] {
		t.Error(told)
	}
	s.delete(t, s.name)
	for _, watching := range []watch.Interface{first, behind} {
		if told := next(watching, watch.Deleted); version(t, told) <= versions[3] || told.UID != made.UID {
			t.Error(told)
		}
	}
	// The initial events end with a bookmark that says so.
	yes := true
	initial := begin(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if told := next(initial, watch.Bookmark); told.Annotations[metav1.InitialEventsAnnotationKey] != "true" || version(t, told) <= versions[3] {
		t.Error(told)
	}
	// A version of the future is not there yet.
	future := fmt.Sprint(versions[3] + 1<<40)
	err = s.looker.CoordinationV1().RESTClient().Get().Namespace("shop").Resource("leases").Name(s.name).
		Param("resourceVersion", future).MaxRetries(0).Do(ctx).Error()
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Error(err)
	}
	_, err = leases.List(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(versions[0]), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Error(err)
	}
	timed := begin(metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	select {
	case event, open := <-timed.ResultChan():
		if open {
			t.Error(event)
		}
	case <-time.After(5 * time.Second):
		t.Error("a watch outlives its timeoutSeconds")
	}
}

func version(t *testing.T, lease *coordinationv1.Lease) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
