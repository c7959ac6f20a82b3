package ringfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ringfence.io/client/go/internal/pb"
)

const (
	// waitMax is how long the cluster lets a request stand in a queue.
	waitMax = 24 * time.Hour
	// LockDelayMax is the longest lock-delay.
	LockDelayMax = time.Minute
	// DataMax is how many bytes a holder can publish with a grant.
	DataMax = 1024
	nameMax = 255
)

// Lease is one grant of a lease to this client, from its start to its end. Once it is lost it stays
// lost: a later grant is another Lease with a greater token. It is safe for use by many goroutines. Pass it on
// as a pointer: go vet speaks of a copy, which is lost with the Lease.
type Lease struct {
	_ noCopy
	*belief
	session     *Session
	name        string
	token       uint64
	data        []byte
	since       time.Time
	ownsSession bool
}

// belief is of one grant, also where a Lease was copied against the advice of go vet.
type belief struct {
	lost chan struct{}
	loss *Loss // Under the session's lock.
}

// noCopy makes go vet speak of copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Fence is what a guard wants to see: a lease's name and the token of a grant.
type Fence struct {
	Name  string
	Token uint64
}

// String is the fence as text, NAME#TOKEN.
func (f Fence) String() string { return f.Name + "#" + strconv.FormatUint(f.Token, 10) }

// ParseFence reads NAME#TOKEN.
func ParseFence(text string) (Fence, error) {
	name, number, found := strings.Cut(text, "#")
	if !found {
		return Fence{}, fmt.Errorf("ringfence: %q is no fence; a fence is NAME#TOKEN", text)
	}
	if err := CheckName(name); err != nil {
		return Fence{}, err
	}
	token, err := strconv.ParseUint(number, 10, 63)
	if err != nil || token == 0 || strconv.FormatUint(token, 10) != number {
		return Fence{}, fmt.Errorf("ringfence: %q is no token; a token is 1 to 9223372036854775807", number)
	}
	return Fence{Name: name, Token: token}, nil
}

// CheckName says what is wrong with the name of a lease: 1 to 255 bytes, segments of
// [A-Za-z0-9._~:@-] joined by single slashes, none of them "." or "..".
func CheckName(name string) error {
	fault := ""
	switch {
	case name == "":
		fault = "it is empty"
	case len(name) > nameMax:
		fault = fmt.Sprintf("it has %d bytes, at most %d are allowed", len(name), nameMax)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case fault != "":
		case segment == "":
			fault = "it has an empty segment"
		case segment == "." || segment == "..":
			fault = fmt.Sprintf("%q is no segment", segment)
		case strings.ContainsFunc(segment, func(r rune) bool { return !isNameRune(r) }):
			fault = "allowed are A-Z a-z 0-9 . _ ~ : @ - and single slashes"
		}
	}
	if fault != "" {
		return fmt.Errorf("ringfence: %q is no lease name: %s", name, fault)
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._~:@-", r)
}

// AcquireOption is what is asked for beside the name.
type AcquireOption func(*pb.AcquireRequest) error

// WithData publishes up to 1 KiB with the grant, an address for example.
func WithData(data []byte) AcquireOption {
	return func(request *pb.AcquireRequest) error {
		if len(data) > DataMax {
			return fmt.Errorf("the data has %d bytes, at most %d are allowed", len(data), DataMax)
		}
		request.Data = data
		return nil
	}
}

// WithLockDelay says for how long the lease is granted to no session if this grant ends by expiry or revoke,
// in whole milliseconds, up to a minute.
func WithLockDelay(delay time.Duration) AcquireOption {
	return func(request *pb.AcquireRequest) error {
		if delay < 0 || delay > LockDelayMax {
			return fmt.Errorf("the lock-delay is %v, 0 to %v is allowed", delay, LockDelayMax)
		}
		request.LockDelayMs = uint64(delay.Milliseconds())
		return nil
	}
}

// Lock waits for a lease in a session of its own. Releasing the lease closes the session.
func (c *Client) Lock(ctx context.Context, name string, options SessionOptions, with ...AcquireOption) (*Lease, error) {
	session, err := c.OpenSession(ctx, options)
	if err != nil {
		return nil, err
	}
	lease, err := session.Acquire(ctx, name, with...)
	if err != nil {
		session.beginClose()
		return nil, err
	}
	lease.ownsSession = true
	return lease, nil
}

