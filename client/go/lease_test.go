package ringfence_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
)

func TestALeaseIsHeldKeptAliveAndReleased(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	s := session(t, client, time.Second)
	lease, err := s.Acquire(within(t, 10*time.Second), name, ringfence.WithData([]byte("10.0.0.7:80")))
	if err != nil {
		t.Fatal(err)
	}
	if lease.Fence().String() != fmt.Sprintf("%s#%d", name, lease.Token()) {
		t.Errorf("fence %v", lease.Fence())
	}

	// Three TTLs: only keep-alives can bring it that far.
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		if left := lease.Remaining(); left <= 0 || left > 940*time.Millisecond {
			t.Fatalf("remaining %v of a window of 0.99 s less 50 ms", left)
		}
	}
	info, err := client.Get(within(t, 10*time.Second), name)
	if err != nil || info.Holder == nil || info.Holder.Token != lease.Token() || string(info.Holder.Data) != "10.0.0.7:80" {
		t.Fatalf("%+v %v", info, err)
	}
	if verdict, err := client.Check(within(t, 10*time.Second), lease.Fence()); verdict != ringfence.VerdictCurrent {
		t.Fatal(verdict, err)
	}

	if err := lease.Release(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Lost():
	default:
		t.Error("Lost is not closed")
	}
	var loss *ringfence.Loss
	if lease.Valid() || !errors.As(lease.Err(), &loss) || !loss.OwnDoing() {
		t.Error(lease.Err())
	}
	if verdict, err := client.Check(within(t, 10*time.Second), lease.Fence()); verdict != ringfence.VerdictEnded {
		t.Error(verdict, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error("releasing twice:", err)
	}
}

// copied is what `*lease` makes, past go vet.
func copied(lease *ringfence.Lease) *ringfence.Lease {
	made := reflect.New(reflect.TypeFor[ringfence.Lease]())
	made.Elem().Set(reflect.ValueOf(lease).Elem())
	return made.Interface().(*ringfence.Lease)
}

func TestACopyOfALeaseIsLostWithIt(t *testing.T) {
	client := connect(t, sharedCluster(t))
	s := session(t, client, time.Second)
	ends := map[string]func(lease *ringfence.Lease) error{
		"released":      func(lease *ringfence.Lease) error { return lease.Release(within(t, 10*time.Second)) },
		"reported":      func(lease *ringfence.Lease) error { lease.ReportStale(); return nil },
		"copy released": func(lease *ringfence.Lease) error { return copied(lease).Release(within(t, 10*time.Second)) },
		"closed":        func(*ringfence.Lease) error { return s.Close(within(t, 10*time.Second)) },
	}
	for _, name := range []string{"released", "reported", "copy released", "closed"} {
		lease := acquire(t, s, freshName(t))
		other := copied(lease)
		if !other.Valid() {
			t.Fatal(name, "not held:", other.Err())
		}
		if err := ends[name](lease); err != nil {
			t.Fatal(name, err)
		}
		for which, one := range map[string]*ringfence.Lease{"lease": lease, "copy": other} {
			if one.Valid() || !errors.Is(one.Err(), ringfence.ErrLost) || one.Remaining() != 0 {
				t.Fatalf("%s: the %s is believed in for %v: %v", name, which, one.Remaining(), one.Err())
			}
			if err := one.Do(t.Context(), func(context.Context) error { t.Errorf("%s: work of the %s", name, which); return nil }); err == nil {
				t.Errorf("%s: Do of the %s", name, which)
			}
			if _, err := one.Transfer(t.Context(), 0); err == nil {
				t.Errorf("%s: the %s was handed over", name, which)
			}
		}
	}
}

func TestGoVetRefusesACopyOfALease(t *testing.T) {
	told, err := exec.CommandContext(within(t, 5*time.Minute), "go", "vet", "./testdata/copied").CombinedOutput()
	if err == nil || !strings.Contains(string(told), "copies lock value from *lease") {
		t.Errorf("%v %s", err, told)
	}
}

