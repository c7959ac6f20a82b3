package ringfence

import (
	"time"

	systemclock "ringfence.io/client/go/internal/clock"
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

const endOfTime = moment(systemclock.End)

// clock is the source of time of one client. Everything that decides what may be believed reads this
// one, which goes on while the machine is suspended.
type clock interface {
	now() moment
}

// sleepMax is the longest sleep between two looks at the clock while something is believed in: Go's
// timers stand still while the machine is suspended, so one that was set before fires late.
const sleepMax = time.Second

// systemClock is the clock of this machine.
type systemClock struct{ systemclock.Clock }

func newClock() clock { return systemClock{systemclock.New()} }

func (c systemClock) now() moment { return moment(c.Now()) }
