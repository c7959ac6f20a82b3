package ringfence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
)

// clientGoroutines are those of clients, but of no test.
func clientGoroutines() (found []string) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, one := range strings.Split(string(stacks), "\n\n") {
		// What began a goroutine stands last in its stack.
		at := strings.LastIndex(one, "created by ")
		if at >= 0 && (strings.Contains(one[at:], "created by ringfence.io/client/go.") || strings.Contains(one[at:], "created by google.golang.org/grpc")) {
			found = append(found, one)
		}
	}
	return found
}

// Close comes while everything else goes on: nothing hangs, nothing is believed in afterwards, nothing runs
// on, and nothing is left at the cluster.
func TestCloseInTheMiddleOfEverything(t *testing.T) {
	cluster := sharedCluster(t)
	watcher := connect(t, cluster)
	before := len(clientGoroutines())
	name := freshName(t)
	for round := range 25 {
		client, err := ringfence.Connect(within(t, 30*time.Second), cluster.Endpoints)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		e := elector(t, client, "e", func(o *ringfence.ElectorOptions) {
			o.OnNewLeader = func(string, ringfence.Holder) {}
		})
		var mu sync.Mutex
		var leases []*ringfence.Lease
		var work sync.WaitGroup
		for i := range 6 {
			work.Go(func() {
				for ctx.Err() == nil {
					var err error
					switch i {
					case 0:
						err = e.Run(ctx, name+"/elected", func(ctx context.Context, lease *ringfence.Lease) error {
							<-ctx.Done()
							return nil
						})
					case 1:
						err = client.WatchHolder(ctx, name, func(*ringfence.Holder) {})
					case 2:
						_, err = client.Get(ctx, name)
					default:
						var lease *ringfence.Lease
						limited, done := context.WithTimeout(ctx, time.Duration(rand.IntN(30))*time.Millisecond)
						lease, err = client.Lock(limited, name, ringfence.SessionOptions{TTL: 30 * time.Second})
						if err == nil {
							mu.Lock()
							leases = append(leases, lease)
							mu.Unlock()
							_ = lease.Do(ctx, func(context.Context) error { return nil })
							if rand.IntN(2) == 0 {
								_, err = lease.Transfer(limited, 0)
							}
							_ = lease.Release(limited)
						}
						done()
					}
					if errors.Is(err, ringfence.ErrClosed) {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() { _ = client.Close(within(t, 10*time.Second)) })
		}
		over := make(chan struct{})
		go func() {
			closing.Wait()
			cancel()
			work.Wait()
			close(over)
		}()
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			cancel()
			t.Fatalf("round %d hangs:\n%s", round, strings.Join(clientGoroutines(), "\n\n"))
		}
		cancel()
		for _, lease := range leases {
			if lease.Valid() {
				t.Error("believed in after the close:", lease)
			}
		}
	}
	eventually(t, 10*time.Second, "nothing runs on", func() bool { return len(clientGoroutines()) <= before+4 })
	eventually(t, 10*time.Second, "nothing is held or waited for", func() bool {
		left, err := watcher.List(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range left {
			if lease.Holder != nil || lease.Waiters > 0 {
				return false
			}
		}
		return true
	})
}
