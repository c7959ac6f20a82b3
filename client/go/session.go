package ringfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ringfence.io/client/go/internal/pb"
)

// DefaultTTL is how long a session outlives its last keep-alive unless its options say otherwise.
const DefaultTTL = 15 * time.Second

// ttlMax is the longest that a cluster's settings allow: an answer with more is none of a cluster.
const ttlMax = 24 * time.Hour

const (
	// openTries is how often a session is asked for under another id.
	openTries = 5
	secretLen = 16
)

// secret proves a session's requests. It stands behind a pointer, so that no printed structure shows it.
type secret [secretLen]byte

// SessionOptions is what a session is opened with.
type SessionOptions struct {
	// TTL is how long the session outlives its last keep-alive, in whole milliseconds, within the
	// cluster's bounds, normally 1 s to 5 min; 0 means DefaultTTL.
	TTL time.Duration
	// Identity is who the holder is, for people; at most 255 bytes.
	Identity string
	// RenewDeadline ends belief this long after the last acknowledged keep-alive was sent, where that
	// is sooner than the TTL allows; 0 means no such limit.
	RenewDeadline time.Duration
}

// Session is a liveness contract with the cluster: one keep-alive renews all its leases, and when it
// is lost, all of them are. It is kept alive until it is closed or lost.
type Session struct {
	client    *Client
	id        uint64
	secret    *secret
	identity  string
	ttl       time.Duration
	renewBase time.Duration
	// ctx ends with the session; its cause is the *Loss.
	ctx context.Context
	end context.CancelCauseFunc

	mu          sync.Mutex
	window      window
	lost        *Loss
	numbers     requestNumbers
	numberFreed chan struct{}     // Closed and replaced when a number is confirmed.
	grants      map[uint64]*Lease // Those that are believed in, by token.
	losses      losses
	due         moment // Of the next keep-alive.
	unanswered  int    // Keep-alives since the last acknowledgement.
	endings     map[string][]*ending
	inJeopardy  bool
}

// OpenSession opens a session and keeps it alive. If ctx ends first, a session that is opened all the
// same is closed again in the background.
func (c *Client) OpenSession(ctx context.Context, options SessionOptions) (*Session, error) {
	if options.TTL == 0 {
		options.TTL = DefaultTTL
	}
	if options.TTL < 0 || options.RenewDeadline < 0 {
		return nil, fmt.Errorf("ringfence: a session's times cannot be negative: TTL %v, renew deadline %v",
			options.TTL, options.RenewDeadline)
	}
	type outcome struct {
		session *Session
		err     error
	}
	opened := make(chan outcome)
	opening := c.beginOpening()
	if opening == nil {
		return nil, fmt.Errorf("ringfence: open a session: %w", ErrClosed)
	}
	started := c.inBackground(func(background context.Context) {
		limited, cancel := c.limited(background)
		defer cancel()
		session, err := c.open(limited, options)
		c.endOpening(opening)
		select {
		case opened <- outcome{session, err}:
		case <-ctx.Done():
			if session != nil {
				_ = session.Close(background)
			}
		case <-background.Done():
		}
	})
	if !started {
		c.endOpening(opening)
		return nil, fmt.Errorf("ringfence: open a session: %w", ErrClosed)
	}
	select {
	case o := <-opened:
		if o.err != nil {
			return nil, fmt.Errorf("ringfence: open a session: %w", o.err)
		}
		return o.session, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ringfence: open a session: %w", ctx.Err())
	case <-c.t.ctx.Done():
		return nil, fmt.Errorf("ringfence: open a session: %w", ErrClosed)
	}
}

