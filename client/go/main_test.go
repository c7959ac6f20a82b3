package ringfence_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/internal/testnode"
)

// shared is one cluster for all tests that disturb none.
var shared struct {
	once    sync.Once
	cluster *testnode.Cluster
	err     error
}

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		holder()
		return
	}
	if os.Getenv("RINGFENCE_SCRIPT_RUNNER") != "" {
		ringfence.RunScripts()
		return
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.Exit(code)
}

func sharedCluster(t testing.TB) *testnode.Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = testnode.Start(1) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// ownCluster is one to be mistreated.
func ownCluster(t testing.TB, nodes int) *testnode.Cluster {
	t.Helper()
	cluster, err := testnode.Start(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	return cluster
}

func within(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, cluster *testnode.Cluster, with ...ringfence.Option) *ringfence.Client {
	t.Helper()
	with = append([]ringfence.Option{ringfence.WithLogger(slog.New(slog.NewTextHandler(testWriter{t}, nil)))}, with...)
	client, err := ringfence.Connect(within(t, 30*time.Second), cluster.Endpoints, with...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.Close(ctx)
	})
	return client
}

// testWriter logs to the test that runs. What comes when it is over goes nowhere.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(text []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimRight(string(text), "\n"))
	}
	return len(text), nil
}

func session(t testing.TB, client *ringfence.Client, ttl time.Duration) *ringfence.Session {
	t.Helper()
	session, err := client.OpenSession(within(t, 30*time.Second), ringfence.SessionOptions{TTL: ttl, Identity: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func acquire(t testing.TB, session *ringfence.Session, name string) *ringfence.Lease {
	t.Helper()
	lease, err := session.Acquire(within(t, 30*time.Second), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

var names atomic.Uint64

// freshName is the name of a lease that no other test uses.
func freshName(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("%s/%d", strings.ReplaceAll(t.Name(), "#", "-"), names.Add(1))
}

func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
