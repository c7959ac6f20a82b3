package leaseapi

import (
	"context"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// A manager of controller-runtime whose election's config is another one than its work's.
func TestManagers(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	type running struct {
		cancel context.CancelFunc
		leads  chan struct{}
		ended  chan error
	}
	start := func(pod string) *running {
		t.Helper()
		duration, deadline, period := leaseDuration, renewDeadline, retryPeriod
		m, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
			LeaderElection:                true,
			LeaderElectionConfig:          s.cluster.config(newLink(s.cluster.hosts()...), s.cluster.token(pod)),
			LeaderElectionID:              s.name,
			LeaderElectionNamespace:       "shop",
			LeaderElectionReleaseOnCancel: true,
			LeaseDuration:                 &duration,
			RenewDeadline:                 &deadline,
			RetryPeriod:                   &period,
			Metrics:                       metricsserver.Options{BindAddress: "0"},
			MapperProvider:                noMapper,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &running{leads: make(chan struct{}), ended: make(chan error, 1)}
		work := manager.RunnableFunc(func(ctx context.Context) error {
			s.enter(t, pod)
			close(r.leads)
			<-ctx.Done()
			s.leave(pod)
			return nil
		})
		if err := m.Add(work); err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, r.cancel = context.WithCancel(context.Background())
		go func() { r.ended <- m.Start(ctx) }()
		t.Cleanup(r.cancel)
		return r
	}
	leads := func(r *running, limit time.Duration) {
		t.Helper()
		select {
		case <-r.leads:
		case err := <-r.ended:
			t.Fatal(err)
		case <-time.After(limit):
			t.Fatal("the manager does not lead")
		}
	}
	a := start(s.name + "-a")
	leads(a, 10*time.Second)
	first := s.lease(t)
	b := start(s.name + "-b")
	first = s.stays(t, first, leaseDuration)
	a.cancel()
	if err := <-a.ended; err != nil {
		t.Error(err)
	}
	leads(b, nextMax)
	second := s.lease(t)
	if token(t, second) <= token(t, first) || holder(second) == holder(first) {
		t.Error(first, second)
	}
	s.stays(t, second, leaseDuration)
	b.cancel()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
}

// noMapper spares the manager the discovery of an API server that this test does without.
func noMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return meta.NewDefaultRESTMapper(nil), nil
}