func (c *Client) open(ctx context.Context, options SessionOptions) (*Session, error) {
	own := new(secret)
	if _, err := rand.Read(own[:]); err != nil {
		return nil, err
	}
	request := &pb.OpenRequest{
		Secret:   own[:],
		TtlMs:    proto.Uint64(uint64(options.TTL.Milliseconds())),
		Identity: options.Identity,
	}
	for tries := 1; ; tries++ {
		id := make([]byte, 16)
		if _, err := rand.Read(id); err != nil {
			return nil, err
		}
		// A new request: the one before may still stand in a batch.
		request = proto.CloneOf(request)
		request.Id = id
		request.SeenClusterTimeMs = proto.Uint64(c.t.seenClusterTime())
		reply, sent, err := c.t.call(ctx, &pb.ClientFrame{Body: &pb.ClientFrame_Open{Open: request}}, modePrompt)
		// The id is known and its session over: an earlier try opened it, its answer was lost, and no one kept
		// it alive.
		if errors.Is(err, ErrOpenIDUsed) && tries < openTries {
			continue
		}
		// A client that has asked nothing for a minute knows no newer cluster time. The refusal has no effect,
		// and shows the present one.
		if refusal := new(Refusal); errors.Is(err, ErrOpenTooOld) && errors.As(err, &refusal) && tries < openTries {
			c.t.sawClusterTime(refusal.number("now"))
			continue
		}
		if err != nil {
			return nil, err
		}
		return c.newSession(own, options, reply.GetOpen(), sent)
	}
}

func (c *Client) newSession(own *secret, options SessionOptions, reply *pb.OpenResponse, sent moment) (*Session, error) {
	if reply.GetSession() == 0 || reply.GetTtlMs() == 0 || reply.GetTtlMs() > uint64(ttlMax.Milliseconds()) {
		return nil, unexpectedReply()
	}
	renewDeadline := options.RenewDeadline
	if renewDeadline == 0 {
		renewDeadline = 1<<63 - 1
	}
	ttl := millis(reply.GetTtlMs())
	s := &Session{
		client:      c,
		id:          reply.GetSession(),
		secret:      own,
		identity:    options.Identity,
		ttl:         ttl,
		renewBase:   min(ttl, renewDeadline),
		window:      newWindow(ttl, renewDeadline, sent),
		numbers:     requestNumbers{next: 1},
		numberFreed: make(chan struct{}),
		grants:      make(map[uint64]*Lease),
		endings:     make(map[string][]*ending),
	}
	s.ctx, s.end = context.WithCancelCause(c.t.ctx)
	s.due = sent.add(s.interval())
	if !c.register(s) {
		s.beginClose()
		return nil, ErrClosed
	}
	if loss := s.loss(); loss != nil {
		return nil, loss
	}
	return s, nil
}

// ID is the session's number; it is public.
func (s *Session) ID() uint64 { return s.id }

// TTL is what the cluster granted.
func (s *Session) TTL() time.Duration { return s.ttl }

// Identity is who it says it is.
func (s *Session) Identity() string { return s.identity }

// Valid says whether the session is neither lost nor closed. It asks the clock each time.
func (s *Session) Valid() bool { return s.loss() == nil }

// Err is a *Loss once the session is over, else nil. It asks the clock each time.
func (s *Session) Err() error {
	if loss := s.loss(); loss != nil {
		return loss
	}
	return nil
}

// Lost is closed when the session is over.
func (s *Session) Lost() <-chan struct{} { return s.ctx.Done() }

// Remaining is how long the session may be believed in unless a keep-alive is acknowledged before; 0
// once it is over.
func (s *Session) Remaining() time.Duration {
	if s.loss() != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.validUntil().sub(s.client.t.now())
}

// InJeopardy says whether half the window has passed without an acknowledged keep-alive. Work that
// should not be broken off is better not begun then.
func (s *Session) InJeopardy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost == nil && s.client.t.now() >= s.window.jeopardyAt()
}

// Close ends the session and everything that it holds: belief ends first, then the request leaves. The
// request is repeated in the background for a TTL, also if ctx ends before. An error says that the
// cluster is not certain to have ended it yet; at the latest it ends by its TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := s.client.limited(ctx)
	defer cancel()
	return s.beginClose().wait(ctx)
}

// beginClose ends belief, and then closes the session in the background.
func (s *Session) beginClose() *closing {
	closing := s.client.beginClosing(s)
	s.lose(&Loss{Kind: LossClosed})
	closing.send()
	return closing
}

