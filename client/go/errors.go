package ringfence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"ringfence.io/client/go/internal/pb"
)

// Reason is why the cluster refused a request, as the protocol and the command line write it,
// STALE_TOKEN for example. It is an error, so that errors.Is(err, ringfence.ErrHeld) tells whether err
// is a refusal for that reason; errors.As with a *Refusal gets the details.
type Reason string

// Why a request was refused. What each one says is written at the protocol's types.proto.
const (
	ErrInvalidArgument  Reason = "INVALID_ARGUMENT"  // a field is missing, malformed or out of range
	ErrHeld             Reason = "HELD"              // somebody holds the lease; details: holder, identity, token, mine
	ErrQueued           Reason = "QUEUED"            // it is free, but others wait; details: waiters
	ErrLockDelay        Reason = "LOCK_DELAY"        // the last holder's end was dirty and its lock-delay runs
	ErrRevoking         Reason = "REVOKING"          // the last grant was revoked and its holder may not know yet
	ErrQuietTime        Reason = "QUIET_TIME"        // the cluster was restored and grants nothing yet
	ErrStaleToken       Reason = "STALE_TOKEN"       // the token is not that of the present grant, or a guard has seen a greater one
	ErrNotHolder        Reason = "NOT_HOLDER"        // the grant with this token is another session's
	ErrNotWaiting       Reason = "NOT_WAITING"       // the target of a transfer does not wait for the lease
	ErrSessionExpired   Reason = "SESSION_EXPIRED"   // the session has ended, or there never was one with this number
	ErrWrongSecret      Reason = "WRONG_SECRET"      // the secret is not the session's
	ErrStaleRequest     Reason = "STALE_REQUEST"     // the request number is below the lowest the session waits for
	ErrRequestMismatch  Reason = "REQUEST_MISMATCH"  // the request number was used before for another request
	ErrRequestVoided    Reason = "REQUEST_VOIDED"    // the request was cancelled before it came
	ErrLimit            Reason = "LIMIT"             // a limit is reached; details: limit, max
	ErrOpenTooOld       Reason = "OPEN_TOO_OLD"      // the Open was under way for more than 60 s
	ErrOpenIDUsed       Reason = "OPEN_ID_USED"      // the session of this Open has ended
	ErrStaleSettings    Reason = "STALE_SETTINGS"    // the settings have changed since they were read
	ErrClusterChanged   Reason = "CLUSTER_CHANGED"   // the endpoints belong to another cluster now
	ErrCompacted        Reason = "COMPACTED"         // the history asked for is gone
	ErrWaitTimeout      Reason = "WAIT_TIMEOUT"      // the wait is over and brought no grant; not queued any more
	ErrCancelled        Reason = "CANCELLED"         // the request was taken back
	ErrEnded            Reason = "ENDED"             // the grant that answered this request has ended since
	ErrMembership       Reason = "MEMBERSHIP"        // a membership change cannot be made now
	ErrNotFound         Reason = "NOT_FOUND"         // no such name, token, node or record
	ErrFault            Reason = "FAULT"             // a fault of the node that was asked
	ErrPositionUnknown  Reason = "POSITION_UNKNOWN"  // the cluster never had this position
	ErrUnauthenticated  Reason = "UNAUTHENTICATED"   // the credential that was shown proves nothing
	ErrPermissionDenied Reason = "PERMISSION_DENIED" // no rule allows it
	ErrStaleAccess      Reason = "STALE_ACCESS"      // rights have changed since they were read

	// ErrUnavailable: the request was surely not done, neither by this try nor by an earlier one.
	ErrUnavailable Reason = "UNAVAILABLE"
	// ErrOutcomeUnknown: the request may have been done, or may still be. A request of a session for a
	// lease is being cancelled in the background; everything else is safe to ask again.
	ErrOutcomeUnknown Reason = "OUTCOME_UNKNOWN"
)

func (r Reason) Error() string { return string(r) }

// Errors that come from this client and not from the cluster.
var (
	// ErrLost is what errors.Is finds in every *Loss: a lease or a session is not held any more.
	ErrLost = errors.New("lost")
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("the client was closed")
)

