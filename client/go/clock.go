package ringfence

import (
	"sync"
	"time"
)

// moment is a reading of the client's clock: the time since some fixed point, suspend included. It
// has nothing to do with the wall clock.
type moment time.Duration

func (m moment) add(d time.Duration) moment {
	if sum := m + moment(d); d < 0 || sum >= m {
		return sum
	}
	return endOfTime
}

// sub is the time from other to m; zero if other is later.
func (m moment) sub(other moment) time.Duration {
	return max(time.Duration(m-other), 0)
}

const endOfTime = moment(1<<63 - 1)

// clock is the source of time of one client. Everything that decides what may be believed reads this
// one, which goes on while the machine is suspended.
type clock interface {
	now() moment
}

// sleepMax is the longest sleep between two looks at the clock while something is believed in: Go's
// timers stand still while the machine is suspended, so one that was set before fires late.
const sleepMax = time.Second

// accumulatingClock is for systems without a clock that is known to count suspend. It adds up what
// passes on the monotonic clock or on the wall clock, whichever is more: a suspended machine's wall
// clock moves on. A wall clock that is set forward ends belief early, one that is set back changes
// nothing.
type accumulatingClock struct {
	mu   sync.Mutex
	last time.Time
	sum  time.Duration
}

func newAccumulatingClock() *accumulatingClock {
	return &accumulatingClock{last: time.Now()}
}

func (c *accumulatingClock) now() moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	monotonic := now.Sub(c.last)
	wall := now.Round(0).Sub(c.last.Round(0))
	c.sum += max(monotonic, wall, 0)
	c.last = now
	return moment(c.sum)
}
