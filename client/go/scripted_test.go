package ringfence

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"ringfence.io/client/go/internal/pb"
)

// scripted is a server that answers as a test says, at moments that no real node can be brought to. It
// opens session 1 and acknowledges keep-alives unasked.
type scripted struct {
	pb.UnimplementedConnectionServer
	// answer returns the reply, or nil for the standard one.
	answer func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) (handled bool)

	// admits says whether a stream with this credential is taken; nil takes all.
	admits func(credential string) error

	mu      sync.Mutex
	streams int
	shown   []string // The credential of each stream.
	seen    []*pb.ClientFrame
	drop    func() // Breaks the present stream.
}

func (s *scripted) Stream(stream grpc.BidiStreamingServer[pb.ClientMessage, pb.ServerMessage]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s.mu.Lock()
	s.streams++
	credential := strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), " ")
	s.shown = append(s.shown, credential)
	s.drop = cancel
	s.mu.Unlock()
	if s.admits != nil {
		if err := s.admits(credential); err != nil {
			return err
		}
	}
	var sending sync.Mutex
	send := func(frame *pb.ServerFrame) {
		sending.Lock()
		defer sending.Unlock()
		_ = stream.Send(&pb.ServerMessage{Frames: []*pb.ServerFrame{frame}})
	}
	send(&pb.ServerFrame{Body: &pb.ServerFrame_Greeting{Greeting: &pb.Greeting{ClusterId: make([]byte, 16), ClusterTimeMs: 1}}})
	go func() {
		defer cancel()
		for {
			message, err := stream.Recv()
			// What arrives behind a break has no answer.
			if err != nil || ctx.Err() != nil {
				return
			}
			for _, frame := range message.GetFrames() {
				s.mu.Lock()
				s.seen = append(s.seen, frame)
				s.mu.Unlock()
				if s.answer(frame, func(reply *pb.ServerFrame) {
					reply.Id = frame.GetId()
					send(reply)
				}) {
					continue
				}
				reply := &pb.ServerFrame{Id: frame.GetId()}
				switch body := frame.GetBody().(type) {
				case *pb.ClientFrame_Open:
					reply.Body = &pb.ServerFrame_Open{Open: &pb.OpenResponse{Session: 1, TtlMs: body.Open.GetTtlMs()}}
				case *pb.ClientFrame_KeepAlive:
					reply.Body = &pb.ServerFrame_KeepAlive{KeepAlive: &pb.KeepAliveResponse{}}
				case *pb.ClientFrame_Acquire:
					reply.Body = granted(body.Acquire, 7)
				case *pb.ClientFrame_Release:
					reply.Body = &pb.ServerFrame_Release{Release: &pb.ReleaseResponse{}}
				case *pb.ClientFrame_Cancel:
					reply.Body = &pb.ServerFrame_Cancel{Cancel: &pb.CancelResponse{Result: pb.CancelResponse_VOIDED}}
				case *pb.ClientFrame_Close:
					reply.Body = &pb.ServerFrame_Close{Close: &pb.CloseResponse{}}
				}
				send(reply)
			}
		}
	}()
	<-ctx.Done()
	return nil
}

func granted(request *pb.AcquireRequest, token uint64) *pb.ServerFrame_Acquire {
	return &pb.ServerFrame_Acquire{Acquire: &pb.AcquireResponse{
		Grant: &pb.Grant{Name: request.GetName(), Token: token, Session: 1, Request: request.GetNumber()}}}
}

func refused(reason pb.Reason) *pb.ServerFrame {
	return &pb.ServerFrame{Body: &pb.ServerFrame_Refusal{Refusal: &pb.Refusal{Reason: reason, Message: "as the test says"}}}
}

func lost(token uint64) *pb.ServerFrame {
	return &pb.ServerFrame{Body: &pb.ServerFrame_KeepAlive{KeepAlive: &pb.KeepAliveResponse{Lost: []*pb.SessionLosses{{
		Session: 1, Grants: []*pb.LostGrant{{Name: "a", Token: token, Cause: &pb.EndCause{Kind: pb.EndCause_REVOKED}}}}}}}}
}

// sent are the requests of one kind that arrived.
func sent[T any](s *scripted) (found []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, frame := range s.seen {
		if body, ok := frame.GetBody().(T); ok {
			found = append(found, body)
		}
	}
	return found
}

func (s *scripted) breakStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

// steppedClock is a clock that a test moves on.
type steppedClock struct {
	mu   sync.Mutex
	skip time.Duration
	real clock
}

