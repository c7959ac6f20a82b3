// Package resourcelock lets client-go's leader election, and with it controller-runtime's, elect by a
// lease of Ringfence, with a fencing token for each term.
//
//	lock, err := resourcelock.New(client, "k8s/shop/controller")
//	config = fenced.Wrap(config, lock.Term())
//	manager, err := manager.New(config, manager.Options{
//		LeaderElection:                      true,
//		LeaderElectionResourceLockInterface: lock,
//	})
//
// client-go's loop goes on as it is, and may believe in a term for a while after it is over; the lease
// itself is kept alive by the client beside it, and the term ends by the client's own clock. Whatever
// asks the Term, as package fenced does for each write, hears the truth.
package resourcelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	ringfence "ringfence.io/client/go"
)

var _ resourcelock.Interface = (*Lock)(nil)

// resource is what errors call the lease.
var resource = schema.GroupResource{Group: "ringfence.io", Resource: "leases"}

// ErrNoTerm says that this process does not lead: it never did, or its term is over.
var ErrNoTerm = errors.New("no term")

// Option sets up a lock.
type Option func(*Lock)

// WithIdentity is who the candidate is; unique to this process unless set.
func WithIdentity(identity string) Option {
	return func(l *Lock) { l.identity = identity }
}

// Lock implements client-go's resourcelock.Interface. It belongs to one elector.
type Lock struct {
	client   *ringfence.Client
	name     string
	identity string

	mu      sync.Mutex
	session *ringfence.Session
	lease   *ringfence.Lease // Of the present term; also when it is lost, until the elector was told.
	// transitions is what client-go counts; Ringfence has tokens for that.
	transitions int
	renewed     time.Time // When the elector last renewed.
	// quarantine is until when nothing is acquired: a lost term's elector may still go on.
	quarantine time.Time
	terms      []*Term // Those that wait for a grant.
}

// New makes a lock of a lease; the usual name is k8s/NAMESPACE/NAME. It opens a session, with the
// elector's lease duration as TTL, when the elector first asks for the lease.
func New(client *ringfence.Client, name string, with ...Option) (*Lock, error) {
	if err := ringfence.CheckName(name); err != nil {
		return nil, err
	}
	l := &Lock{client: client, name: name, identity: ringfence.UniqueIdentity()}
	for _, option := range with {
		option(l)
	}
	if l.identity == "" {
		return nil, errors.New("resourcelock: the identity is empty, which is how client-go says that nobody holds a lease")
	}
	return l, nil
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return "ringfence:" + l.name }

// RecordEvent implements resourcelock.Interface. The cluster's history has all grants and ends.
func (l *Lock) RecordEvent(string) {}

// Create implements resourcelock.Interface: it acquires the lease.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update implements resourcelock.Interface. With this candidate's identity it renews the term, or
// acquires the lease if there is none; without one it releases it. Belief in the term ends before a
// release leaves. Everything else is a conflict.
//
// A term that was lost is never gone on with: the next try is refused, and so is every other for one
// lease duration, rounded up, after it, which is longer than client-go's loop may go on. So what was begun
// under one token is not finished under another.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch record.HolderIdentity {
	case "":
		return l.release(ctx)
	case l.identity:
	default:
		return l.conflict(fmt.Errorf("it is not for %s to write the holder %q", l.identity, record.HolderIdentity))
	}
	if record.LeaseDurationSeconds < 1 {
		return fmt.Errorf("resourcelock: the lease duration is %d s; client-go counts whole seconds, give one or more",
			record.LeaseDurationSeconds)
	}
	duration := time.Duration(record.LeaseDurationSeconds) * time.Second
	now := time.Now()
	if l.lease != nil {
		if err := l.lease.Err(); err != nil {
			// client-go has rounded its duration down.
			l.lease, l.quarantine = nil, now.Add(duration+time.Second)
			return l.conflict(fmt.Errorf("the term is lost: %w", err))
		}
		if l.lease.Session().InJeopardy() {
			// client-go counts its deadline from its last success: it should not begin again now.
			return errors.New("ringfence: no keep-alive is acknowledged at the moment")
		}
		l.renewed, l.transitions = now, record.LeaderTransitions
		return nil
	}
	if now.Before(l.quarantine) {
		return l.conflict(fmt.Errorf("the last term was lost; a new one begins in %v at the earliest", l.quarantine.Sub(now).Round(time.Millisecond)))
	}
	return l.acquire(ctx, record, duration)
}

func (l *Lock) acquire(ctx context.Context, record resourcelock.LeaderElectionRecord, duration time.Duration) error {
	if l.session == nil || !l.session.Valid() {
		session, err := l.client.OpenSession(ctx, ringfence.SessionOptions{TTL: duration, Identity: l.identity})
		if err != nil {
			return err
		}
		l.session = session
	}
	lease, err := l.session.TryAcquire(ctx, l.name)
	switch {
	case errors.Is(err, ringfence.ErrHeld), errors.Is(err, ringfence.ErrQueued), errors.Is(err, ringfence.ErrLockDelay),
		errors.Is(err, ringfence.ErrRevoking), errors.Is(err, ringfence.ErrQuietTime):
		return l.conflict(err)
	case err != nil:
		return err
	}
	l.lease, l.renewed, l.transitions = lease, time.Now(), record.LeaderTransitions
	for _, term := range l.terms {
		term.begin(lease)
	}
	l.terms = nil
	go l.watchOver(lease, duration)
	return nil
}

