package leaseapi

import (
	"context"
	"fmt"
	"time"

	ringfence "ringfence.io/client/go"
)

// sleepMax is the longest sleep between two looks at the clock: Go's timers stand still while the
// machine is suspended.
const sleepMax = time.Second

// Term is one term of an election: it takes the token of one grant, and every other token is a loss.
type Term struct {
	election *Election
	began    chan struct{}
	fence    ringfence.Fence // Set before began is closed.
	over     error           // Why it is over. Under the election's lock.
}

// Term is the present term if this process leads, else its next one. A manager, which leads once, takes
// it before it starts; who leads again and again takes one in each OnStartedLeading.
func (e *Election) Term() *Term {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(e.clock.Now())
	term := &Term{election: e, began: make(chan struct{})}
	if e.grant.fence != (ringfence.Fence{}) {
		term.begin(e.grant.fence)
	}
	e.terms = append(e.terms, term)
	return term
}

// begin gives the term its token, unless it has one.
func (t *Term) begin(fence ringfence.Fence) {
	if t.fence == (ringfence.Fence{}) {
		t.fence = fence
		close(t.began)
	}
}

// end ends the term for good, if it has begun.
func (t *Term) end(why error) bool {
	if t.fence == (ringfence.Fence{}) {
		return false
	}
	t.over = why
	return true
}

// Fence returns what stores admit the term's writes by, while the term lasts by the clock. Otherwise the
// error is ErrNoTerm, with ErrLost or ErrReleased if the term has begun.
func (t *Term) Fence() (ringfence.Fence, error) {
	e := t.election
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(e.clock.Now())
	switch {
	case t.fence == (ringfence.Fence{}):
		return ringfence.Fence{}, fmt.Errorf("%w: this process does not lead yet", ErrNoTerm)
	case t.over != nil:
		return ringfence.Fence{}, fmt.Errorf("%w: %v is not held any more: %w", ErrNoTerm, t.fence, t.over)
	}
	return t.fence, nil
}

// ReportStale ends belief in the term, if it lasts: a store has seen a newer token.
func (t *Term) ReportStale() {
	e := t.election
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.over == nil && t.fence != (ringfence.Fence{}) {
		e.lose(e.clock.Now(), fmt.Errorf("%w: a store has seen a newer token", ErrLost))
	}
}

// Context is a child of parent that is cancelled when the term is over, with the error of Fence as its
// cause: sooner than client-go's loop notices. A manager that is started with it stops at once.
func (t *Term) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-t.began:
		}
		for {
			left, changed, err := t.remaining()
			if err != nil {
				cancel(err)
				return
			}
			timer := time.NewTimer(min(left, sleepMax))
			select {
			case <-ctx.Done():
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
			if ctx.Err() != nil {
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// remaining is how long the term lasts unless it is renewed, and what is closed when that changes.
func (t *Term) remaining() (time.Duration, <-chan struct{}, error) {
	if _, err := t.Fence(); err != nil {
		return 0, nil, err
	}
	e := t.election
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.grant.until-e.clock.Now(), 0), e.changed, nil
}