func (s *Session) sendClose(ctx context.Context) error {
	request := &pb.CloseRequest{Session: s.handle()}
	_, _, err := s.client.t.call(ctx, &pb.ClientFrame{Body: &pb.ClientFrame_Close{Close: request}}, modePrompt)
	if errors.Is(err, ErrSessionExpired) {
		return nil
	}
	return err
}

// String is for people.
func (s *Session) String() string { return fmt.Sprintf("ringfence.Session(%d)", s.id) }

// Format keeps the secret out of whatever is printed.
func (s *Session) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(s.String())) }

func (s *Session) handle() *pb.SessionHandle {
	return &pb.SessionHandle{Session: s.id, Secret: s.secret[:]}
}

// interval is the time between keep-alives: a third of the TTL less up to a twentieth of it, so that
// clients that started together do not stay together.
func (s *Session) interval() time.Duration {
	return s.renewBase/3 - time.Duration(mathrand.Float64()*float64(s.renewBase/20))
}

// retryDelay is how long after a keep-alive without an answer the next one is due.
func (s *Session) retryDelay() time.Duration {
	return max(s.renewBase/20, time.Millisecond)
}

// loss is why the session is over, if it is. It asks the clock: a window that has passed is lost here
// and now, by the first look.
func (s *Session) loss() *Loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lossLocked()
}

func (s *Session) lossLocked() *Loss {
	if s.lost == nil && s.window.hasPassed(s.client.t.now()) {
		s.loseLocked(&Loss{Kind: LossWindowPassed})
	}
	return s.lost
}

// lose ends the session for this client, for ever, and belief in all that it holds.
func (s *Session) lose(why *Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(why)
}

func (s *Session) loseLocked(why *Loss) {
	if s.lost != nil {
		return
	}
	s.lost = why
	count := len(s.grants)
	for token, lease := range s.grants {
		lease.endLocked(why)
		delete(s.grants, token)
	}
	s.end(why)
	c := s.client
	if why.OwnDoing() {
		c.log.Debug("session ended", "session", s.id, "leases", count, "why", why)
	} else {
		c.log.Warn("session lost", "session", s.id, "leases", count, "why", why)
	}
	if why.Kind == LossWindowPassed {
		// The cluster may still know it as alive, and another session may wait for what it holds.
		go c.beginClosing(s).send()
	}
	go c.unregister(s)
}

// pollDeadlines looks at the clock: it warns, or ends the session. It returns when to look again and
// when the next keep-alive is due.
func (s *Session) pollDeadlines(now moment) (look, renew moment, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return 0, 0, false
	}
	if now >= s.window.leaveAt() {
		s.loseLocked(&Loss{Kind: LossWindowPassed})
		return 0, 0, false
	}
	s.noteJeopardyLocked(now)
	look = s.window.jeopardyAt()
	if now >= look {
		look = s.window.leaveAt()
	}
	return look, s.due, true
}

func (s *Session) noteJeopardyLocked(now moment) {
	jeopardy := now >= s.window.jeopardyAt()
	if jeopardy == s.inJeopardy {
		return
	}
	s.inJeopardy = jeopardy
	if jeopardy {
		s.client.log.Warn("no keep-alive is acknowledged: the session is in jeopardy",
			"session", s.id, "left", s.window.validUntil().sub(now))
	} else {
		s.client.log.Info("the session is out of jeopardy", "session", s.id)
	}
}

// joinKeepAlive is the session's part of the keep-alive that is about to be sent, if it should have
// one. Sessions that are due soon join in, so that one message serves all.
func (s *Session) joinKeepAlive(now moment) (acknowledged []uint64, join bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	soon := time.Duration(0)
	if s.unanswered == 0 {
		soon = s.renewBase / 10
	}
	if s.lost != nil || s.due > now.add(soon) {
		return nil, false
	}
	// Again after a twentieth of the TTL, then after twice as long each time.
	s.due = now.add(s.retryDelay() << min(s.unanswered, 2))
	s.unanswered++
	unheard := s.losses.unheard
	return append([]uint64(nil), unheard[:min(len(unheard), keepAliveMax)]...), true
}

