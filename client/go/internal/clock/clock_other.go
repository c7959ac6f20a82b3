//go:build !linux && !windows

package clock

// New is the best clock of this system: there is none here that Go can read without cgo and that is
// known to count suspend. (macOS has one, mach_continuous_time.)
func New() Clock {
	return Accumulating()
}
