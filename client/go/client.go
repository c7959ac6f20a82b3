package ringfence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Client is one program's way to a cluster: one connection, and one keep-alive for all its sessions.
// It is safe for use by many goroutines. Close gives back what it holds.
type Client struct {
	t              *transport
	log            *journal
	requestTimeout time.Duration
	// wake makes the keep-alives look at once whether one is due.
	wake       chan struct{}
	background sync.WaitGroup

	mu       sync.Mutex
	sessions map[*Session]struct{}
	openings map[chan struct{}]struct{} // Those that are not answered; each is closed when it is.
	closings map[*closing]struct{}      // Those that are not answered.
	closed   bool
}

// Connect makes a client of the cluster with these members, HOST:PORT or unix:PATH each; one is
// enough, since the others are learned from it. It returns when one of them has answered. What fails
// later is repeated without the caller.
func Connect(ctx context.Context, endpoints []string, with ...Option) (*Client, error) {
	o := options{
		log:            slog.New(slog.DiscardHandler),
		requestTimeout: 10 * time.Second,
		connectTimeout: 2 * time.Second,
	}
	for _, option := range with {
		if err := option(&o); err != nil {
			return nil, fmt.Errorf("ringfence: %w", err)
		}
	}
	if err := o.checkSchemes(endpoints); err != nil {
		return nil, fmt.Errorf("ringfence: %w", err)
	}
	selector, err := newEndpointSelector(endpoints, rand.IntN(endpointsMax))
	if err != nil {
		return nil, fmt.Errorf("ringfence: %w", err)
	}
	c := &Client{
		log:            newJournal(o.log),
		requestTimeout: o.requestTimeout,
		wake:           make(chan struct{}, 1),
		sessions:       make(map[*Session]struct{}),
		openings:       make(map[chan struct{}]struct{}),
		closings:       make(map[*closing]struct{}),
	}
	c.t = &transport{
		clock:          o.clock,
		log:            c.log,
		tls:            o.tls,
		connectTimeout: o.connectTimeout,
		silence:        4 * time.Second,
		endpoints:      selector,
		callbacks:      c,
		stopped:        make(chan struct{}),
		changed:        make(chan struct{}),
	}
	if c.t.clock == nil {
		c.t.clock = newClock()
	}
	if o.token != "" || o.tokenFile != "" {
		if o.token != "" && o.tokenFile != "" {
			return nil, errors.New("ringfence: a token and a token file were given; give one of them")
		}
		if c.t.bearer, err = newBearer(o.token, o.tokenFile, o.tls != nil); err != nil {
			return nil, fmt.Errorf("ringfence: the bearer token: %w", err)
		}
	}
	c.t.ctx, c.t.cancel = context.WithCancel(context.Background())
	go c.t.run()
	c.background.Go(c.keepAlive)
	waiting, cancel := c.limited(ctx)
	defer cancel()
	if _, err := c.t.waitForConn(waiting); err != nil {
		c.stop()
		return nil, fmt.Errorf("ringfence: no member of the cluster answered: %w", err)
	}
	return c, nil
}

// Format keeps what a client holds out of whatever is printed.
func (c *Client) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte("ringfence.Client")) }

// Close gives back everything that this client has, within ctx and the request timeout: belief in all
// of it ends first, then its sessions are closed. Afterwards the client can do nothing more. An error
// says that some session is not certain to have ended; it ends by its TTL.
func (c *Client) Close(ctx context.Context) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var (
		closing sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, session := range c.list() {
		closing.Go(func() { note(session.Close(ctx)) })
	}
	closing.Wait()
	// What is opened meanwhile is closed again.
	for _, opening := range c.unopened() {
		select {
		case <-opening:
		case <-ctx.Done():
			why := outcomeUnknown("a session that was being opened may live until its TTL")
			note(fmt.Errorf("ringfence: close: %w: %w", why, ctx.Err()))
		}
	}
	// What others began to close is cut off by the stop, too.
	for _, other := range c.unanswered() {
		note(other.wait(ctx))
	}
	c.stop()
	return errors.Join(errs...)
}

// beginOpening notes that a session is about to be opened: a client that is closed meanwhile waits for
// that, and for its close. It is nil if the client is closed.
func (c *Client) beginOpening() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	opening := make(chan struct{})
	c.openings[opening] = struct{}{}
	return opening
}

// endOpening says that there is no session, or that it is kept alive or about to be closed.
func (c *Client) endOpening(opening chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.openings, opening)
	close(opening)
}

func (c *Client) unopened() []chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.openings))
}

// closing is the close of a session that is under way.
type closing struct {
	session *Session
	done    chan struct{} // Closed when it is over.
	err     error         // Set before done is closed.
}

// beginClosing notes that a session is about to be closed, before belief in it ends: a client that is
// closed meanwhile waits for it.
func (c *Client) beginClosing(s *Session) *closing {
	e := &closing{session: s, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closings[e] = struct{}{}
	return e
}

func (c *Client) unanswered() []*closing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.closings))
}

// send sends the close, in the background, for as long as the cluster may know the session.
func (e *closing) send() {
	c := e.session.client
	over := func(err error) {
		e.err = err
		close(e.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.closings, e)
	}
	if !c.inBackground(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(e.session.ttl, c.requestTimeout))
		defer cancel()
		over(e.session.sendClose(ctx))
	}) {
		over(fmt.Errorf("%w: %w", unavailable("nothing is sent any more"), ErrClosed))
	}
}

// wait waits until the close is answered, or ctx is done.
func (e *closing) wait(ctx context.Context) error {
	var err error
	select {
	case <-e.done:
		err = e.err
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", outcomeUnknown("not answered yet; it is repeated in the background"), ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("ringfence: close session %d: %w", e.session.id, err)
	}
	return nil
}

// stop ends the connection and everything that goes on in the background.
func (c *Client) stop() {
	// Under the lock: nothing begins in the background from here on.
	c.mu.Lock()
	c.t.cancel()
	c.mu.Unlock()
	<-c.t.stopped
	c.background.Wait()
}

// limited is ctx with the request timeout.
func (c *Client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.requestTimeout)
}

// inBackground runs work that has to come to its end before the client is closed; its context ends
// with the client. It says whether it does: not if the client is closed.
func (c *Client) inBackground(work func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t.ctx.Err() != nil {
		return false
	}
	c.background.Go(func() { work(c.t.ctx) })
	return true
}

// register adds a session that is kept alive from now on; false if the client is closed.
func (c *Client) register(s *Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.sessions[s] = struct{}{}
	c.poke()
	return true
}

func (c *Client) unregister(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

func (c *Client) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Client) list() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	sessions := make([]*Session, 0, len(c.sessions))
	for session := range c.sessions {
		sessions = append(sessions, session)
	}
	return sessions
}

func (c *Client) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions) == 0
}

func (c *Client) shortestTTL() time.Duration {
	var shortest time.Duration
	for _, session := range c.list() {
		if shortest == 0 || session.renewBase < shortest {
			shortest = session.renewBase
		}
	}
	return shortest
}

func (c *Client) clusterChanged() {
	for _, session := range c.list() {
		session.lose(&Loss{Kind: LossClusterChanged})
	}
}
