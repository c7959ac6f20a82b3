// Package clock reads the time since some fixed point, suspend included. It has nothing to do with the
// wall clock.
package clock

import (
	"math"
	"sync"
	"time"
)

// End is later than every reading.
const End = time.Duration(math.MaxInt64)

// Clock is a source of time. Whatever decides what may be believed reads one that goes on while the
// machine is suspended.
type Clock interface {
	// Now is the time since some fixed point of this clock.
	Now() time.Duration
}

// accumulating is for systems without a clock that is known to count suspend. It adds up what
// passes on the monotonic clock or on the wall clock, whichever is more: a suspended machine's wall
// clock moves on. A wall clock that is set forward ends belief early, one that is set back changes
// nothing.
type accumulating struct {
	mu   sync.Mutex
	last time.Time
	sum  time.Duration
}

// Accumulating is the clock of systems that have none which is known to count suspend.
func Accumulating() Clock {
	return &accumulating{last: time.Now()}
}

func (c *accumulating) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	monotonic := now.Sub(c.last)
	wall := now.Round(0).Sub(c.last.Round(0))
	c.sum += max(monotonic, wall, 0)
	c.last = now
	return c.sum
}
