package ringfence

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ringfence.io/client/go/internal/pb"
)

const (
	pauseMin = 20 * time.Millisecond
	pauseMax = 500 * time.Millisecond
)

// retryPause is the pause before another try: doubling, with jitter, so that a thousand clients that
// lost their leader together do not come back together. Never less than what the refusal asks.
func retryPause(tries int, asked time.Duration) time.Duration {
	doubled := min(pauseMin<<min(tries, 8), pauseMax)
	return max(time.Duration(float64(doubled)*(0.5+rand.Float64()/2)), asked)
}

// pauseFor sleeps for d, or until ctx is done, and says whether ctx is not.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// replyMode is how a request is treated.
type replyMode int

const (
	modePrompt  replyMode = iota // Answered at once, and repeated until it is.
	modeWaiting                  // May rightly be answered late: it waits in a queue. Repeated, too.
	modeOnce                     // Not repeated: a newer one takes its place.
)

// sessionsBelow is what the transport has to know of the sessions that use it.
type sessionsBelow interface {
	idle() bool
	shortestTTL() time.Duration
	clusterChanged()
}

// transport is the way to the cluster that all sessions of a client share.
type transport struct {
	clock          clock
	log            *journal
	tls            *tls.Config
	bearer         *bearer
	connectTimeout time.Duration
	silence        time.Duration
	endpoints      *endpointSelector
	callbacks      sessionsBelow
	ctx            context.Context
	cancel         context.CancelFunc
	stopped        chan struct{}

	mu          sync.Mutex
	current     *conn
	changed     chan struct{} // Closed at each change of what stands below.
	lastErr     error
	refusal     *Refusal // If all members have refused who this client is, again and again.
	cluster     []byte
	clusterTime uint64
}

func (t *transport) now() moment { return t.clock.now() }

// silenceMax is how long the server may leave what was asked without any reply: a quarter of the
// shortest TTL leaves the time to ask another member before the window ends.
func (t *transport) silenceMax() time.Duration {
	longest := t.silence
	if shortest := t.callbacks.shortestTTL(); shortest > 0 {
		longest = min(longest, shortest/4)
	}
	return max(longest, silenceMin)
}

func (t *transport) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *transport) connected(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current, t.lastErr, t.refusal = c, nil, nil
	t.announce()
}

func (t *transport) disconnected(c *conn, why string) {
	t.mu.Lock()
	t.current, t.lastErr, t.refusal = nil, errors.New(why), nil
	t.announce()
	t.mu.Unlock()
	if c != nil {
		c.close()
		close(c.done)
	}
}

// unreachable says that a round of connections brought nothing; refusal is why waiting would not help.
func (t *transport) unreachable(err error, refusal *Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastErr, t.refusal = err, refusal
	t.announce()
}

// link returns the present stream, if there is one, and what is closed when that changes.
func (t *transport) link() (c *conn, changed <-chan struct{}, lastErr error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current, t.changed, t.lastErr
}

// waitForConn waits for a stream until ctx is done.
func (t *transport) waitForConn(ctx context.Context) (*conn, error) {
	for {
		c, changed, lastErr := t.link()
		if c != nil {
			return c, nil
		}
		if t.ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", unavailable("nothing is sent any more"), ErrClosed)
		}
		if refusal := t.refusedForWho(); refusal != nil {
			return nil, refusal
		}
		select {
		case <-changed:
		case <-ctx.Done():
			why := "no connection before the deadline"
			if lastErr != nil {
				why = lastErr.Error()
			}
			return nil, fmt.Errorf("%w: %w", unavailable(why), ctx.Err())
		}
	}
}

func (t *transport) refusedForWho() *Refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusal
}

// refusalOfWho is the refusal among the errors of a round of connections if all of them are for who
// asks.
func refusalOfWho(errs []error) *Refusal {
	var last *Refusal
	for _, one := range errs {
		refusal := refusalOfStatus(one)
		if refusal == nil || refusal.Reason != ErrUnauthenticated && refusal.Reason != ErrPermissionDenied {
			return nil
		}
		last = refusal
	}
	return last
}

// belongTo says that this client talks to cluster from now on. Sessions of another one are lost.
func (t *transport) belongTo(cluster []byte, timeMs uint64) {
	t.mu.Lock()
	other := t.cluster != nil && !bytes.Equal(t.cluster, cluster)
	t.cluster = bytes.Clone(cluster)
	if other {
		t.clusterTime = 0
	}
	t.mu.Unlock()
	if other {
		t.callbacks.clusterChanged()
	}
	t.sawClusterTime(timeMs)
}

func (t *transport) sawClusterTime(ms uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clusterTime = max(t.clusterTime, ms)
}

func (t *transport) seenClusterTime() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clusterTime
}