// extend takes the acknowledgement of a keep-alive that was first sent at sent, when what it reported
// of losses is known here. Nothing else may stretch belief: no other answer tells of losses.
func (s *Session) extend(sent moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return
	}
	now := s.client.t.now()
	switch s.window.extend(sent, now) {
	case extendedTooLate:
		s.loseLocked(&Loss{Kind: LossWindowPassed})
	case extendedLater:
		// What is due now was asked for since, and is no matter of this answer.
		if s.due > now {
			s.due, s.unanswered = sent.add(s.interval()), 0
		}
		// Noticed after that keep-alive was built: the next holder waits for it.
		if len(s.losses.unheard) > 0 {
			s.due = now
		}
		s.noteJeopardyLocked(now)
	}
}

// renewNow makes a keep-alive due: there is a new stream.
func (s *Session) renewNow(now moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due, s.unanswered = now, 0
}

// askSoon makes a keep-alive due after a moment.
func (s *Session) askSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = min(s.due, s.client.t.now().add(time.Millisecond))
}

// acknowledged says that the cluster knows now that these losses were noticed.
func (s *Session) acknowledged(tokens []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses.acknowledged(tokens)
}

// grantsLost ends belief in grants that ended against the session's will, before it returns.
func (s *Session) grantsLost(grants []*pb.LostGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gone := range grants {
		s.grantLostLocked(gone.GetToken(), &Loss{Kind: LossGrantEnded, Cause: grantEndText(gone.GetCause())})
	}
}

func (s *Session) grantLostLocked(token uint64, why *Loss) {
	lease := s.grants[token]
	delete(s.grants, token)
	given := s.losses.listed(token)
	if lease != nil {
		s.client.log.Warn("lease lost", "name", lease.name, "token", token, "why", why)
		// First the end of belief, then the acknowledgement: the cluster lets the next holder in as
		// soon as it has heard.
		lease.endLocked(why)
	}
	// Neither believed in nor given up: the answer of its acquire is still on its way, and admit finds
	// the token in the list.
	if lease != nil || given {
		s.acknowledgeLocked(token)
	}
}

func (s *Session) acknowledgeLocked(token uint64) {
	if s.losses.acknowledge(token) {
		s.due, s.unanswered = s.client.t.now(), 0
		s.client.poke()
	}
}

// forgetGrant notes that a grant was made at this client's own wish that it never believed in.
func (s *Session) forgetGrantLocked(token uint64) {
	if s.losses.gone.has(token) {
		s.acknowledgeLocked(token)
	} else {
		s.losses.givenUp.add(token)
	}
}

// applyRefusal takes what a refusal says about the session itself.
func (s *Session) applyRefusal(refusal *Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch refusal.Reason {
	case ErrSessionExpired:
		s.loseLocked(&Loss{Kind: LossSessionEnded, Cause: refusal.Details["cause"]})
	case ErrWrongSecret:
		s.loseLocked(&Loss{Kind: LossWrongSecret})
	case ErrStaleRequest:
		// The refusal says from where on numbers are accepted again.
		if lowest := refusal.number("lowest"); lowest > 0 {
			s.numbers.skipTo(lowest)
		}
	}
}

// takeNumber returns the next request number; it waits while too many are unconfirmed.
func (s *Session) takeNumber(ctx context.Context, kind requestKind) (requestNumber, error) {
	for {
		s.mu.Lock()
		number, ok := s.numbers.take(kind)
		freed := s.numberFreed
		s.mu.Unlock()
		if ok {
			return number, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return requestNumber{}, fmt.Errorf("%w: %w",
				unavailable("too many requests of this session are unanswered"), context.Cause(ctx))
		}
	}
}

// confirm says that the request with this number is answered for good.
func (s *Session) confirm(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers.confirm(number)
	close(s.numberFreed)
	s.numberFreed = make(chan struct{})
}

// whileLive is ctx that also ends with the session.
func (s *Session) whileLive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
