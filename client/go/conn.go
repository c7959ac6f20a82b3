package ringfence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"ringfence.io/client/go/internal/pb"
)

const (
	// messageBytesMax is the greatest message that is taken from a server.
	messageBytesMax = 8 << 20
	// batchFramesMax and batchBytesMax are below what a server takes in one message.
	batchFramesMax = 4096
	batchBytesMax  = 900 << 10
	// outboxFrames is how many frames wait for the stream before callers do.
	outboxFrames = 256
)

// conn is one stream to one member, and the requests that are on it.
type conn struct {
	endpoint string
	cc       *grpc.ClientConn
	stream   grpc.BidiStreamingClient[pb.ClientMessage, pb.ServerMessage]
	greeting *pb.Greeting
	token    string // The credential that was shown.
	ctx      context.Context
	cancel   context.CancelFunc
	outbox   chan *pb.ClientFrame
	// done is closed when the stream is over and all replies that came are handed out.
	done chan struct{}

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]*pending
}

// pending is a request on the stream.
type pending struct {
	reply chan *pb.ServerFrame // Has room for one.
	mode  replyMode
	since moment
}

// openConn connects to a member and waits for its greeting, until ctx is done.
func (t *transport) openConn(ctx context.Context, endpoint string) (*conn, error) {
	cc, err := grpc.NewClient(target(endpoint), t.dialOptions(endpoint)...)
	if err != nil {
		return nil, err
	}
	c := &conn{
		endpoint: endpoint,
		cc:       cc,
		outbox:   make(chan *pb.ClientFrame, outboxFrames),
		done:     make(chan struct{}),
		pending:  make(map[uint64]*pending),
	}
	if t.bearer != nil {
		c.token = t.bearer.current()
	}
	// The stream outlives ctx, which ends with the greeting.
	c.ctx, c.cancel = context.WithCancel(t.ctx)
	stop := context.AfterFunc(ctx, c.cancel)
	c.stream, err = pb.NewConnectionClient(cc).Stream(c.ctx)
	var first *pb.ServerMessage
	if err == nil {
		first, err = c.stream.Recv()
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		for _, frame := range first.GetFrames() {
			if c.greeting == nil {
				c.greeting = frame.GetGreeting()
			}
		}
		if c.greeting == nil || len(c.greeting.GetClusterId()) == 0 {
			err = errors.New("it belongs to no cluster yet")
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func target(endpoint string) string {
	if isLocal(endpoint) {
		return endpoint
	}
	// The name is resolved again for each connection.
	return "passthrough:///" + endpoint
}

func (t *transport) dialOptions(endpoint string) []grpc.DialOption {
	transportCredentials := insecure.NewCredentials()
	if t.tls != nil && !isLocal(endpoint) {
		transportCredentials = credentials.NewTLS(t.tls)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transportCredentials),
		grpc.WithNoProxy(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax)),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	}
	if t.bearer != nil {
		shown := credentials.PerRPCCredentials(t.bearer)
		if isLocal(endpoint) {
			shown = localBearer{t.bearer}
		}
		options = append(options, grpc.WithPerRPCCredentials(shown))
	}
	return options
}

func (c *conn) close() {
	c.cancel()
	_ = c.cc.Close()
}

// register takes a request in, and returns it with the frame to send.
func (c *conn) register(request *pb.ClientFrame, mode replyMode, now moment) (*pending, *pb.ClientFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	p := &pending{reply: make(chan *pb.ServerFrame, 1), mode: mode, since: now}
	c.pending[c.lastID] = p
	return p, &pb.ClientFrame{Id: c.lastID, Body: request.Body}
}

// noteCall takes in a call beside the stream, which has to be answered as a request on it: what is asked
// of a member that is silent is asked of another one. It returns what to forget when it is over.
func (c *conn) noteCall(now moment) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	c.pending[c.lastID] = &pending{reply: make(chan *pb.ServerFrame, 1), mode: modePrompt, since: now}
	return c.lastID
}

