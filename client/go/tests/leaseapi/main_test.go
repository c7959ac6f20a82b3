// Package leaseapi runs programs of Kubernetes, as they are, against the Lease endpoint: only the
// address and the credential are Ringfence's.
package leaseapi

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func TestMain(m *testing.M) {
	if os.Getenv(sleeperVariable) != "" {
		if err := runSleeper(); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	// These tests wait for most of their time.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	code := m.Run()
	if shared.cluster != nil {
		if code != 0 {
			for _, n := range shared.cluster.nodes {
				fmt.Fprintf(os.Stderr, "%s:\n%s\n", n.name, n.said())
			}
		}
		shared.cluster.stop()
	}
	os.Exit(code)
}

// shared is one node for all tests that do nothing to it.
var shared struct {
	once    sync.Once
	cluster *cluster
	err     error
}

func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = startCluster(1) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// leaseName is the name of the test's own lease.
func leaseName(t testing.TB) string {
	var words []rune
	for i, letter := range strings.ReplaceAll(t.Name(), "/", "-") {
		if letter >= 'A' && letter <= 'Z' && i > 0 {
			words = append(words, '-')
		}
		words = append(words, letter)
	}
	return strings.TrimPrefix(strings.ToLower(string(words)), "test-")
}

// without says loudly what is not tested; under CI that is a failure.
func without(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	_, _ = fmt.Fprintf(os.Stderr, "\nNOT TESTED: %s: %s\n\n", t.Name(), why)
	t.Skip(why)
}
