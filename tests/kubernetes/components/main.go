// Command kube is every Kubernetes component that the tests start, linked into one binary.
//
// The components share nearly all of their code, so one link costs little more than the API server
// alone. The name by which it is called chooses the component, as a symlink or as first argument:
//
//	kube kube-apiserver --etcd-servers=...
//
// A component is a line of the table below and a line of imports.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// self is the name that chooses no component: the first argument does.
const self = "kube"

// A component takes its arguments from os.Args and returns the exit code.
var components = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(manager.NewControllerManagerCommand),
	// It takes options of other plugins, of which there are none here.
	"kube-scheduler": command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":        command(kubectl.NewDefaultKubectlCommand),
	// It takes over the signals itself, and a process can be asked for that only once.
	"kubelet": command(func() *cobra.Command {
		return kubelet.NewKubeletCommand(context.Background())
	}),
	"kube-proxy": command(proxy.NewProxyCommand),
	"coredns": func() int {
		// In the order in which they see a query.
		dnsserver.Directives = []string{"bind", "ready", "errors", "cache", "kubernetes"}
		coremain.Run()
		return 0
	},
}

// command makes a component of one of Kubernetes' own commands. The command is made only when it
// is called for: making one registers global flags, and two of them collide.
func command(make func() *cobra.Command) func() int {
	return func() int { return cli.Run(make()) }
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == self && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run, found := components[name]
	if !found {
		known := slices.Sorted(maps.Keys(components))
		fmt.Fprintf(os.Stderr, "%s: no component %q; there are %s\n", self, name, strings.Join(known, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