// watchOver gives a lease up whose elector has stopped to renew, as it would expire in Kubernetes.
func (l *Lock) watchOver(lease *ringfence.Lease, duration time.Duration) {
	look := time.NewTicker(max(duration/10, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-lease.Lost():
			return
		case <-look.C:
			l.mu.Lock()
			late := l.lease == lease && time.Since(l.renewed) > duration
			l.mu.Unlock()
			if late {
				// It stays the lock's: an elector that goes on all the same hears of the loss.
				// Repeated in the background where it is not answered in time.
				_ = lease.Release(context.Background())
				return
			}
		}
	}
}

// release gives up the term, if there is one; what another session holds it never touches.
func (l *Lock) release(ctx context.Context) error {
	if l.lease == nil {
		return l.conflict(errors.New("this candidate holds nothing that it could release"))
	}
	lease := l.lease
	l.lease = nil
	if err := lease.Err(); err != nil {
		return l.conflict(fmt.Errorf("the term is lost: %w", err))
	}
	return lease.Release(ctx)
}

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	lease, transitions := l.lease, l.transitions
	l.mu.Unlock()
	if lease != nil && lease.Valid() {
		return encoded(resourcelock.LeaderElectionRecord{
			HolderIdentity:       l.identity,
			LeaseDurationSeconds: wholeSeconds(lease.Session().TTL()),
			AcquireTime:          metav1.NewTime(lease.Since()),
			RenewTime:            metav1.Now(),
			LeaderTransitions:    transitions,
		})
	}
	info, err := l.client.Get(ctx, l.name)
	if errors.Is(err, ringfence.ErrNotFound) {
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	if err != nil {
		return nil, nil, err
	}
	record := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, RenewTime: metav1.Now(), LeaderTransitions: transitions}
	if holder := info.Holder; holder != nil {
		record.HolderIdentity = holder.Identity
		record.LeaseDurationSeconds = wholeSeconds(info.TTL)
		record.AcquireTime = metav1.NewTime(holder.Since)
		if holder.Identity == l.identity || holder.Identity == "" {
			// Another session's: client-go must not take it for its own, nor for free.
			record.HolderIdentity = fmt.Sprintf("%s (session %d)", holder.Identity, holder.Session)
		}
	}
	return encoded(record)
}

func encoded(record resourcelock.LeaderElectionRecord) (*resourcelock.LeaderElectionRecord, []byte, error) {
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, err
	}
	return &record, raw, nil
}

func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func (l *Lock) conflict(why error) error { return apierrors.NewConflict(resource, l.name, why) }

// Term is one term of a lock: it takes the token of one grant, and every other token is a loss.
type Term struct {
	began chan struct{}
	lease *ringfence.Lease // Set before began is closed.
}

// Term is the present term if this candidate leads, else its next one. A manager, which leads once,
// takes it before it starts; who leads again and again takes one in each OnStartedLeading.
func (l *Lock) Term() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	term := &Term{began: make(chan struct{})}
	if l.lease != nil && l.lease.Valid() {
		term.begin(l.lease)
	} else {
		l.terms = append(l.terms, term)
	}
	return term
}

func (t *Term) begin(lease *ringfence.Lease) {
	t.lease = lease
	close(t.began)
}

// Lease returns the lease while the term lasts, by the clock. Otherwise the error is ErrNoTerm, and the
// *ringfence.Loss if it has begun.
func (t *Term) Lease() (*ringfence.Lease, error) {
	select {
	case <-t.began:
	default:
		return nil, fmt.Errorf("%w: this process does not lead yet", ErrNoTerm)
	}
	if err := t.lease.Err(); err != nil {
		return nil, fmt.Errorf("%w: %v is not held any more: %w", ErrNoTerm, t.lease.Fence(), err)
	}
	return t.lease, nil
}

// Fence returns what stores admit the term's writes by; the errors are those of Lease.
func (t *Term) Fence() (ringfence.Fence, error) {
	lease, err := t.Lease()
	if err != nil {
		return ringfence.Fence{}, err
	}
	return lease.Fence(), nil
}

// ReportStale ends belief in the term, if it has begun: a store has seen a newer token.
func (t *Term) ReportStale() {
	if lease, err := t.Lease(); err == nil {
		lease.ReportStale()
	}
}

// Context is a child of parent that is cancelled when the term is over, with the *ringfence.Loss as its
// cause: sooner than client-go's loop notices. A manager that is started with it stops at once.
func (t *Term) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-t.began:
		}
		select {
		case <-ctx.Done():
		case <-t.lease.Lost():
			cancel(t.lease.Err())
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
