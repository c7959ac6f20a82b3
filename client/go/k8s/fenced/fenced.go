// Package fenced puts the fence of a leader's term on every write to Kubernetes, for the policies that
// `ringfence kube policy` prints with the carrier `impersonate`: the API server then refuses what a
// deposed leader still sends.
//
//		config = fenced.Wrap(config, lock.Term())
//
//	  - It stops at loss. The clock is asked for each write at the moment of sending; before the term and
//	    after it nothing is sent, and the call fails with an *Unsent.
//	  - It believes a refusal. When the API server says that this very token is stale, belief in the lease
//	    ends here, too.
//	  - It hides nothing. What was under way at the loss goes on, and its answer comes through.
//
// Between the question to the clock and the arrival of a write any time can pass. What makes that
// harmless is the policy in the API server. A new leader writes each object that it guards once before
// it trusts what it reads: from then on the object itself carries its token.
package fenced

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	ringfence "ringfence.io/client/go"
)

const (
	impersonateUser = "Impersonate-User"
	// impersonateExtra has the one character of ringfence.io/fence escaped that no header may have.
	impersonateExtra = "Impersonate-Extra-Ringfence.io%2ffence"
	// refusalMax is how much of a refusal is looked at.
	refusalMax = 64 << 10
)

// staleRefusals are how the API server puts a policy's or a webhook's words.
var staleRefusals = [][]byte{
	[]byte("denied request: ringfence: stale fence "),
	[]byte("denied the request: ringfence: stale fence "),
}

// Term is what writes are sent under: resourcelock's *Term, leaseapi's *Term, or Of a lease.
type Term interface {
	// Fence returns the fence while the term lasts, by the clock, and says why it does not otherwise.
	Fence() (ringfence.Fence, error)
	// ReportStale ends belief in the term: a newer token has been seen.
	ReportStale()
}

// Of is the term of a lease that was acquired otherwise.
func Of(lease *ringfence.Lease) Term { return leaseTerm{lease} }

type leaseTerm struct{ lease *ringfence.Lease }

func (t leaseTerm) Fence() (ringfence.Fence, error) { return t.lease.Fence(), t.lease.Err() }

func (t leaseTerm) ReportStale() { t.lease.ReportStale() }

// Unsent says that a write was not sent: it had no effect, and never will. What it wraps says why;
// errors.Is with ringfence.ErrLost where the term is over.
type Unsent struct{ Why error }

func (e *Unsent) Error() string {
	return "not sent, since it has no fence: " + e.Why.Error() + "; stop working under it"
}

func (e *Unsent) Unwrap() error { return e.Why }

// Option changes how writes are fenced.
type Option func(*transport)

// As is the own user, system:serviceaccount:NAMESPACE:NAME; unless set, the API server is asked at the
// first write.
func As(user string) Option {
	return func(t *transport) { t.user = user }
}

// Wrap returns a copy of a configuration with which all clients send their writes under a term. The
// account needs the right to impersonate itself with the attribute ringfence.io/fence, which is among
// what `ringfence kube policy` prints.
func Wrap(config *rest.Config, term Term, with ...Option) *rest.Config {
	wrapped := rest.CopyConfig(config)
	shared := &transport{term: term}
	for _, option := range with {
		option(shared)
	}
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper{shared, next}
	})
	return wrapped
}

// transport is what all clients of one configuration share.
type transport struct {
	term Term

	mu   sync.Mutex
	user string
}

type roundTripper struct {
	*transport
	next http.RoundTripper
}

func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isWrite(request) {
		return t.next.RoundTrip(request)
	}
	refuse := func(why error) (*http.Response, error) {
		if request.Body != nil {
			_ = request.Body.Close() // As every RoundTripper has to.
		}
		return nil, &Unsent{why}
	}
	// Before anything that takes time, and once more after it.
	if _, err := t.term.Fence(); err != nil {
		return refuse(err)
	}
	user, err := t.ownUser(request)
	if err != nil {
		return refuse(err)
	}
	fence, err := t.term.Fence()
	if err != nil {
		return refuse(err)
	}
	fenced := request.Clone(request.Context())
	if fenced.Header.Get(impersonateUser) == "" {
		fenced.Header.Set(impersonateUser, user)
	}
	fenced.Header.Set(impersonateExtra, fence.String())
	response, err := t.next.RoundTrip(fenced)
	if err == nil && response.StatusCode == http.StatusForbidden && saysStale(response) {
		t.term.ReportStale()
	}
	return response, err
}

