package ringfence

import "time"

const (
	// marginMin is the least that is taken off a TTL.
	marginMin = 50 * time.Millisecond
	// leadMax is how long before the end of a window the timer ends belief, at most: it
	// fires late, and what waits for the loss shall know of it by the window's end.
	leadMax = 20 * time.Millisecond
)

// validity is how long a session of this TTL may be believed in after a keep-alive was sent that is
// acknowledged. 1 % covers a clock here that is slow by as much, the margin one there that is fast.
func validity(ttl time.Duration) time.Duration {
	drift := ttl/100 + 1 // Division rounds down, and belief must not gain.
	return max(ttl-drift-max(marginMin, ttl/50), 0)
}

// window is the interval in which a session may be believed in: arithmetic only.
type window struct {
	validity time.Duration
	// sent is when the newest of the acknowledged keep-alives was sent, or the Open.
	sent moment
}

// newWindow is that of a session that was opened by a request sent at sent, never wider than
// renewDeadline.
func newWindow(ttl, renewDeadline time.Duration, sent moment) window {
	return window{validity: min(validity(ttl), renewDeadline), sent: sent}
}

func (w *window) validUntil() moment { return w.sent.add(w.validity) }

// jeopardyAt is when half the window has passed.
func (w *window) jeopardyAt() moment { return w.sent.add(w.validity / 2) }

// leaveAt is when to end belief so that all have heard by validUntil.
func (w *window) leaveAt() moment {
	return w.sent.add(w.validity - min(leadMax, w.validity/20))
}

func (w *window) hasPassed(now moment) bool { return now >= w.validUntil() }

type extended int

const (
	extendedLater extended = iota
	extendedNot
	extendedTooLate // The window had passed: the acknowledgement revives nothing.
)

// extend takes the acknowledgement of a keep-alive that was sent at sent.
func (w *window) extend(sent, now moment) extended {
	if w.hasPassed(now) {
		return extendedTooLate
	}
	// Nothing is acknowledged before it is sent; a clock that claims so must not stretch belief.
	sent = min(sent, now)
	if sent <= w.sent {
		return extendedNot
	}
	w.sent = sent
	return extendedLater
}