func TestTokensGrowAndOneAtATimeHolds(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	first, second := session(t, client, 2*time.Second), session(t, client, 2*time.Second)
	held := acquire(t, first, name)

	_, err := second.TryAcquire(within(t, 10*time.Second), name)
	var refusal *ringfence.Refusal
	if !errors.Is(err, ringfence.ErrHeld) || !errors.As(err, &refusal) || refusal.Token() != held.Token() || refusal.Identity() != t.Name() {
		t.Fatal(err)
	}

	waiting := make(chan *ringfence.Lease, 1)
	go func() {
		lease, _ := second.Acquire(context.WithoutCancel(t.Context()), name)
		waiting <- lease
	}()
	eventually(t, 10*time.Second, "it waits", func() bool {
		info, err := client.Get(t.Context(), name)
		return err == nil && info.Waiters == 1
	})
	if err := held.Release(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	next := <-waiting
	if next == nil || next.Token() <= held.Token() {
		t.Fatalf("%v behind %v", next, held)
	}
	again := acquire(t, first, freshName(t))
	if again.Token() <= next.Token() {
		t.Errorf("%v behind %v", again, next)
	}
}

func TestACancelledAcquireLeavesNothingBehind(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	holder, other := session(t, client, 2*time.Second), session(t, client, 2*time.Second)
	held := acquire(t, holder, name)
	// Cancelled at many moments: before the request leaves, on its way, in the queue.
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		_, err := other.Acquire(ctx, name)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(i, err)
		}
	}
	eventually(t, 10*time.Second, "nobody waits", func() bool {
		info, err := client.Get(t.Context(), name)
		return err == nil && info.Waiters == 0
	})
	if err := held.Release(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	// The same where it is free: a grant that crosses its cancel is released.
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		lease, err := other.Acquire(ctx, name)
		cancel()
		if err == nil {
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 10*time.Second, "it is free", func() bool {
		info, err := client.Get(t.Context(), name)
		return err == nil && info.Holder == nil && info.Waiters == 0
	})
	// A read may overtake the last of them, which is granted then and released.
	eventually(t, 10*time.Second, "it can be acquired", func() bool {
		_, err := holder.TryAcquire(within(t, 10*time.Second), name)
		if err != nil && !errors.Is(err, ringfence.ErrHeld) && !errors.Is(err, ringfence.ErrQueued) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func TestARevokedLeaseIsLostAndTheNextHolderWaitsForItsWork(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	s, next := session(t, client, 3*time.Second), session(t, client, 3*time.Second)
	lease, other := acquire(t, s, name), acquire(t, s, freshName(t))

	working, worked := make(chan struct{}), make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		worked <- lease.Do(t.Context(), func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			<-stop // Work that takes its time to end.
			return context.Cause(ctx)
		})
	}()
	<-working
	revoked := time.Now()
	err := client.Revoke(within(t, 10*time.Second), lease.Fence(), ringfence.RevokeOptions{Operator: "alice", Reason: "drill"})
	if err != nil {
		t.Fatal(err)
	}
	<-lease.Lost()
	if !errors.Is(lease.Err(), ringfence.ErrLost) || !strings.Contains(lease.Err().Error(), "alice") {
		t.Error(lease.Err())
	}
	if !other.Valid() {
		t.Error("the session's other lease is lost, too:", other.Err())
	}
	if _, err := next.TryAcquire(within(t, 10*time.Second), name); !errors.Is(err, ringfence.ErrRevoking) {
		t.Error("the old holder still works:", err)
	}
	close(stop)
	if err := <-worked; !errors.Is(err, ringfence.ErrLost) {
		t.Error(err)
	}
	successor := acquire(t, next, name)
	if took := time.Since(revoked); took > 2500*time.Millisecond {
		t.Errorf("granted after %v: the loss was not acknowledged", took)
	}
	if successor.Token() <= lease.Token() {
		t.Error(successor, lease)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, ringfence.ErrLost) {
		t.Error("releasing what was lost:", err)
	}
	if !successor.Valid() {
		t.Error("the late release hit the successor")
	}
}

func TestAHandOverHasNoGap(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	giver, taker := session(t, client, 2*time.Second), session(t, client, 2*time.Second)
	lease := acquire(t, giver, name)
	taken := make(chan *ringfence.Lease, 1)
	go func() {
		lease, _ := taker.Acquire(context.WithoutCancel(t.Context()), name)
		taken <- lease
	}()
	eventually(t, 10*time.Second, "it waits", func() bool {
		info, err := client.Get(t.Context(), name)
		return err == nil && info.Waiters == 1
	})
	handed, err := lease.Transfer(within(t, 10*time.Second), taker.ID())
	if err != nil {
		t.Fatal(err)
	}
	got := <-taken
	if lease.Valid() || got == nil || got.Token() != handed.Token || handed.Session != taker.ID() {
		t.Fatal(lease, got, handed)
	}
	// No session waits: the lease is given up all the same.
	_, err = got.Transfer(within(t, 10*time.Second), 0)
	if !errors.Is(err, ringfence.ErrNotWaiting) || got.Valid() {
		t.Error(err, got.Valid())
	}
	acquire(t, giver, name)
}

func TestLockOpensAndClosesItsSession(t *testing.T) {
	client := connect(t, sharedCluster(t))
	name := freshName(t)
	lease, err := client.Lock(within(t, 10*time.Second), name, ringfence.SessionOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := lease.Context(t.Context())
	defer cancel()
	if err := lease.Release(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ringfence.ErrLost) || lease.Session().Valid() {
		t.Error(context.Cause(ctx))
	}
	acquire(t, session(t, client, 2*time.Second), name)
}

func TestClosingAClientGivesEverythingBack(t *testing.T) {
	cluster := sharedCluster(t)
	leaving, staying := connect(t, cluster), connect(t, cluster)
	name := freshName(t)
	lease := acquire(t, session(t, leaving, time.Minute), name)
	if err := leaving.Close(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if lease.Valid() {
		t.Error("still believed in")
	}
	if _, err := leaving.OpenSession(t.Context(), ringfence.SessionOptions{}); !errors.Is(err, ringfence.ErrClosed) {
		t.Error(err)
	}
	acquire(t, session(t, staying, 2*time.Second), name)
}

func TestBadInputIsNamed(t *testing.T) {
	client := connect(t, sharedCluster(t))
	s := session(t, client, 2*time.Second)
	for _, name := range []string{"", "/", "a//b", "a/../b", "ü", strings.Repeat("a", 256)} {
		if _, err := s.Acquire(t.Context(), name); err == nil || !strings.Contains(err.Error(), "is no lease name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := s.TryAcquire(t.Context(), "a", ringfence.WithData(make([]byte, 1025))); err == nil {
		t.Error("too much data was taken")
	}
	_, err := client.OpenSession(t.Context(), ringfence.SessionOptions{TTL: time.Nanosecond})
	if !errors.Is(err, ringfence.ErrInvalidArgument) {
		t.Error(err)
	}
	for _, endpoints := range [][]string{nil, {"nowhere"}, {":1"}, {"::1:7420"}, {"a:0"}, {"http://a:1", "https://b:1"}} {
		if _, err := ringfence.Connect(t.Context(), endpoints); err == nil {
			t.Errorf("%q were taken", endpoints)
		}
	}
	for _, fence := range []string{"a", "a#", "a#0", "a#01", "#1", "a#9223372036854775808", "a#-1"} {
		if _, err := ringfence.ParseFence(fence); err == nil {
			t.Errorf("%q was taken", fence)
		}
	}
}