// Refusal is the cluster's word on a request that it did not carry out.
type Refusal struct {
	Reason Reason
	// Message says what was offered, what was expected and what to do, for people. Never a secret.
	Message string
	// Details are for programs; the reasons name them.
	Details map[string]string
	// RetryAfter asks to try again no sooner than this; 0 is no advice.
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// Is makes errors.Is(err, ErrHeld) and its like work. A wait that is over is also a deadline that was
// exceeded.
func (r *Refusal) Is(target error) bool {
	if r.Reason == ErrWaitTimeout && target == context.DeadlineExceeded {
		return true
	}
	reason, ok := target.(Reason)
	return ok && reason == r.Reason
}

// Token returns the token among the details: the holder's with ErrHeld; 0 if there is none.
func (r *Refusal) Token() uint64 { return r.number("token") }

// Identity returns who the holder says it is, with ErrHeld.
func (r *Refusal) Identity() string { return r.Details["identity"] }

func (r *Refusal) number(key string) uint64 {
	number, err := strconv.ParseUint(r.Details[key], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// unavailable is an error for what was surely not done.
func unavailable(why string) error {
	return &Refusal{Reason: ErrUnavailable, Message: why}
}

func outcomeUnknown(why string) error {
	return &Refusal{Reason: ErrOutcomeUnknown, Message: why}
}

func unexpectedReply() error {
	return outcomeUnknown("the server's reply makes no sense; is it of a newer version?")
}

// refusalOfWire is a refusal inside a stream; nil if its reason is none that this version knows: then
// nothing is known of the request's fate.
func refusalOfWire(wire *pb.Refusal) *Refusal {
	name, known := pb.Reason_name[int32(wire.GetReason())]
	if !known || wire.GetReason() == pb.Reason_REASON_UNSPECIFIED {
		return nil
	}
	return &Refusal{
		Reason:     Reason(strings.TrimPrefix(name, "REASON_")),
		Message:    wire.GetMessage(),
		Details:    maps.Clone(wire.GetMetadata()),
		RetryAfter: millis(wire.GetRetryAfterMs()),
	}
}

const errorDomain = "ringfence"

// refusalOfStatus is the refusal that a gRPC status carries; nil if it carries none of ours: whatever
// its code, it says nothing about the outcome then.
func refusalOfStatus(err error) *Refusal {
	told, ok := status.FromError(err)
	if !ok {
		return nil
	}
	refusal := &Refusal{Message: told.Message()}
	for _, detail := range told.Proto().GetDetails() {
		switch {
		case strings.HasSuffix(detail.GetTypeUrl(), "google.rpc.ErrorInfo"):
			reason, domain, details := parseErrorInfo(detail.GetValue())
			if _, known := pb.Reason_value["REASON_"+reason]; known && domain == errorDomain {
				refusal.Reason, refusal.Details = Reason(reason), details
			}
		case strings.HasSuffix(detail.GetTypeUrl(), "google.rpc.RetryInfo"):
			refusal.RetryAfter = parseRetryInfo(detail.GetValue())
		}
	}
	if refusal.Reason == "" {
		return nil
	}
	return refusal
}

// parseErrorInfo reads a google.rpc.ErrorInfo: reason = 1, domain = 2, metadata = 3. Two messages are
// no reason for another dependency.
func parseErrorInfo(wire []byte) (reason, domain string, metadata map[string]string) {
	metadata = make(map[string]string)
	eachField(wire, func(number protowire.Number, value []byte) {
		switch number {
		case 1:
			reason = string(value)
		case 2:
			domain = string(value)
		case 3:
			var entry [3]string
			eachField(value, func(number protowire.Number, value []byte) {
				if number == 1 || number == 2 {
					entry[number] = string(value)
				}
			})
			metadata[entry[1]] = entry[2]
		}
	})
	return reason, domain, metadata
}

// parseRetryInfo reads a google.rpc.RetryInfo: retry_delay = 1, a Duration of seconds = 1, nanos = 2.
func parseRetryInfo(wire []byte) (delay time.Duration) {
	eachField(wire, func(number protowire.Number, value []byte) {
		if number != 1 {
			return
		}
		for len(value) > 0 {
			number, kind, tag := protowire.ConsumeTag(value)
			if tag < 0 || kind != protowire.VarintType {
				return
			}
			units, length := protowire.ConsumeVarint(value[tag:])
			if length < 0 || units > 7*24*3600*1e9 {
				return
			}
			switch number {
			case 1:
				delay += time.Duration(min(units, 7*24*3600)) * time.Second
			case 2:
				delay += time.Duration(min(units, 1e9))
			}
			value = value[tag+length:]
		}
	})
	return delay
}

// eachField hands out the fields that are strings or messages.
func eachField(wire []byte, take func(protowire.Number, []byte)) {
	for len(wire) > 0 {
		number, kind, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return
		}
		wire = wire[tag:]
		length := protowire.ConsumeFieldValue(number, kind, wire)
		if length < 0 {
			return
		}
		if kind == protowire.BytesType {
			if value, read := protowire.ConsumeBytes(wire); read > 0 {
				take(number, value)
			}
		}
		wire = wire[length:]
	}
}

// meaning is what a refusal says of the request.
type meaning int

const (
	meansAnswer  meaning = iota // Trying again would bring the same.
	meansNotDone                // This try was not done; another one may be.
	meansOpen                   // It may have been done: only a repeat with the same number tells.
)

func (r *Refusal) meaning() meaning {
	switch r.Reason {
	case ErrUnavailable:
		return meansNotDone
	case ErrOutcomeUnknown, ErrFault:
		return meansOpen
	default:
		return meansAnswer
	}
}

// coversEarlierTries says whether a final refusal also says what becomes of earlier tries of the
// request. What the cluster's log refuses is remembered under the request's number. A limit, and who
// asks, speak of one try alone: an earlier one may still be carried out.
func (r *Refusal) coversEarlierTries(numbered bool) bool {
	switch r.Reason {
	case ErrLimit, ErrUnauthenticated:
		return false
	case ErrPermissionDenied:
		_, rule := r.Details["rule"]
		return numbered && rule
	case ErrStaleToken, ErrStaleSettings, ErrStaleAccess:
		// What an unnumbered request names may be stale because an earlier try of it was done.
		return numbered
	default:
		return true
	}
}

// LossKind is why a lease is no longer held, or a session is over.
type LossKind int

const (
	// LossWindowPassed: no keep-alive was acknowledged within the session's window, so the cluster may
	// have given the lease to another client.
	LossWindowPassed LossKind = iota + 1
	// LossSessionEnded: the session has ended at the cluster.
	LossSessionEnded
	// LossGrantEnded: the grant ended against the session's will, by a revoke for example.
	LossGrantEnded
	// LossWrongSecret: the cluster says that the session is not this client's.
	LossWrongSecret
	// LossClusterChanged: the endpoints belong to another cluster now.
	LossClusterChanged
	// LossReported: a guard refused the token.
	LossReported
	// LossReleased: this client released the lease or handed it over.
	LossReleased
	// LossClosed: this client closed the session.
	LossClosed
)

// Loss is why a lease is not held, or a session is over. It is final: what was once reported lost is
// never reported held again.
type Loss struct {
	Kind LossKind
	// Cause is what the cluster says about it, if anything.
	Cause string
}

func (l *Loss) Error() string {
	text := "the lease is lost"
	switch l.Kind {
	case LossWindowPassed:
		text = "no keep-alive was acknowledged within the session's window"
	case LossSessionEnded:
		text = "the session has ended"
	case LossGrantEnded:
		text = "the grant has ended"
	case LossWrongSecret:
		text = "the session is not this client's"
	case LossClusterChanged:
		text = "the endpoints belong to another cluster now"
	case LossReported:
		text = "a guard refused its token"
	case LossReleased:
		text = "this client gave the lease up"
	case LossClosed:
		text = "this client closed the session"
	}
	if l.Cause != "" {
		return text + ": " + l.Cause
	}
	return text
}

// Is makes errors.Is(err, ErrLost) work, and the reasons for which the cluster ends a session.
func (l *Loss) Is(target error) bool {
	switch target {
	case ErrLost:
		return true
	case ErrSessionExpired:
		return l.Kind == LossSessionEnded
	case ErrWrongSecret:
		return l.Kind == LossWrongSecret
	case ErrClusterChanged:
		return l.Kind == LossClusterChanged
	case ErrStaleToken:
		return l.Kind == LossReported
	}
	return false
}

// OwnDoing says whether this client itself gave it up: by a release, a hand-over, a close.
func (l *Loss) OwnDoing() bool { return l.Kind == LossReleased || l.Kind == LossClosed }

func grantEndText(cause *pb.EndCause) string {
	if cause == nil {
		return ""
	}
	return endText(cause.GetKind().String(), cause.GetOperator(), cause.GetReason())
}

func sessionEndText(cause *pb.SessionEnd) string {
	if cause == nil {
		return ""
	}
	return endText(cause.GetKind().String(), cause.GetOperator(), cause.GetReason())
}

func endText(kind, operator, reason string) string {
	if operator != "" {
		kind += " by " + operator
	}
	if reason != "" {
		kind += fmt.Sprintf(" (%s)", reason)
	}
	return kind
}

// millis is a duration of the protocol; beyond what a Duration holds it is the greatest.
func millis(ms uint64) time.Duration {
	if ms > uint64(1<<63-1)/uint64(time.Millisecond) {
		return 1<<63 - 1
	}
	return time.Duration(ms) * time.Millisecond
}