func (c *conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// answer hands a reply to the call that waits for it.
func (c *conn) answer(reply *pb.ServerFrame) {
	c.mu.Lock()
	p := c.pending[reply.GetId()]
	delete(c.pending, reply.GetId())
	c.mu.Unlock()
	if p != nil {
		p.reply <- reply
	}
}

// oldestUnanswered is since when the oldest request has been on the stream that should have been
// answered.
func (c *conn) oldestUnanswered() (oldest moment, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.mode != modeWaiting && (!any || p.since < oldest) {
			oldest, any = p.since, true
		}
	}
	return oldest, any
}

// send gives frames to the stream, many in one message, until the stream is over.
func (c *conn) send() {
	for {
		var frames []*pb.ClientFrame
		select {
		case frame := <-c.outbox:
			frames = append(frames, frame)
		case <-c.ctx.Done():
			return
		}
		size := proto.Size(frames[0])
		for more := true; more && len(frames) < batchFramesMax && size < batchBytesMax; {
			select {
			case frame := <-c.outbox:
				frames = append(frames, frame)
				size += proto.Size(frame)
			default:
				more = false
			}
		}
		if c.stream.Send(&pb.ClientMessage{Frames: frames}) != nil {
			// Recv says what it ended with.
			return
		}
	}
}

type received struct {
	message *pb.ServerMessage
	err     error
}