// Acquire waits in the lease's queue until it is granted or ctx is done. If ctx ends first, or
// anything else goes wrong, the request is taken back in the background, again and again until the
// cluster has answered: neither a grant nor a place in the queue is left behind.
//
// If this session held the name before, and what became of that is not settled yet, that is settled
// first: new work has a new token.
func (s *Session) Acquire(ctx context.Context, name string, with ...AcquireOption) (*Lease, error) {
	for {
		wait := waitMax
		deadline, bounded := ctx.Deadline()
		if bounded {
			wait = min(max(time.Until(deadline), time.Millisecond), waitMax)
		}
		lease, err := s.acquire(ctx, name, &wait, with)
		// A day is over: the end of the queue, for another.
		if errors.Is(err, ErrWaitTimeout) && !bounded {
			continue
		}
		return lease, err
	}
}

// TryAcquire acquires the lease if no session holds it or waits for it, and is answered at once: by
// ErrHeld, ErrQueued, ErrLockDelay, ErrRevoking or ErrQuietTime if not. Otherwise it is as Acquire.
func (s *Session) TryAcquire(ctx context.Context, name string, with ...AcquireOption) (*Lease, error) {
	ctx, cancel := s.client.limited(ctx)
	defer cancel()
	return s.acquire(ctx, name, nil, with)
}

func (s *Session) acquire(ctx context.Context, name string, wait *time.Duration, with []AcquireOption) (*Lease, error) {
	fail := func(err error) (*Lease, error) { return nil, fmt.Errorf("ringfence: acquire %s: %w", name, err) }
	if err := CheckName(name); err != nil {
		return nil, err
	}
	template := &pb.AcquireRequest{Session: s.handle(), Name: name}
	kind, mode := kindAcquire, modePrompt
	if wait != nil {
		ms := uint64(wait.Milliseconds())
		template.WaitMs = &ms
		kind, mode = kindWait, modeWaiting
	}
	for _, option := range with {
		if err := option(template); err != nil {
			return fail(err)
		}
	}
	ctx, cancel := s.whileLive(ctx)
	defer cancel()
	if err := s.settle(ctx, name); err != nil {
		return fail(s.orLoss(err))
	}
	for {
		if loss := s.loss(); loss != nil {
			return fail(loss)
		}
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		number, err := s.takeNumber(ctx, kind)
		if err != nil {
			return fail(s.orLoss(err))
		}
		request := &pb.AcquireRequest{
			Session:     template.Session,
			Number:      number.number,
			Lowest:      number.lowest,
			Name:        name,
			WaitMs:      template.WaitMs,
			Data:        template.Data,
			LockDelayMs: template.LockDelayMs,
		}
		reply, _, err := s.client.t.call(ctx, &pb.ClientFrame{Body: &pb.ClientFrame_Acquire{Acquire: request}}, mode)
		if err == nil {
			grant := reply.GetAcquire().GetGrant()
			if grant.GetName() != name || grant.GetSession() != s.id || grant.GetToken() == 0 {
				// What makes no sense is taken back, which tells what it was.
				s.takeBack(name, number.number)
				return fail(unexpectedReply())
			}
			s.confirm(number.number)
			// The window is not moved: only a keep-alive's answer tells what was lost.
			lease, loss := s.admit(grant)
			if loss != nil {
				return fail(loss)
			}
			return lease, nil
		}
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason == ErrOutcomeUnknown {
			s.takeBack(name, number.number)
			return fail(s.orLoss(err))
		}
		s.confirm(number.number)
		s.applyRefusal(refusal)
		switch refusal.Reason {
		case ErrStaleRequest:
			// This number holds nothing and never will.
			continue
		case ErrEnded:
			s.mu.Lock()
			if token := refusal.Token(); token != 0 {
				s.forgetGrantLocked(token)
			}
			s.mu.Unlock()
		}
		return fail(s.orLoss(err))
	}
}

// orLoss is the session's loss, if it is over: that says more than what ended with it.
func (s *Session) orLoss(err error) error {
	if loss := s.loss(); loss != nil {
		return loss
	}
	return err
}

