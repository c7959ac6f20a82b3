package ringfence_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
)

func elector(t testing.TB, client *ringfence.Client, identity string, with func(*ringfence.ElectorOptions)) *ringfence.Elector {
	t.Helper()
	options := ringfence.ElectorOptions{
		Identity:      identity,
		LeaseDuration: 2 * time.Second,
		RenewDeadline: 1500 * time.Millisecond,
		RetryPeriod:   50 * time.Millisecond,
	}
	if with != nil {
		with(&options)
	}
	e, err := client.NewElector(options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestOneOfTwoCandidatesLeadsAndTheOtherFollows(t *testing.T) {
	cluster := sharedCluster(t)
	name := freshName(t)
	var leading atomic.Int32
	var mu sync.Mutex
	var seen []string
	terms := make(chan *ringfence.Lease, 10)
	work := func(ctx context.Context, lease *ringfence.Lease) error {
		if leading.Add(1) != 1 {
			t.Error("two lead")
		}
		terms <- lease
		<-ctx.Done()
		leading.Add(-1)
		return nil
	}
	over := make(chan error, 2)
	stops := make(map[string]context.CancelFunc)
	for _, identity := range []string{"anna", "ben"} {
		ctx, stop := context.WithCancel(t.Context())
		stops[identity] = stop
		e := elector(t, connect(t, cluster), identity, func(o *ringfence.ElectorOptions) {
			o.OnNewLeader = func(_ string, leader ringfence.Holder) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, identity+" sees "+leader.Identity)
			}
		})
		go func() { over <- e.Run(ctx, name, work) }()
	}
	first := <-terms
	leader := first.Session().Identity()
	follower := map[string]string{"anna": "ben", "ben": "anna"}[leader]
	stops[leader]()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second := <-terms
	if second.Session().Identity() != follower || second.Token() <= first.Token() {
		t.Error(first, second)
	}
	// Taken away by an operator: the term ends, and the campaign goes on.
	admin := connect(t, cluster)
	if err := admin.Revoke(within(t, 10*time.Second), second.Fence(), ringfence.RevokeOptions{}); err != nil {
		t.Fatal(err)
	}
	third := <-terms
	if third.Token() <= second.Token() || third.Session().Identity() != follower {
		t.Error(second, third)
	}
	eventually(t, 10*time.Second, "both were told of both", func() bool {
		mu.Lock()
		defer mu.Unlock()
		told := make(map[string]bool)
		for _, one := range seen {
			told[one] = true
		}
		return told[leader+" sees "+leader] && told[follower+" sees "+leader] && told[follower+" sees "+follower]
	})
	stops[follower]()
	<-over
	eventually(t, 10*time.Second, "it was given up", func() bool {
		info, err := admin.Get(t.Context(), name)
		return err == nil && info.Holder == nil
	})
}

func TestWorkThatFailsOrLeavesGivesTheLeaseUp(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	var tokens []uint64
	err := elector(t, client, "carl", nil).Run(within(t, 30*time.Second), name,
		func(_ context.Context, lease *ringfence.Lease) error {
			tokens = append(tokens, lease.Token())
			switch len(tokens) {
			case 1:
				return errors.New("the work failed")
			case 2:
				return nil
			case 3:
				return ringfence.ErrStaleToken // As a guard says it.
			default:
				return ringfence.ErrLeave
			}
		})
	if err != nil {
		t.Error(err)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Error("a new term without a new token", tokens)
		}
	}
	if info, err := client.Get(t.Context(), name); err != nil || info.Holder != nil || len(tokens) != 4 {
		t.Error(info, err, tokens)
	}
}

func TestTimesThatMakeNoElectionAreRefused(t *testing.T) {
	client := connect(t, sharedCluster(t))
	for _, options := range []ringfence.ElectorOptions{
		{LeaseDuration: 10 * time.Second},
		{RetryPeriod: 9 * time.Second},
		{RetryPeriod: time.Nanosecond},
	} {
		if _, err := client.NewElector(options); err == nil {
			t.Errorf("%+v was taken", options)
		}
	}
}
