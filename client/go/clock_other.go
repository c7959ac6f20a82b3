//go:build !linux && !windows

package ringfence

// newClock: there is no clock here that Go can read without cgo and that is known to count suspend.
// (macOS has one, mach_continuous_time.) See accumulatingClock for what takes its place.
func newClock() clock {
	return newAccumulatingClock()
}