// takeBack cancels a request whose outcome is open.
func (s *Session) takeBack(name string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.beginEndingLocked(name, 0, number)
	}
}

// admit begins to believe in a grant, unless it or the session was lost meanwhile; then the cluster may
// still grant it, and it is released.
func (s *Session) admit(grant *pb.Grant) (*Lease, *Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := grant.GetToken()
	if loss := s.lossLocked(); loss != nil {
		return nil, loss
	}
	if s.losses.gone.has(token) {
		s.forgetGrantLocked(token)
		s.beginEndingLocked(grant.GetName(), token, 0)
		return nil, &Loss{Kind: LossGrantEnded}
	}
	if known := s.grants[token]; known != nil {
		// The repeat of a request that was answered before.
		return known, nil
	}
	lease := &Lease{
		session: s,
		name:    grant.GetName(),
		token:   token,
		data:    grant.GetData(),
		since:   time.UnixMilli(int64(grant.GetSinceUnixMs())),
		belief:  &belief{lost: make(chan struct{})},
	}
	s.grants[token] = lease
	return lease, nil
}

// endLocked ends belief for ever.
func (b *belief) endLocked(why *Loss) {
	if b.loss == nil {
		b.loss = why
		close(b.lost)
	}
}

// Name is the name of the lease.
func (l *Lease) Name() string { return l.name }

// Token is the fencing token of this grant: greater than those of all grants before it.
func (l *Lease) Token() uint64 { return l.token }

// Fence is what a guard wants to see.
func (l *Lease) Fence() Fence { return Fence{Name: l.name, Token: l.token} }

// Data is what was published with the grant.
func (l *Lease) Data() []byte { return l.data }

// Since is when the cluster granted it, by its wall clock: for people, it decides nothing.
func (l *Lease) Since() time.Time { return l.since }

// Session is the session that holds it.
func (l *Lease) Session() *Session { return l.session }

// Valid says whether the lease is held at this instant. It asks the clock each time, one that counts
// while the machine is suspended; once it has said no it never says yes again. Only a guard in the
// store decides whether a write may pass: any time can go by between this answer and the write.
func (l *Lease) Valid() bool { return l.why() == nil }

// Err is a *Loss once the lease is not held any more, else nil. It asks the clock each time.
func (l *Lease) Err() error {
	if loss := l.why(); loss != nil {
		return loss
	}
	return nil
}

func (l *Lease) why() *Loss {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.loss == nil {
		// It ends this grant's belief, too, if the window has passed.
		s.lossLocked()
	}
	return l.loss
}

// Lost is closed when the lease is lost, released or handed over, up to 20 ms before its window ends;
// after a suspend of the machine within a second of its wake, while Valid says so at once.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Remaining is how long the lease may be believed in unless a keep-alive is acknowledged before; 0 once
// it is lost.
func (l *Lease) Remaining() time.Duration {
	if l.why() != nil {
		return 0
	}
	return l.session.Remaining()
}

