package ringfence

import (
	"syscall"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME, which counts suspend. CLOCK_MONOTONIC, which Go's time.Now reads,
// does not.
const clockBoottime = 7

type boottime struct{}

func newClock() clock {
	if _, ok := readBoottime(); !ok {
		// A sandbox that filters system calls, for example.
		return newAccumulatingClock()
	}
	return boottime{}
}

func (boottime) now() moment {
	now, ok := readBoottime()
	if !ok {
		// It worked before; to go on with another clock would compare readings of two. Nothing can be
		// believed without a clock.
		return endOfTime
	}
	return now
}

func readBoottime() (moment, bool) {
	var spec syscall.Timespec
	_, _, errno := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&spec)), 0)
	return moment(spec.Nano()), errno == 0
}
