// Command cert-manager is the three programs of cert-manager, linked into one binary: of its own packages
// for controllers, webhook and CA injector, which its chart deploys.
//
// cert-manager's own main packages are modules that no module proxy has. What they do besides is not
// here: leader election, metrics, profiling, files of configuration, and issuers that call a service
// (ACME, Vault, Venafi). The name by which the binary is called chooses the program.
//
// The path of this module begins with that of cert-manager, as that of its own programs does: Go lets only
// such a module use its internal packages.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	webhook "github.com/cert-manager/cert-manager/internal/webhook"
	"github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	logs "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	registration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	manager "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	// Each makes itself known to the controllers' registry, or to that of issuers.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

const (
	// Where the chart has the controllers' liveness probe.
	healthAddress = "0.0.0.0:9403"
	workers       = 5
)

var programs = map[string]func(context.Context) error{
	"controller": controllers,
	"webhook":    answer,
	"cainjector": inject,
}

func main() {
	run, found := programs[filepath.Base(os.Args[0])]
	if !found {
		fmt.Fprintf(os.Stderr, "no program %q; there are controller, webhook and cainjector\n", os.Args[0])
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logs.InitLogs()
	defer logs.FlushLogs()
	manager.SetLogger(logs.Log)
	if err := run(logs.NewContext(ctx, logs.Log)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		logs.FlushLogs()
		os.Exit(1)
	}
}

// arguments parses those that the chart gives; `more` adds the known ones, and others are for what is
// not here.
func arguments(more func(*pflag.FlagSet)) error {
	flags := pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	more(flags)
	return flags.Parse(os.Args[1:])
}

func controllers(ctx context.Context) error {
	var namespace string
	err := arguments(func(flags *pflag.FlagSet) {
		flags.StringVar(&namespace, "cluster-resource-namespace", "kube-system", "")
	})
	if err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	base, err := factory.Build()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	listener, err := net.Listen("tcp", healthAddress)
	if err != nil {
		return err
	}
	group.Go(func() error { return healthz.NewServer(20*time.Second).Start(ctx, listener) })
	for name, construct := range controller.Known() {
		made, err := construct(factory)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
		group.Go(func() error { return made.Run(workers, ctx) })
	}
	base.SharedInformerFactory.Start(ctx.Done())
	base.KubeSharedInformerFactory.Start(ctx.Done())
	base.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	return group.Wait()
}

func answer(ctx context.Context) error {
	configuration, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	err = arguments(func(flags *pflag.FlagSet) { options.AddConfigFlags(flags, configuration) })
	if err != nil {
		return err
	}
	server, err := webhook.NewCertManagerWebhookServer(logs.Log, *configuration)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func inject(ctx context.Context) error {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, scheme.AddToScheme, extensions.AddToScheme, registration.AddToScheme,
	} {
		if err := add(known); err != nil {
			return err
		}
	}
	config, err := manager.GetConfig()
	if err != nil {
		return err
	}
	// The name under which it owns fields comes from its user agent.
	config = util.RestConfigWithUserAgent(config, "cainjector")
	all, err := manager.NewManager(config, manager.Options{
		Scheme: known,
		// Its account may read single Secrets, and not watch them all.
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&core.Secret{}}}},
		Metrics: metrics.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, all, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return err
	}
	return all.Start(ctx)
}
