package ringfence

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.io/client/go/internal/pb"
)

// A session that is opened while the client is closed would live until its TTL, and Close would not say so.
func TestCloseWaitsForASessionThatIsBeingOpened(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var opens atomic.Int32
	server := &scripted{}
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if frame.GetOpen() == nil || opens.Add(1) == 1 {
			return false
		}
		go func() {
			close(arrived)
			<-goOn
			reply(&pb.ServerFrame{Body: &pb.ServerFrame_Open{Open: &pb.OpenResponse{Session: 2, TtlMs: 60_000}}})
		}()
		return true
	}
	first, _ := server.start(t, time.Minute)
	client := first.client
	opened, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.OpenSession(context.Background(), SessionOptions{TTL: time.Minute})
		opened <- err
	}()
	<-arrived
	go func() { closed <- client.Close(context.Background()) }()
	until(t, "the close has begun", func() bool { return len(sent[*pb.ClientFrame_Close](server)) == 1 })
	if _, err := client.OpenSession(t.Context(), SessionOptions{}); !errors.Is(err, ErrClosed) {
		t.Error("opened behind the close:", err)
	}
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-opened; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for _, one := range sent[*pb.ClientFrame_Close](server) {
		if one.Close.GetSession().GetSession() == 2 {
			return
		}
	}
	t.Error("session 2 is left behind")
}

func TestCloseSaysThatASessionMayHaveBeenOpened(t *testing.T) {
	var opens atomic.Int32
	server := &scripted{}
	server.answer = func(frame *pb.ClientFrame, _ func(*pb.ServerFrame)) bool {
		return frame.GetOpen() != nil && opens.Add(1) > 1
	}
	first, _ := server.start(t, time.Minute)
	go func() { _, _ = first.client.OpenSession(context.Background(), SessionOptions{}) }()
	until(t, "it is asked for", func() bool { return opens.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := first.client.Close(ctx); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Two campaigns of one elector share its session: the one that opens it holds up no other longer than that
// one's context lasts.
func TestACampaignEndsWithItsContextWhileAnotherOpensTheSession(t *testing.T) {
	var opens atomic.Int32
	server := &scripted{}
	server.answer = func(frame *pb.ClientFrame, _ func(*pb.ServerFrame)) bool {
		return frame.GetOpen() != nil && opens.Add(1) > 1
	}
	first, _ := server.start(t, time.Minute)
	elector, err := first.client.NewElector(ElectorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = elector.Lead(t.Context(), "a") }()
	until(t, "it is asked for", func() bool { return opens.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err = elector.Lead(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := elector.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Error("it took", took)
	}
}

func TestATTLThatNoClusterGrantsIsNotBelieved(t *testing.T) {
	offered := uint64(0)
	server := &scripted{}
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if frame.GetOpen() == nil || offered == 0 {
			return false
		}
		reply(&pb.ServerFrame{Body: &pb.ServerFrame_Open{Open: &pb.OpenResponse{Session: 2, TtlMs: offered}}})
		return true
	}
	first, _ := server.start(t, time.Minute)
	for _, offered = range []uint64{86_400_001, 1 << 63, 1<<64 - 1} {
		if session, err := first.client.OpenSession(t.Context(), SessionOptions{}); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("a TTL of %d ms: %v %v", offered, session, err)
		}
	}
	offered = 86_400_000
	if session, err := first.client.OpenSession(t.Context(), SessionOptions{}); err != nil || session.TTL() != 24*time.Hour {
		t.Error(session, err)
	}
}
