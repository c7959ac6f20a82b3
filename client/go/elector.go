package ringfence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"time"
)

// ErrLeave is returned by a leader's work that wants its campaign to end: Run gives the lease up and
// returns nil.
var ErrLeave = errors.New("the work leaves the campaign")

// ElectorOptions are an elector's, with the times that client-go has: 15 s, 10 s and 2 s where 0.
type ElectorOptions struct {
	// Identity is who the candidate is, for people; unique to this process unless set.
	Identity string
	// LeaseDuration is the session's TTL: no other is granted the lease sooner than this after the
	// last acknowledged keep-alive was received.
	LeaseDuration time.Duration
	// RenewDeadline is how long after it sent the last keep-alive that was acknowledged a leader stops,
	// or at the end of its window if that is sooner. Keep-alives go out every third of it.
	RenewDeadline time.Duration
	// RetryPeriod is the first pause after a term or a try that failed. No candidate polls: it
	// waits in the cluster's queue.
	RetryPeriod time.Duration
	// OnNewLeader is called with each holder that is seen, also this candidate itself, one after the
	// other; it must not block. nil: no watch is opened. Where rights bind it needs one to read all names that
	// begin with the lease's; without it a warning is logged, and it is not called.
	OnNewLeader func(name string, leader Holder)
}

// Elector is one candidate for any number of leases, with one session for all of them.
type Elector struct {
	client  *Client
	options ElectorOptions

	// turn has room for one, who looks at the session and opens or takes it: a lock that a context ends the
	// wait for.
	turn    chan struct{}
	session *Session
}

// NewElector sets up a candidate; its session is opened when it first campaigns.
func (c *Client) NewElector(options ElectorOptions) (*Elector, error) {
	or := func(set, standard time.Duration) time.Duration {
		if set == 0 {
			return standard
		}
		return set
	}
	options.LeaseDuration = or(options.LeaseDuration, DefaultTTL)
	options.RenewDeadline = or(options.RenewDeadline, 10*time.Second)
	options.RetryPeriod = or(options.RetryPeriod, 2*time.Second)
	switch {
	case options.LeaseDuration <= options.RenewDeadline:
		return nil, fmt.Errorf("ringfence: lease duration %v must be longer than renew deadline %v",
			options.LeaseDuration, options.RenewDeadline)
	case options.RenewDeadline <= options.RetryPeriod*6/5:
		return nil, fmt.Errorf("ringfence: renew deadline %v must be longer than 1.2 times the retry period %v",
			options.RenewDeadline, options.RetryPeriod)
	case options.RetryPeriod < time.Millisecond:
		return nil, fmt.Errorf("ringfence: the retry period must be at least 1 ms, not %v", options.RetryPeriod)
	}
	if options.Identity == "" {
		options.Identity = UniqueIdentity()
	}
	return &Elector{client: c, options: options, turn: make(chan struct{}, 1)}, nil
}

// UniqueIdentity is this host's name and a random part.
func UniqueIdentity() string {
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 200 {
		host = "unnamed"
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // It never fails; see its documentation.
	return host + "_" + hex.EncodeToString(random)
}

// Identity is who this candidate is.
func (e *Elector) Identity() string { return e.options.Identity }

// Run campaigns until ctx is done: it waits for the lease, runs work while it is held, and campaigns
// again when that is over. The work's context is cancelled when the lease is lost, with the *Loss as
// its cause; the work has to return then, and no other is granted the lease because of this process
// before it has, as long as the lease's window lasts. When the work returns unasked the lease is
// given up. If it returns ErrLeave, Run returns nil. Other errors of the work are logged; the pause
// after them doubles up to ten retry periods.
//
// Run returns ctx's error when ctx is done, after the work has returned and the lease was given up, and
// an error at once where no retry can help: a wrong name, a missing right, a closed client.
func (e *Elector) Run(ctx context.Context, name string, work func(ctx context.Context, lease *Lease) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if e.options.OnNewLeader != nil {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			err := e.client.WatchHolder(watching, name, func(holder *Holder) {
				if holder != nil {
					e.options.OnNewLeader(name, *holder)
				}
			})
			if watching.Err() == nil {
				e.client.log.Warn("new leaders are not reported", "name", name, "why", err)
			}
		}()
		defer func() {
			stop()
			<-watched
		}()
	}
	failures := 0
	for {
		lease, err := e.Lead(ctx, name)
		if err != nil {
			return err
		}
		e.client.log.Info("leading", "name", name, "token", lease.Token())
		began := e.client.t.now()
		err = lease.Do(ctx, func(ctx context.Context) error { return work(ctx, lease) })
		if lease.Valid() {
			// Also after ctx: an orderly end hands over at once.
			if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
				e.client.log.Warn("the lease is not certain to be released", "name", name, "why", err)
			}
		}
		e.client.log.Info("not leading any more", "name", name, "token", lease.Token(), "why", err)
		switch {
		case errors.Is(err, ErrLeave):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil || errors.Is(err, ErrLost) || e.client.t.now().sub(began) > 10*e.options.RetryPeriod:
			failures = 0
		default:
			failures++
		}
		if !e.pause(ctx, failures) {
			return ctx.Err()
		}
	}
}

// Lead waits until this candidate leads, whatever fails meanwhile, and returns the lease, which the
// caller releases. Errors are those of Run.
func (e *Elector) Lead(ctx context.Context, name string) (*Lease, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for failures := 0; ; failures++ {
		session, err := e.open(ctx)
		var lease *Lease
		if err == nil {
			lease, err = session.Acquire(ctx, name)
		}
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrClosed), errors.Is(err, ErrInvalidArgument), errors.Is(err, ErrPermissionDenied):
			return nil, err
		}
		e.client.log.Warn("no lease yet", "name", name, "why", err)
		if !e.pause(ctx, failures) {
			return nil, ctx.Err()
		}
	}
}

// Close gives everything back that the elector has. Its campaigns have to be over.
func (e *Elector) Close(ctx context.Context) error {
	if err := e.takeTurn(ctx); err != nil {
		return fmt.Errorf("ringfence: close an elector whose session is being opened: %w", err)
	}
	session := e.session
	e.session = nil
	e.endTurn()
	if session == nil {
		return nil
	}
	return session.Close(ctx)
}

// open is the elector's session: the present one while it is live, else a new one.
func (e *Elector) open(ctx context.Context) (*Session, error) {
	if err := e.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer e.endTurn()
	if e.session != nil && e.session.Valid() {
		return e.session, nil
	}
	session, err := e.client.OpenSession(ctx, SessionOptions{
		TTL:           e.options.LeaseDuration,
		RenewDeadline: e.options.RenewDeadline,
		Identity:      e.options.Identity,
	})
	if err == nil {
		e.session = session
	}
	return session, err
}

// takeTurn waits until no other campaign opens the session, or ctx is done.
func (e *Elector) takeTurn(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Elector) endTurn() { <-e.turn }

// pause waits before another term or try: a retry period, doubled for each failure before, with
// client-go's jitter.
func (e *Elector) pause(ctx context.Context, failures int) bool {
	pause := min(e.options.RetryPeriod<<min(failures, 4), 10*e.options.RetryPeriod)
	return pauseFor(ctx, time.Duration(float64(pause)*(0.5+0.7*mathrand.Float64())))
}
