package tests

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/k8s/resourcelock"
)

// client-go writes a lease duration in whole seconds, rounded down, so its loop may go on for longer than
// the lock learns.
func TestClientGosLoopNeverGoesOnUnderAnotherToken(t *testing.T) {
	client := connect(t)
	lock, err := resourcelock.New(client, "k8s/shop/loop")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	leading := false
	started := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: 1950 * time.Millisecond,
		RenewDeadline: 1900 * time.Millisecond,
		RetryPeriod:   100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				mu.Lock()
				leading = true
				mu.Unlock()
				close(started)
			},
			OnStoppedLeading: func() {
				mu.Lock()
				defer mu.Unlock()
				leading = false
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t, 30*time.Second))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(ctx)
	}()
	defer func() {
		stop()
		<-over
	}()
	<-started
	first, err := lock.Term().Lease()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Revoke(ctx, first.Fence(), ringfence.RevokeOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-over:
			return
		case <-time.After(5 * time.Millisecond):
		}
		// In this order: a loop that stops in between is not to be blamed.
		lease, err := lock.Term().Lease()
		mu.Lock()
		goesOn := leading
		mu.Unlock()
		if err == nil && goesOn && lease.Token() != first.Token() {
			t.Fatalf("the loop that began under %d goes on under %d", first.Token(), lease.Token())
		}
	}
}