func (c *steppedClock) now() moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.real.now().add(c.skip)
}

func (c *steppedClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skip += d
}

func (s *scripted) start(t *testing.T, ttl time.Duration, with ...Option) (*Session, *steppedClock) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.answer == nil {
		s.answer = func(*pb.ClientFrame, func(*pb.ServerFrame)) bool { return false }
	}
	server := grpc.NewServer()
	pb.RegisterConnectionServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	stepped := &steppedClock{real: newClock()}
	with = append(with, WithRequestTimeout(5*time.Second), func(o *options) error {
		o.clock = stepped
		return nil
	})
	client, err := Connect(t.Context(), []string{listener.Addr().String()}, with...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Close(ctx)
	})
	session, err := client.OpenSession(t.Context(), SessionOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return session, stepped
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 10 s:", what)
		}
	}
}

func TestBeliefEndsBeforeTheReleaseLeaves(t *testing.T) {
	var lease *Lease
	believed := make(chan bool, 3)
	server := &scripted{}
	server.answer = func(frame *pb.ClientFrame, _ func(*pb.ServerFrame)) bool {
		switch frame.GetBody().(type) {
		case *pb.ClientFrame_Release, *pb.ClientFrame_Transfer, *pb.ClientFrame_Close:
			believed <- lease.Valid()
		}
		return false
	}
	session, _ := server.start(t, 30*time.Second)
	for _, end := range []func(){
		func() { _ = lease.Release(t.Context()) },
		func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _ = lease.Transfer(ctx, 0) // Answered with nonsense.
		},
		func() { _ = session.Close(t.Context()) },
	} {
		var err error
		if lease, err = session.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		end()
		if <-believed {
			t.Error("believed in when the request arrived")
		}
		until(t, "nothing is unsettled", func() bool {
			session.mu.Lock()
			defer session.mu.Unlock()
			return len(session.endings) == 0
		})
		for len(believed) > 0 {
			<-believed
		}
	}
}

func TestARequestIsRepeatedUnderItsNumberUntilItsOutcomeIsKnown(t *testing.T) {
	server := &scripted{}
	tries := 0
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if _, ok := frame.GetBody().(*pb.ClientFrame_Acquire); !ok {
			return false
		}
		switch tries++; tries {
		case 1:
			reply(refused(pb.Reason_REASON_UNAVAILABLE))
		case 2:
			reply(refused(pb.Reason_REASON_OUTCOME_UNKNOWN))
		case 3:
			go server.breakStream() // It may have been done.
		default:
			return false
		}
		return true
	}
	session, _ := server.start(t, 30*time.Second)
	if _, err := session.Acquire(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	asked := sent[*pb.ClientFrame_Acquire](server)
	if len(asked) != 4 {
		t.Error(len(asked))
	}
	for _, one := range asked {
		if one.Acquire.GetNumber() != 1 {
			t.Error("another number:", one.Acquire.GetNumber())
		}
	}
}

func TestARefusalOfOneTrySaysNothingOfTheOneBefore(t *testing.T) {
	server := &scripted{}
	tries := 0
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if _, ok := frame.GetBody().(*pb.ClientFrame_Acquire); !ok {
			return false
		}
		if tries++; tries == 1 {
			go server.breakStream()
		} else {
			reply(refused(pb.Reason_REASON_LIMIT))
		}
		return true
	}
	session, _ := server.start(t, 30*time.Second)
	if _, err := session.TryAcquire(t.Context(), "a"); !errors.Is(err, ErrOutcomeUnknown) {
		t.Error(err)
	}
	// It is taken back.
	until(t, "a cancel", func() bool {
		cancels := sent[*pb.ClientFrame_Cancel](server)
		return len(cancels) == 1 && cancels[0].Cancel.GetTarget() == 1
	})
	tries = 1
	if _, err := session.TryAcquire(t.Context(), "b"); !errors.Is(err, ErrLimit) {
		t.Error("the only try was refused:", err)
	}
}