// Context is a child of parent that is cancelled when the lease is lost, with the *Loss as its cause.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if err := l.Err(); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	go func() {
		select {
		case <-l.lost:
			cancel(l.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Do runs work with a context that is cancelled when the lease is lost. It returns when work does, and
// only then the cluster hears that a lease that was revoked meanwhile is not worked under any more, and
// lets the next holder in (or when the time is over that it would have waited anyway). If the lease is
// lost already, work is not begun. If it is lost while work runs, the error is the *Loss joined with
// what work returned. If work returns ErrStaleToken, a guard's refusal, the lease is lost.
func (l *Lease) Do(ctx context.Context, work func(ctx context.Context) error) error {
	s := l.session
	// In one step: the cluster must not hear of a loss, and let the next holder in, just before work
	// begins.
	s.mu.Lock()
	if s.lossLocked(); l.loss != nil {
		s.mu.Unlock()
		return l.loss
	}
	s.losses.workBegins(l.token)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.losses.workEnded(l.token) {
			s.due, s.unanswered = s.client.t.now(), 0
			s.client.poke()
		}
	}()
	ctx, cancel := l.Context(ctx)
	defer cancel()
	err := work(ctx)
	if errors.Is(err, ErrStaleToken) {
		l.ReportStale()
	}
	if loss := l.why(); loss != nil && !loss.OwnDoing() {
		return errors.Join(loss, err)
	}
	return err
}

// ReportStale says that a guard refused this grant's token: belief in it ends, for ever, and it is
// released.
func (l *Lease) ReportStale() {
	l.giveUp(&Loss{Kind: LossReported})
}

// giveUp ends belief, and then, in the background, the grant. It returns nil if it was not held.
func (l *Lease) giveUp(why *Loss) *ending {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.loss != nil || s.lossLocked() != nil {
		return nil
	}
	l.endLocked(why)
	delete(s.grants, l.token)
	s.losses.givenUp.add(l.token)
	return s.beginEndingLocked(l.name, l.token, 0)
}

// Release gives the lease back: belief ends first, then the request leaves. The request is repeated in
// the background until it is answered, also if ctx ends before. Releasing a lease twice is no error; if
// it was lost before, the error is the *Loss.
func (l *Lease) Release(ctx context.Context) error {
	if l.ownsSession {
		return l.releaseSession(ctx)
	}
	e := l.giveUp(&Loss{Kind: LossReleased})
	if e == nil {
		if loss := l.why(); !loss.OwnDoing() {
			return fmt.Errorf("ringfence: release %v: %w", l.Fence(), loss)
		}
		return nil
	}
	ctx, cancel := l.session.client.limited(ctx)
	defer cancel()
	select {
	case <-e.done:
		if e.err != nil {
			return fmt.Errorf("ringfence: release %v: %w", l.Fence(), e.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ringfence: release %v: %w: %w", l.Fence(),
			outcomeUnknown("not answered yet; it is repeated in the background"), ctx.Err())
	}
}

// releaseSession closes the session that was opened for this lease alone.
func (l *Lease) releaseSession(ctx context.Context) error {
	loss := l.why()
	if loss != nil && loss.OwnDoing() {
		return nil
	}
	err := l.session.Close(ctx)
	if loss != nil {
		return fmt.Errorf("ringfence: release %v: %w", l.Fence(), loss)
	}
	return err
}

// Transferred is what a hand-over brought.
type Transferred struct {
	// Session holds the lease now.
	Session uint64
	// Token is the new holder's.
	Token uint64
}

// Transfer hands the lease over to a session that waits for it, or, with 0, to the head of the queue:
// in one step, with a new token. Belief ends first, then the request leaves. A hand-over that is
// refused, with ErrNotWaiting if no session waits, releases the lease.
func (l *Lease) Transfer(ctx context.Context, to uint64) (Transferred, error) {
	s := l.session
	s.mu.Lock()
	if loss := s.lossLocked(); l.loss != nil || loss != nil {
		loss = l.loss
		s.mu.Unlock()
		return Transferred{}, fmt.Errorf("ringfence: transfer %v: %w", l.Fence(), loss)
	}
	l.endLocked(&Loss{Kind: LossReleased})
	delete(s.grants, l.token)
	s.losses.givenUp.add(l.token)
	s.mu.Unlock()

	ctx, cancel := s.client.limited(ctx)
	defer cancel()
	ctx, stop := s.whileLive(ctx)
	defer stop()
	reply, err := s.repeat(ctx, false, func(number requestNumber) *pb.ClientFrame {
		return &pb.ClientFrame{Body: &pb.ClientFrame_Transfer{Transfer: &pb.TransferRequest{
			Session:   s.handle(),
			Number:    number.number,
			Lowest:    number.lowest,
			Name:      l.name,
			Token:     l.token,
			ToSession: to,
		}}}
	})
	if err != nil {
		// Whatever became of it: a release names the token, so it ends nothing else.
		s.mu.Lock()
		if s.lost == nil {
			s.beginEndingLocked(l.name, l.token, 0)
		}
		s.mu.Unlock()
		return Transferred{}, fmt.Errorf("ringfence: transfer %v: %w", l.Fence(), err)
	}
	answer := reply.GetTransfer()
	return Transferred{Session: answer.GetToSession(), Token: answer.GetToken()}, nil
}

// String is for people.
func (l *Lease) String() string { return "ringfence.Lease(" + l.Fence().String() + ")" }

// Format keeps the session's secret out of whatever is printed.
func (l *Lease) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(l.String())) }
