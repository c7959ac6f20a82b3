// Package leaseapi gives fences to electors that speak the API of Kubernetes with Ringfence's Lease
// endpoint: client-go's leader election, controller-runtime's. The elector stays as it is; what follows
// it reads the fence of its term from the endpoint's answers.
//
//	election, err := leaseapi.New("shop", "controller")
//	config := election.Wrap(config)     // the elector's configuration, whose host is the endpoint
//	lock := election.Lock(lock)         // the elector's lock, made with that configuration
//	work = fenced.Wrap(work, election.Term())
//
// client-go's loop may believe in a term for a while after it is over. A Term ends by its own clock,
// which goes on while the machine is suspended, and never comes back.
package leaseapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/internal/clock"
)

const (
	fenceHeader    = "Ringfence-Fence"
	validForHeader = "Ringfence-Valid-For"
	newTermHeader  = "Ringfence-New-Term"
	// validForMax is the longest TTL of a cluster, which nothing is believed beyond.
	validForMax = 24 * time.Hour
)

// Election follows the terms of one elector. It belongs to one process and one lease.
type Election struct {
	name  string // Of the lease, as fences call it.
	path  string // What paths of its writes end with, before the name.
	clock clock.Clock

	mu    sync.Mutex
	grant grant // The zero grant: none is believed in.
	// fresh: the next write begins a new term. This process knows nothing of an earlier one, or has
	// lost it.
	fresh bool
	// ends is how many grants have ended, so that an answer to an older write brings none back.
	ends uint64
	// quarantine is until when no write of the lease is sent: a lost term's elector may still go on.
	quarantine time.Duration
	terms      []*Term       // Those that have begun and are not over, and those that wait for a grant.
	changed    chan struct{} // Closed with each change of the grant.
}

// grant is what the endpoint has answered last.
type grant struct {
	fence ringfence.Fence
	until time.Duration // By the election's clock.
	valid time.Duration // For how long it was valid when its request was sent.
}

// New follows the elector of the Lease NAME in NAMESPACE.
func New(namespace, name string) (*Election, error) {
	lease := "k8s/" + namespace + "/" + name
	if err := ringfence.CheckName(lease); err != nil {
		return nil, err
	}
	if strings.Contains(namespace, "/") || strings.Contains(name, "/") {
		return nil, fmt.Errorf("leaseapi: %q is no namespace and name of a Lease: they have no slash", lease)
	}
	return &Election{
		name:    lease,
		path:    "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
		clock:   clock.New(),
		fresh:   true,
		changed: make(chan struct{}),
	}, nil
}

// Wrap returns a copy of the elector's configuration. Answers to its clients' writes of the lease begin
// and extend terms.
func (e *Election) Wrap(config *rest.Config) *rest.Config {
	wrapped := rest.CopyConfig(config)
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper { return roundTripper{e, next} })
	return wrapped
}

type roundTripper struct {
	election *Election
	next     http.RoundTripper
}

func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	e := t.election
	if e.deletes(request) {
		e.release() // Its answer comes when the next holder may have begun.
	}
	if !e.writes(request) {
		return t.next.RoundTrip(request)
	}
	write, err := e.begin()
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // As every RoundTripper has to.
		}
		return nil, err
	}
	if write.fresh {
		request = request.Clone(request.Context())
		request.Header.Set(newTermHeader, "true")
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode < 300 {
		e.heard(response.Header, write)
	}
	return response, err
}

// WrappedRoundTripper lets client-go look through it.
func (t roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// writes says whether a request may write the lease, and so begin or extend a term.
func (e *Election) writes(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost:
		return e.isAt(request, "")
	case http.MethodPut, http.MethodPatch:
		return e.isAt(request, e.own())
	}
	return false
}

// deletes says whether a request deletes the lease.
func (e *Election) deletes(request *http.Request) bool {
	return request.Method == http.MethodDelete && e.isAt(request, e.own())
}

// own is what the path of the lease ends with, behind e.path.
func (e *Election) own() string {
	_, own, _ := strings.Cut(strings.TrimPrefix(e.name, "k8s/"), "/")
	return "/" + own
}

// isAt says whether a request's path ends with e.path and then with this.
func (e *Election) isAt(request *http.Request, end string) bool {
	before, name, found := strings.Cut(request.URL.Path, e.path)
	return found && name == end && !strings.Contains(before, "/apis/")
}

// write is a write of the lease that is under way.
type write struct {
	sent  time.Duration // By the election's clock.
	fresh bool          // It begins a new term.
	ends  uint64        // The election's when it was sent.
}

// begin is a write that is sent now.
func (e *Election) begin() (write, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	e.expire(now)
	if left := e.quarantine - now; left > 0 {
		return write{}, fmt.Errorf("%w: the last term of %s was lost; a new one begins in %v at the earliest",
			ErrNoTerm, e.name, left.Round(time.Millisecond))
	}
	return write{sent: now, fresh: e.fresh, ends: e.ends}, nil
}

// heard takes notice of the answer to a write.
func (e *Election) heard(header http.Header, write write) {
	fence, err := ringfence.ParseFence(header.Get(fenceHeader))
	millis, wrong := strconv.ParseInt(header.Get(validForHeader), 10, 64)
	if err != nil || wrong != nil || fence.Name != e.name || millis < 0 {
		return // Without a fence it granted and renewed nothing.
	}
	valid := min(time.Duration(millis), validForMax/time.Millisecond) * time.Millisecond
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	e.expire(now)
	if e.quarantine > now || write.sent+valid <= now {
		return // Too late: it was lost, or is over already.
	}
	if e.ends != write.ends {
		return // What it granted or renewed was released or lost since.
	}
	if e.grant.fence.Token > fence.Token {
		return // An answer that was overtaken.
	}
	if e.grant.fence != (ringfence.Fence{}) && e.grant.fence != fence {
		e.lose(now, fmt.Errorf("%w: it holds %v now", ErrLost, fence))
		return
	}
	e.grant = grant{fence: fence, until: max(e.grant.until, write.sent+valid), valid: valid}
	e.fresh = false
	for _, term := range e.terms {
		term.begin(fence)
	}
	e.change()
}

// expire ends belief in a grant whose time is over.
func (e *Election) expire(now time.Duration) {
	if e.grant.fence != (ringfence.Fence{}) && now >= e.grant.until {
		e.lose(now, fmt.Errorf("%w: no renewal was answered in time", ErrLost))
	}
}

// lose ends a term against the elector's will. Its loop may go on for as long as the lease lasts, so
// nothing is written before that is over, and what is written then has a new token.
func (e *Election) lose(now time.Duration, why error) {
	e.quarantine = now + e.grant.valid
	e.end(why)
}

// release ends a term that the elector itself gives up.
func (e *Election) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(ErrReleased)
}

func (e *Election) end(why error) {
	e.ends++ // Without a grant, too: the answer to an acquire may be under way.
	if e.grant.fence == (ringfence.Fence{}) {
		return
	}
	var waiting []*Term
	for _, term := range e.terms {
		if !term.end(why) {
			waiting = append(waiting, term)
		}
	}
	e.grant, e.fresh, e.terms = grant{}, true, waiting
	e.change()
}

func (e *Election) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Errors of a Term.
var (
	// ErrNoTerm says that this process does not lead.
	ErrNoTerm = errors.New("no term")
	// ErrLost says that a term ended against the elector's will.
	ErrLost = fmt.Errorf("the term is lost: %w", ringfence.ErrLost)
	// ErrReleased says that the elector has released the lease.
	ErrReleased = errors.New("the lease was released")
)