// call sends a request, again and again under mode until it is answered or ctx is done, which has to
// have a deadline or an end. The moment is what the clock showed before the request was first given to
// a stream.
//
// An error says truly what is known of the request: it is a *Refusal, and only one that is neither
// ErrOutcomeUnknown nor what is said below it means that nothing was or will be done.
func (t *transport) call(ctx context.Context, request *pb.ClientFrame, mode replyMode) (*pb.ServerFrame, moment, error) {
	var (
		sent      moment
		isSent    bool
		maybeDone bool
		lastWhy   string
	)
	giveUp := func(open bool, cause error) error {
		if !open && !maybeDone {
			why := lastWhy
			if why == "" {
				why = "it was not sent"
			}
			return fmt.Errorf("%w: %w", unavailable(why), cause)
		}
		why := lastWhy
		if why == "" {
			why = "no reply before the deadline"
		}
		return fmt.Errorf("%w: %w", outcomeUnknown(why), cause)
	}
	for tries := 0; ; tries++ {
		c, err := t.waitForConn(ctx)
		if err != nil {
			if maybeDone {
				return nil, sent, giveUp(true, err)
			}
			return nil, sent, err
		}
		now := t.now()
		if !isSent {
			sent, isSent = now, true
		}
		p, frame := c.register(request, mode, now)
		select {
		case c.outbox <- frame:
		case <-c.done:
			c.forget(frame.GetId())
			if mode == modeOnce {
				return nil, sent, giveUp(true, errors.New("the stream broke"))
			}
			continue
		case <-ctx.Done():
			c.forget(frame.GetId())
			return nil, sent, giveUp(false, ctx.Err())
		}
		var reply *pb.ServerFrame
		select {
		case reply = <-p.reply:
		case <-ctx.Done():
			c.forget(frame.GetId())
			select {
			case reply = <-p.reply:
			default:
				return nil, sent, giveUp(true, ctx.Err())
			}
		case <-c.done:
			// It may have been answered just before.
			select {
			case reply = <-p.reply:
			default:
				maybeDone = true
				_, _, lastErr := t.link()
				if lastErr != nil {
					lastWhy = lastErr.Error()
				}
				if mode == modeOnce {
					return nil, sent, giveUp(true, errors.New("the stream broke"))
				}
				continue
			}
		}
		wire := reply.GetRefusal()
		if wire == nil {
			wire = reply.GetKeepAlive().GetRefusal()
		}
		if wire == nil {
			if answers(request, reply) {
				return reply, sent, nil
			}
			return nil, sent, unexpectedReply()
		}
		refusal := refusalOfWire(wire)
		if refusal == nil {
			// A reason of a newer cluster: repeating would bring the same.
			return nil, sent, outcomeUnknown(wire.GetMessage())
		}
		switch meaning := refusal.meaning(); {
		case meaning == meansAnswer && maybeDone && !coversEarlier(request, refusal):
			why := "an earlier try was sent, then one was refused: " + refusal.Error()
			return nil, sent, outcomeUnknown(why)
		case meaning == meansAnswer || mode == modeOnce:
			return nil, sent, refusal
		case meaning == meansOpen:
			maybeDone = true
		}
		lastWhy = refusal.Message
		if !t.pauseOnConn(ctx, c, retryPause(tries, refusal.RetryAfter)) {
			return nil, sent, giveUp(false, ctx.Err())
		}
	}
}

// pauseOnConn pauses; the pause ends early with the stream, since it was to spare the server of that
// one. It says whether ctx is not done.
func (t *transport) pauseOnConn(ctx context.Context, c *conn, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// coversEarlier says whether this refusal also says that no earlier try of the request was done.
func coversEarlier(request *pb.ClientFrame, refusal *Refusal) bool {
	switch request.GetBody().(type) {
	case *pb.ClientFrame_Get, *pb.ClientFrame_Check, *pb.ClientFrame_KeepAlive:
		return true
	case *pb.ClientFrame_Open, *pb.ClientFrame_Close:
		return refusal.coversEarlierTries(false)
	default:
		return refusal.coversEarlierTries(true)
	}
}

// answers says whether a reply of this kind can answer that request.
func answers(request *pb.ClientFrame, reply *pb.ServerFrame) bool {
	switch request.GetBody().(type) {
	case *pb.ClientFrame_Open:
		return reply.GetOpen() != nil
	case *pb.ClientFrame_KeepAlive:
		return reply.GetKeepAlive() != nil
	case *pb.ClientFrame_Close:
		return reply.GetClose() != nil
	case *pb.ClientFrame_Acquire:
		return reply.GetAcquire() != nil
	case *pb.ClientFrame_Cancel:
		return reply.GetCancel() != nil
	case *pb.ClientFrame_Release:
		return reply.GetRelease() != nil
	case *pb.ClientFrame_Transfer:
		return reply.GetTransfer() != nil
	case *pb.ClientFrame_Get:
		return reply.GetGet() != nil
	case *pb.ClientFrame_Check:
		return reply.GetCheck() != nil
	}
	return false
}

// unary makes a call beside the stream, on the same connection, and repeats it until it is answered or
// ctx is done. Repeating it must be harmless.
func unary[T any](ctx context.Context, t *transport, call func(context.Context, grpc.ClientConnInterface) (T, error)) (T, error) {
	var none T
	var maybeDone error
	for tries := 0; ; tries++ {
		c, err := t.waitForConn(ctx)
		if err != nil {
			if maybeDone != nil {
				err = fmt.Errorf("%w: %w", maybeDone, err)
			}
			return none, err
		}
		noted := c.noteCall(t.now())
		answer, err := call(ctx, c.cc)
		c.forget(noted)
		if err == nil {
			return answer, nil
		}
		refusal := refusalOfStatus(err)
		asked := time.Duration(0)
		switch {
		case refusal == nil:
			maybeDone = outcomeUnknown(err.Error())
			switch status.Code(err) {
			case codes.Unimplemented, codes.InvalidArgument, codes.OutOfRange, codes.Unauthenticated,
				codes.PermissionDenied, codes.DataLoss:
				// Without our details it comes from something that is no Ringfence server, or an older one.
				return none, maybeDone
			}
		case refusal.meaning() == meansAnswer && maybeDone != nil && !refusal.coversEarlierTries(false):
			return none, maybeDone
		case refusal.meaning() == meansAnswer:
			return none, refusal
		default:
			asked = refusal.RetryAfter
			if refusal.meaning() == meansOpen {
				maybeDone = refusal
			}
		}
		if !t.pauseOnConn(ctx, c, retryPause(tries, asked)) {
			if maybeDone != nil {
				return none, fmt.Errorf("%w: %w", maybeDone, ctx.Err())
			}
			return none, fmt.Errorf("%w: %w", refusal, ctx.Err())
		}
	}
}