// WrappedRoundTripper lets client-go look through it.
func (t roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// saysStale looks into a refusal, and leaves it as it was. The words are the same in JSON and protobuf.
func saysStale(response *http.Response) bool {
	head, err := io.ReadAll(io.LimitReader(response.Body, refusalMax))
	rest := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), rest}
	return err == nil && slices.ContainsFunc(staleRefusals, func(words []byte) bool { return bytes.Contains(head, words) })
}

// ownUser is who this client is to the API server; a request's own credential asks.
func (t roundTripper) ownUser(request *http.Request) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.user != "" {
		return t.user, nil
	}
	prefix, _, _ := cutAPI(request.URL.Path)
	address := url.URL{Scheme: request.URL.Scheme, Host: request.URL.Host,
		Path: prefix + "/apis/authentication.k8s.io/v1/selfsubjectreviews"}
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	review, err := http.NewRequestWithContext(request.Context(), http.MethodPost, address.String(), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	review.Header = request.Header.Clone()
	review.Header.Set("Content-Type", "application/json")
	review.Header.Set("Accept", "application/json")
	response, err := t.next.RoundTrip(review)
	if err != nil {
		return "", fmt.Errorf("who this client is to the API server: %w", err)
	}
	defer response.Body.Close()
	var told struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, refusalMax)).Decode(&told)
	if err != nil || told.Status.UserInfo.Username == "" {
		return "", fmt.Errorf("who this client is to the API server: it answered %s and no name; name the user by fenced.As", response.Status)
	}
	t.user = told.Status.UserInfo.Username
	return t.user, nil
}

// connections are subresources that open a connection to what runs behind an object. Their requests
// look like reads, and whatever is sent over them is not seen by anybody here.
var connections = []string{"exec", "attach", "portforward", "proxy"}

// isWrite says whether a request may change something: all that is not known to be a read, and
// everything that opens a connection.
func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return request.Header.Get("Upgrade") != "" || slices.Contains(connections, subresource(request.URL.Path))
	case http.MethodPost:
		// Questions about rights and identities look like writes. They change nothing, and are asked
		// before a term, too.
		return !isReview(request.URL.Path)
	}
	return true
}

// isReview says whether a request only asks who a user is, or what a user may do.
func isReview(path string) bool {
	_, group, below := cutAPI(path)
	if len(below) == 0 || group != "authentication.k8s.io" && group != "authorization.k8s.io" {
		return false
	}
	return strings.HasSuffix(below[len(below)-1], "reviews")
}

// cutAPI cuts a path into what stands before /api or /apis, a proxy's, the group, and what stands below
// group and version.
func cutAPI(path string) (prefix, group string, below []string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for at, part := range parts {
		skip := 0
		switch part {
		case "api":
			skip = 2
		case "apis":
			skip = 3
		default:
			continue
		}
		if at > 0 {
			prefix = "/" + strings.Join(parts[:at], "/")
		}
		if skip == 3 && len(parts) > at+1 {
			group = parts[at+1]
		}
		if len(parts) > at+skip {
			below = parts[at+skip:]
		}
		return prefix, group, below
	}
	return "", "", nil
}

// subresource is the one that a path of the API names, by its place, since objects may be called like
// one.
func subresource(path string) string {
	_, _, below := cutAPI(path)
	switch {
	case len(below) >= 5 && below[0] == "namespaces":
		return below[4]
	case len(below) > 0 && below[0] == "namespaces":
		// A namespace itself, its own subresources, what is in it: the objects and lists of them.
		return ""
	case len(below) >= 3:
		return below[2]
	}
	return ""
}
