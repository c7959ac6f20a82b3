package ringfence

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"ringfence.io/client/go/internal/pb"
)

// A try that was sent, and then a refusal that speaks of one try alone: what became of the first one is
// unknown, so what ends a grant or a wait goes on.
func TestAnEndingGoesOnWhileItsOutcomeIsUnknown(t *testing.T) {
	for _, reason := range []pb.Reason{pb.Reason_REASON_LIMIT, pb.Reason_REASON_UNAUTHENTICATED} {
		server := &scripted{}
		tries := 0
		server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
			if _, ok := frame.GetBody().(*pb.ClientFrame_Release); !ok {
				return false
			}
			switch tries++; tries {
			case 1:
				go server.breakStream()
			case 2:
				reply(refused(reason))
			case 3:
				reply(&pb.ServerFrame{Body: &pb.ServerFrame_Check{Check: &pb.CheckResponse{}}}) // Makes no sense.
			default:
				return false
			}
			return true
		}
		session, _ := server.start(t, 30*time.Second)
		lease, err := session.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("%v: %v", reason, err)
		}
		if count := len(sent[*pb.ClientFrame_Release](server)); count != 4 {
			t.Errorf("%v: sent %d times", reason, count)
		}
	}
}

func TestACancelGoesOnWhileItsOutcomeIsUnknown(t *testing.T) {
	server := &scripted{}
	tries := 0
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		switch frame.GetBody().(type) {
		case *pb.ClientFrame_Acquire:
			return true // It waits.
		case *pb.ClientFrame_Cancel:
			switch tries++; tries {
			case 1:
				go server.breakStream()
			case 2:
				reply(refused(pb.Reason_REASON_LIMIT))
			default:
				reply(&pb.ServerFrame{Body: &pb.ServerFrame_Cancel{Cancel: &pb.CancelResponse{
					Result: pb.CancelResponse_GRANTED, Token: 9}}})
			}
			return true
		}
		return false
	}
	session, _ := server.start(t, 30*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if lease, err := session.Acquire(ctx, "a"); err == nil {
		t.Fatal(lease)
	}
	until(t, "the grant that crossed the cancel is released", func() bool {
		releases := sent[*pb.ClientFrame_Release](server)
		return len(releases) == 1 && releases[0].Release.GetToken() == 9
	})
}

func TestReleasingALockWithAContextThatIsDoneClosesItsSession(t *testing.T) {
	server := &scripted{}
	session, _ := server.start(t, 30*time.Second)
	for _, ends := range []func(context.Context, *Lease) error{
		func(ctx context.Context, lease *Lease) error { return lease.Release(ctx) },
		func(ctx context.Context, lease *Lease) error { return lease.Session().Close(ctx) },
	} {
		lease, err := session.client.Lock(t.Context(), "a", SessionOptions{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		before := len(sent[*pb.ClientFrame_Close](server))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ends(done, lease); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		until(t, "the session is closed", func() bool { return len(sent[*pb.ClientFrame_Close](server)) > before })
	}
}

func TestALoggerMayAskTheLease(t *testing.T) {
	server := &scripted{}
	var asked atomic.Pointer[Lease]
	var logged atomic.Int32
	logger := slog.New(slog.NewTextHandler(writerFunc(func(text []byte) (int, error) {
		if lease := asked.Load(); lease != nil {
			_ = lease.Valid()
			logged.Add(1)
		}
		return len(text), nil
	}), nil))
	session, stepped := server.start(t, 30*time.Second, WithLogger(logger))
	lease, err := session.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	asked.Store(lease)
	stepped.step(time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lease.Valid() {
			t.Error("valid behind its window")
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the clock is not asked while a logger writes")
	}
	until(t, "it is logged", func() bool { return logged.Load() > 0 })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// A stream on which replies come all the time, too, is opened again with another token.
func TestABusyStreamShowsANewToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := &scripted{}
	session, _ := server.start(t, 30*time.Second, WithTokenFile(file))
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if _, ok := frame.GetBody().(*pb.ClientFrame_Get); !ok {
			return false
		}
		reply(&pb.ServerFrame{Body: &pb.ServerFrame_Get{Get: &pb.GetResponse{}}})
		return true
	}
	if err := os.WriteFile(file, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := session.client.t.bearer
	b.mu.Lock()
	b.read = b.read.Add(-tokenLook)
	b.mu.Unlock()
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
		if _, err := session.client.Get(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		server.mu.Lock()
		shown := server.shown[len(server.shown)-1]
		server.mu.Unlock()
		if shown == "Bearer second" {
			return
		}
	}
	t.Error("the stream goes on with the token before")
}

// A file that is replaced just before its old token is refused is not waited for: the lease goes on, and
// no caller hears of a refusal.
func TestARefusedTokensFileIsReadAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	var good atomic.Value
	good.Store("Bearer first")
	server := &scripted{admits: func(credential string) error {
		if credential == good.Load() {
			return nil
		}
		var info []byte
		for number, text := range []string{1: "UNAUTHENTICATED", 2: "ringfence"} {
			if text != "" {
				info = protowire.AppendTag(info, protowire.Number(number), protowire.BytesType)
				info = protowire.AppendString(info, text)
			}
		}
		refusal := status.New(codes.Unauthenticated, "another token is expected").Proto()
		refusal.Details = append(refusal.Details, &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: info})
		return status.FromProto(refusal).Err()
	}}
	session, _ := server.start(t, 3*time.Second, WithTokenFile(file))
	lease, err := session.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(tokenLookMin)
	b := session.client.t.bearer
	b.mu.Lock()
	b.read = time.Now() // It was read a moment ago.
	b.mu.Unlock()
	if err := os.WriteFile(file, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	good.Store("Bearer second")
	server.breakStream()
	if err := lease.Release(t.Context()); err != nil {
		t.Error("while the next token is looked for:", err)
	}
	if other, err := session.Acquire(t.Context(), "b"); err != nil || !other.Valid() {
		t.Error(other, err)
	}
	// Where there is no better one callers hear of it soon.
	good.Store("Bearer third")
	server.breakStream()
	began := time.Now()
	if _, err := session.Acquire(t.Context(), "c"); !errors.Is(err, ErrUnauthenticated) && !errors.Is(err, ErrOutcomeUnknown) {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Error("told after", took)
	}
}

func TestATokenThatIsShownOverTLSIsTakenByALocalSocketToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &scripted{answer: func(*pb.ClientFrame, func(*pb.ServerFrame)) bool { return false }}
	service := grpc.NewServer()
	pb.RegisterConnectionServer(service, server)
	go func() { _ = service.Serve(listener) }()
	t.Cleanup(service.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	client, err := Connect(ctx, []string{"unix:" + path}, WithTLS(&tls.Config{}), WithToken("t"))
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close(ctx)
}

// A release that is under way closes its session, too: Close of the client does not cut it off.
func TestClosingAClientWaitsForTheClosesOfOthers(t *testing.T) {
	server := &scripted{}
	var answered atomic.Bool
	server.answer = func(frame *pb.ClientFrame, reply func(*pb.ServerFrame)) bool {
		if _, ok := frame.GetBody().(*pb.ClientFrame_Close); !ok {
			return false
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			answered.Store(true)
			reply(&pb.ServerFrame{Body: &pb.ServerFrame_Close{Close: &pb.CloseResponse{}}})
		}()
		return true
	}
	session, _ := server.start(t, 30*time.Second)
	client := session.client
	session.beginClose()
	for _, known := range client.list() {
		client.unregister(known)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !answered.Load() {
		t.Error("cut off")
	}
}
