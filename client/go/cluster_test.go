package ringfence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/internal/testnode"
)

func TestTheLeadersDeathCostsNoLeaseAndRetriesHaveOneEffect(t *testing.T) {
	cluster := ownCluster(t, 3)
	client := connect(t, cluster, ringfence.WithRequestTimeout(30*time.Second))
	s := session(t, client, 10*time.Second)
	kept := acquire(t, s, "kept")

	// Acquires and releases go on all the time while the leader is killed.
	var done atomic.Bool
	failed := make(chan error, 1)
	rounds := 0
	last := uint64(0)
	go func() {
		for !done.Load() {
			lease, err := s.Acquire(context.Background(), "churn")
			if err == nil && lease.Token() <= last {
				err = errors.New("the token has not grown")
			}
			if err == nil {
				last = lease.Token()
				err = lease.Release(context.Background())
			}
			if err != nil {
				failed <- err
				return
			}
			rounds++
		}
		failed <- nil
	}()
	time.Sleep(300 * time.Millisecond)
	leader, err := cluster.LeaderNow(within(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(leader.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err = cluster.LeaderNow(within(t, 60*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	done.Store(true)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Log("rounds", rounds)
	if err := kept.Err(); err != nil {
		t.Error(err)
	}
	// Every grant was released once, and nothing waits.
	info, err := client.Get(within(t, 30*time.Second), "churn")
	if err != nil || info.Holder != nil || info.Waiters != 0 || info.Floor != last {
		t.Errorf("%+v, last token %d: %v", info, last, err)
	}
}

// The stream notices a silent member only while something is asked on it, and a list is asked beside it.
func TestAReadOfASilentMemberIsAskedOfAnother(t *testing.T) {
	cluster := ownCluster(t, 3)
	client := connect(t, cluster)
	if _, err := client.List(within(t, 10*time.Second), ""); err != nil {
		t.Fatal(err)
	}
	leader, err := cluster.LeaderNow(within(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(leader.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := client.List(t.Context(), ""); err != nil {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestWithoutAQuorumTheOutcomeIsUnknownAndTheLeaseEndsInTime(t *testing.T) {
	cluster := ownCluster(t, 3)
	client := connect(t, cluster, ringfence.WithRequestTimeout(time.Second))
	s := session(t, client, 3*time.Second)
	lease := acquire(t, s, "held")
	for _, node := range cluster.Nodes {
		// Stopped, not killed: connections stay open, and nothing is answered.
		if err := syscall.Kill(node.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	stopped := time.Now()
	_, err := s.TryAcquire(t.Context(), "other")
	if !errors.Is(err, ringfence.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a request that was sent and never answered:", err)
	}
	if !lease.Valid() {
		t.Error("lost before its window has passed")
	}
	eventually(t, 3*time.Second, "jeopardy", s.InJeopardy)
	<-lease.Lost()
	if took := time.Since(stopped); took > 3*time.Second {
		t.Errorf("believed in for %v after the last answer, with a TTL of 3 s", took)
	}
	if err := lease.Err(); !errors.Is(err, ringfence.ErrLost) {
		t.Error(err)
	}
	for _, node := range cluster.Nodes {
		if err := syscall.Kill(node.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	// The same program goes on, in a new session; what was asked for meanwhile keeps no one waiting.
	deadline := time.Now().Add(60 * time.Second)
	for _, name := range []string{"held", "other"} {
		for {
			next, err := client.Lock(within(t, 20*time.Second), name, ringfence.SessionOptions{TTL: 3 * time.Second})
			if err == nil {
				if name == "held" && next.Token() <= lease.Token() {
					t.Error(next, lease)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(name, err)
			}
		}
	}
	if lease.Valid() || s.Valid() {
		t.Error("what was lost is believed in again")
	}
}

func TestAnotherClusterEndsBelief(t *testing.T) {
	before, err := testnode.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			before.Stop()
		}
	}()
	after := ownCluster(t, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var target atomic.Value
	target.Store(before.Endpoints[0])
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target.Load().(string))
			if err != nil {
				_ = near.Close()
				continue
			}
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		}
	}()
	client, err := ringfence.Connect(within(t, 30*time.Second), []string{listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	lease := acquire(t, session(t, client, time.Minute), "moved")
	target.Store(after.Endpoints[0])
	before.Stop()
	stopped = true
	select {
	case <-lease.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("a lease of another cluster is believed in")
	}
	if !errors.Is(lease.Err(), ringfence.ErrClusterChanged) {
		t.Error(lease.Err())
	}
	acquire(t, session(t, client, 2*time.Second), "moved")
}

func TestByTheSocketOfANode(t *testing.T) {
	client, err := ringfence.Connect(within(t, 30*time.Second), []string{"unix:" + sharedCluster(t).Socket("n1")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	acquire(t, session(t, client, 2*time.Second), freshName(t))
}

func TestNobodyListens(t *testing.T) {
	_, err := ringfence.Connect(within(t, 500*time.Millisecond), []string{"127.0.0.1:1"})
	if !errors.Is(err, ringfence.ErrUnavailable) {
		t.Error(err)
	}
}
