package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/k8s/fenced"
	"ringfence.io/client/go/k8s/resourcelock"
)

// managerVariable makes this test binary a manager: "NAME RINGFENCE API_SERVER TOKEN".
const managerVariable = "RINGFENCE_TEST_MANAGER"

// PriceReconciler writes into the ConfigMap prices what stands in the ConfigMap orders.
type PriceReconciler struct {
	client.Client
	name string
}

func (r *PriceReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request.Name != "orders" {
		return ctrl.Result{}, nil
	}
	var orders corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &orders); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	prices := &corev1.ConfigMap{}
	prices.Namespace, prices.Name = request.Namespace, "prices"
	patch := fmt.Sprintf(`{"data":{"seen":%q,"by":%q}}`, orders.Data["n"], r.name)
	err := r.Patch(ctx, prices, client.RawPatch("application/merge-patch+json", []byte(patch)))
	var unsent *fenced.Unsent
	switch {
	case errors.As(err, &unsent):
		fmt.Println("unsent", orders.Data["n"], unsent)
	case err != nil:
		fmt.Println("refused", orders.Data["n"], err)
	default:
		fmt.Println("wrote", orders.Data["n"])
	}
	return ctrl.Result{}, err
}

// runManager is what kubebuilder makes of a main function, with two lines more.
func runManager() error {
	settings := strings.Fields(os.Getenv(managerVariable))
	name, endpoint, host, token := settings[0], settings[1], settings[2], settings[3]
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx := ctrl.SetupSignalHandler()
	ringfenceClient, err := ringfence.Connect(ctx, []string{endpoint})
	if err != nil {
		return err
	}
	config := &rest.Config{Host: host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return holding{next} })

	lock, err := resourcelock.New(ringfenceClient, "k8s/shop/controller", resourcelock.WithIdentity(name))
	if err != nil {
		return err
	}
	config = fenced.Wrap(config, lock.Term())

	duration, deadline, period := 3*time.Second, 2*time.Second, 200*time.Millisecond
	manager, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaseDuration:                       &duration,
		RenewDeadline:                       &deadline,
		RetryPeriod:                         &period,
		Metrics:                             metricsserver.Options{BindAddress: "0"},
		Cache:                               cache.Options{DefaultNamespaces: map[string]cache.Config{"shop": {}}},
	})
	if err != nil {
		return err
	}
	reconciler := &PriceReconciler{Client: manager.GetClient(), name: name}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		return err
	}
	fmt.Println("started")
	err = manager.Start(ctx)
	fmt.Println("ended", err)
	return nil
}

// holding holds the write of a 2 by the manager a back, behind every check in this process, until a
// line comes in: a process can be stopped at any place, at this one, too.
type holding struct{ next http.RoundTripper }

func (h holding) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"seen":"2","by":"a"`)) {
			fmt.Println("sending", request.Header.Get("Impersonate-Extra-Ringfence.io%2ffence"))
			// What was read has left the process's hands: its context does not count any more.
			request = request.WithContext(context.WithoutCancel(request.Context()))
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	return h.next.RoundTrip(request)
}