func TestAGrantWhoseEndWasReportedBeforeItCameIsNotBelieved(t *testing.T) {
	server := &scripted{}
	listed := make(chan struct{})
	var once sync.Once
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		switch body := frame.GetBody().(type) {
		case *pb.ClientFrame_Acquire:
			// The keep-alives tell of its end first.
			go func() {
				<-listed
				time.Sleep(200 * time.Millisecond)
				reply(&pb.ServerFrame{Body: granted(body.Acquire, 9)})
			}()
			return true
		case *pb.ClientFrame_KeepAlive:
			if len(body.KeepAlive.GetAcknowledged()) > 0 {
				return false
			}
			reply(lost(9))
			once.Do(func() { close(listed) })
			return true
		}
		return false
	}
	session, _ := server.start(t, time.Second)
	lease, err := session.Acquire(t.Context(), "a")
	if !errors.Is(err, ErrLost) || lease != nil {
		t.Fatal("believed in:", lease, err)
	}
	until(t, "the loss is acknowledged, and the grant released", func() bool {
		acknowledged := false
		for _, one := range sent[*pb.ClientFrame_KeepAlive](server) {
			for _, told := range one.KeepAlive.GetAcknowledged() {
				acknowledged = acknowledged || told.GetToken() == 9 && told.GetSession() == 1
			}
		}
		releases := sent[*pb.ClientFrame_Release](server)
		return acknowledged && len(releases) == 1 && releases[0].Release.GetToken() == 9
	})
}

func TestOnlyAKeepAliveStretchesBeliefAndFromItsSend(t *testing.T) {
	server := &scripted{}
	answerKeepAlives := make(chan struct{})
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if _, ok := frame.GetBody().(*pb.ClientFrame_KeepAlive); ok {
			go func() {
				<-answerKeepAlives
				reply(&pb.ServerFrame{Body: &pb.ServerFrame_KeepAlive{KeepAlive: &pb.KeepAliveResponse{}}})
			}()
			return true
		}
		return false
	}
	session, stepped := server.start(t, 30*time.Second)
	lease, err := session.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the first keep-alive of the stream", func() bool { return len(sent[*pb.ClientFrame_KeepAlive](server)) > 0 })
	opened := session.window.sent // No keep-alive is answered: nobody writes it.
	for range 20 {
		other, err := session.TryAcquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		_ = other.Release(t.Context())
	}
	session.mu.Lock()
	if session.window.sent != opened {
		t.Error("an acquire's answer moved the window")
	}
	session.mu.Unlock()
	// What was sent a while ago is acknowledged now, when the window has passed.
	stepped.step(29500 * time.Millisecond)
	close(answerKeepAlives)
	if lease.Valid() {
		t.Error("valid behind its window")
	}
	time.Sleep(100 * time.Millisecond)
	if lease.Valid() || session.Valid() || !errors.Is(lease.Err(), ErrLost) {
		t.Error("a late answer revived it")
	}
	until(t, "the session is closed at the cluster", func() bool { return len(sent[*pb.ClientFrame_Close](server)) > 0 })
}

func TestOneKeepAliveForAllSessionsAndLeases(t *testing.T) {
	server := &scripted{}
	token := uint64(0)
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		body, ok := frame.GetBody().(*pb.ClientFrame_Acquire)
		if ok {
			token++
			reply(&pb.ServerFrame{Body: granted(body.Acquire, token)})
		}
		return ok
	}
	session, _ := server.start(t, 600*time.Millisecond)
	var leases []*Lease
	for _, name := range []string{"a", "b", "c"} {
		lease, err := session.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	before := len(sent[*pb.ClientFrame_KeepAlive](server))
	time.Sleep(time.Second)
	if count := len(sent[*pb.ClientFrame_KeepAlive](server)) - before; count < 3 || count > 12 {
		t.Error(count, "keep-alives in five thirds of the TTL")
	}
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestATokensFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	b, err := newBearer("", file, true)
	if err != nil {
		t.Fatal(err)
	}
	write("second")
	if b.current() != "first" {
		t.Error("read at each call")
	}
	const another, same = true, false
	look := func(changes bool) {
		t.Helper()
		b.mu.Lock()
		before, token := time.Now(), b.token
		b.read = b.read.Add(-tokenLook)
		b.mu.Unlock()
		until(t, "it is read again", func() bool {
			shown := b.current()
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.read.After(before) && (shown != token) == changes
		})
	}
	look(another)
	if b.current() != "second" {
		t.Error("not read again")
	}
	// A file that is being replaced leaves the token before in place.
	write("")
	look(same)
	if b.current() != "second" || !b.RequireTransportSecurity() {
		t.Error("an empty file took the token away")
	}
	for _, wrong := range []string{"", "a b", "ü", string(make([]byte, 9000))} {
		if _, err := newBearer(wrong, "", false); err == nil {
			t.Errorf("%.10q was taken", wrong)
		}
	}
}