func (c *conn) receive(into chan<- received) {
	for {
		message, err := c.stream.Recv()
		select {
		case into <- received{message, err}:
		case <-c.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

const (
	// leaderConnectTimeout is how long the leader has to answer when another member, which serves as
	// well, names it.
	leaderConnectTimeout = 250 * time.Millisecond
	// stagger is the time between the first try of one candidate and that of the next.
	stagger = 200 * time.Millisecond
	// refusingMax is how long a member may only refuse: it may be cut off from the rest.
	refusingMax = time.Second
	// usefulStreamMin is how long a stream has to live to have been of use.
	usefulStreamMin = 500 * time.Millisecond
	// refusedRoundsMax is after how many rounds in which every member refused who this client is its
	// callers hear of it. In one round a member may lag that does not know a new token yet, or the file with the next
	// one is not read yet.
	refusedRoundsMax = 4
	// silenceMin is the least of how long a server may leave a request without any reply.
	silenceMin = 200 * time.Millisecond
)

// run keeps one good stream open until the client is closed.
func (t *transport) run() {
	defer close(t.stopped)
	short := 0
	for {
		c := t.establish()
		if c == nil {
			t.disconnected(nil, "the client was closed")
			return
		}
		since := t.now()
		t.connected(c)
		t.log.Debug("connected", "endpoint", c.endpoint)
		monitor := monitor{t: t, c: c, lastReceived: since}
		why, failed := monitor.run()
		t.disconnected(c, c.endpoint+": "+why)
		t.log.Debug("disconnected", "endpoint", c.endpoint, "why", why)
		now := t.now()
		if failed {
			t.endpoints.markFailed(c.endpoint, now)
		}
		// The first short stream is followed by another at once, since leaders die; later ones after
		// pauses, or a server that breaks every stream would be connected to as fast as it can take it.
		if short++; now.sub(since) >= usefulStreamMin {
			short = 0
		}
		if short >= 2 {
			pauseFor(t.ctx, retryPause(short-2, 0))
		}
	}
}

// establish connects to a member, the leader if it can be reached; nil if the client was closed.
func (t *transport) establish() *conn {
	adoptOther := false
	refusedRounds := 0
	for tries := 0; t.ctx.Err() == nil; tries++ {
		winner, errs := t.race(t.endpoints.candidates(t.now()), tries)
		if winner != nil {
			err := t.accept(winner, adoptOther)
			if err == nil {
				return t.preferLeader(winner)
			}
			// Adopted if a second round finds no node of the cluster we knew: one round may hit a
			// single misconfigured or restored node while the others cannot be reached for a moment.
			adoptOther = tries > 0
			t.endpoints.markFailed(winner.endpoint, t.now())
			winner.close()
			errs = append(errs, fmt.Errorf("%s: %w", winner.endpoint, err))
		}
		refusal := refusalOfWho(errs)
		if refusal != nil {
			refusedRounds++
			t.bearer.refused()
		} else {
			refusedRounds = 0
		}
		if refusedRounds < refusedRoundsMax {
			refusal = nil
		}
		t.unreachable(errors.Join(errs...), refusal)
		pauseFor(t.ctx, retryPause(tries, 0))
	}
	return nil
}

// race tries the candidates, each a little after the one before, and returns the first that greets.
func (t *transport) race(candidates []string, tries int) (*conn, []error) {
	timeout := t.connectTimeout << min(tries, 2)
	ctx, cancel := context.WithTimeout(t.ctx, timeout+time.Duration(len(candidates))*stagger)
	defer cancel()
	type outcome struct {
		endpoint string
		c        *conn
		err      error
	}
	outcomes := make(chan outcome, len(candidates))
	next, running := 0, 0
	start := func() {
		endpoint := candidates[next]
		next, running = next+1, running+1
		go func() {
			own, done := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no greeting within %v", timeout))
			defer done()
			c, err := t.openConn(own, endpoint)
			if err != nil && own.Err() != nil {
				err = context.Cause(own)
			}
			outcomes <- outcome{endpoint, c, err}
		}()
	}
	start()
	var errs []error
	for running > 0 {
		var later <-chan time.Time
		if next < len(candidates) {
			later = time.After(stagger)
		}
		select {
		case <-later:
			start()
		case o := <-outcomes:
			running--
			if o.err == nil {
				// The losers are given up, and closed where they have greeted all the same.
				go func(left int) {
					for range left {
						if o := <-outcomes; o.c != nil {
							o.c.close()
						}
					}
				}(running)
				return o.c, errs
			}
			if ctx.Err() == nil || t.ctx.Err() == nil {
				t.endpoints.markFailed(o.endpoint, t.now())
			}
			errs = append(errs, fmt.Errorf("%s: %w", o.endpoint, o.err))
			if next < len(candidates) {
				start()
			}
		}
	}
	return nil, errs
}

// accept says whether to talk to the cluster that greeted.
func (t *transport) accept(c *conn, adoptOther bool) error {
	cluster := c.greeting.GetClusterId()
	t.mu.Lock()
	other := t.cluster != nil && !bytes.Equal(t.cluster, cluster)
	t.mu.Unlock()
	if other && !adoptOther && !t.callbacks.idle() {
		return errors.New("it belongs to another cluster than before")
	}
	t.belongTo(cluster, c.greeting.GetClusterTimeMs())
	t.endpoints.markGreeted(c.endpoint)
	return nil
}

// preferLeader goes to the leader that the greeting names, if it answers quickly.
func (t *transport) preferLeader(c *conn) *conn {
	leader, worth := t.endpoints.hint(c.greeting.GetLeaderClientAddress(), c.endpoint, t.now())
	if !worth {
		return c
	}
	ctx, cancel := context.WithTimeout(t.ctx, leaderConnectTimeout)
	defer cancel()
	direct, err := t.openConn(ctx, leader)
	if err == nil && bytes.Equal(direct.greeting.GetClusterId(), c.greeting.GetClusterId()) {
		t.sawClusterTime(direct.greeting.GetClusterTimeMs())
		t.endpoints.markGreeted(leader)
		c.close()
		return direct
	}
	if err == nil {
		direct.close()
	}
	// A leader that has just died is named for seconds: no hint of that time costs another detour.
	t.endpoints.markFailed(leader, t.now())
	return c
}

// monitor hands replies out, and notices when a stream is of no use any more.
type monitor struct {
	t             *transport
	c             *conn
	lastReceived  moment
	refusingSince moment
	refusing      bool
}

// run returns why the stream is over, and whether its address is to be avoided for a while.
func (m *monitor) run() (why string, failed bool) {
	inbound := make(chan received)
	go m.c.send()
	go m.c.receive(inbound)
	// When to look next is not put off by replies: there may be another token to show.
	lookAt := time.Now().Add(m.t.silenceMax() / 4)
	for {
		pause := min(time.Until(lookAt), m.t.silenceMax()/4)
		look := time.NewTimer(pause)
		select {
		case got := <-inbound:
			look.Stop()
			switch {
			case errors.Is(got.err, io.EOF):
				return "the server ended it", true
			case got.err != nil:
				return got.err.Error(), true
			}
			if why, failed := m.onMessage(got.message); why != "" {
				return why, failed
			}
		case <-look.C:
			lookAt = time.Now().Add(m.t.silenceMax() / 4)
			if m.t.bearer != nil && m.t.bearer.current() != m.c.token {
				return "there is another token to show", false
			}
			if asked, any := m.c.oldestUnanswered(); any {
				if silent := m.t.now().sub(max(asked, m.lastReceived)); silent >= m.t.silenceMax() {
					return fmt.Sprintf("no reply for %v", silent), true
				}
			}
		case <-m.c.ctx.Done():
			look.Stop()
			return "the client was closed", false
		}
	}
}

func (m *monitor) onMessage(message *pb.ServerMessage) (why string, failed bool) {
	now := m.t.now()
	m.lastReceived = now
	answers, inVain := 0, 0
	var leader string
	leaving := false
	for _, frame := range message.GetFrames() {
		if notice := frame.GetGoingAway(); notice != nil {
			leaving = true
			m.t.endpoints.hint(notice.GetLeaderClientAddress(), m.c.endpoint, now)
			continue
		}
		if frame.GetId() == 0 {
			continue
		}
		m.t.sawClusterTime(clusterTimeOf(frame))
		refusal := frame.GetRefusal()
		if refusal == nil {
			refusal = frame.GetKeepAlive().GetRefusal()
		}
		answers++
		if refusal != nil {
			known := refusalOfWire(refusal)
			if known != nil && known.Reason == ErrUnauthenticated {
				m.t.bearer.refused()
			}
			if known != nil && known.meaning() != meansAnswer {
				inVain++
				if named := known.Details["leader"]; named != "" {
					leader = named
				}
			}
		}
		m.c.answer(frame)
	}
	// Replies are handed out first: those calls need no second try.
	if leaving {
		return "the server is stopping", true
	}
	if answers > inVain {
		m.refusing = false
	}
	if leader != "" {
		if named, worth := m.t.endpoints.hint(leader, m.c.endpoint, now); worth {
			return "the leader is " + named, false
		}
	}
	if inVain > 0 {
		if !m.refusing {
			m.refusing, m.refusingSince = true, now
		}
		if now.sub(m.refusingSince) > refusingMax {
			return "it only refuses", true
		}
	}
	return "", false
}

// clusterTimeOf is the cluster time that a reply carries; 0 if it carries none.
func clusterTimeOf(frame *pb.ServerFrame) uint64 {
	type timed interface{ GetClusterTimeMs() uint64 }
	var reply timed
	switch body := frame.GetBody().(type) {
	case *pb.ServerFrame_Greeting:
		reply = body.Greeting
	case *pb.ServerFrame_Open:
		reply = body.Open
	case *pb.ServerFrame_KeepAlive:
		reply = body.KeepAlive
	case *pb.ServerFrame_Close:
		reply = body.Close
	case *pb.ServerFrame_Acquire:
		reply = body.Acquire
	case *pb.ServerFrame_Cancel:
		reply = body.Cancel
	case *pb.ServerFrame_Release:
		reply = body.Release
	case *pb.ServerFrame_Transfer:
		reply = body.Transfer
	case *pb.ServerFrame_Get:
		reply = body.Get.GetAt()
	case *pb.ServerFrame_Check:
		reply = body.Check.GetAt()
	default:
		return 0
	}
	return reply.GetClusterTimeMs()
}
