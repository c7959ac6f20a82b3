// Package tests has the tests that need more than the client does: databases, and Kubernetes.
package tests

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
)

func TestMain(m *testing.M) {
	if os.Getenv(managerVariable) != "" {
		if err := runManager(); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	if database.stop != nil {
		database.stop()
	}
	os.Exit(code)
}

// shared is one cluster for all tests.
var shared struct {
	once    sync.Once
	cluster *cluster
	err     error
}

func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = startCluster() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

func connect(t testing.TB) *ringfence.Client {
	t.Helper()
	client, err := ringfence.Connect(within(t, 30*time.Second), sharedCluster(t).Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = client.Close(ctx)
	})
	return client
}

func within(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
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

func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
