//! How much memory a piece of work asks for: an allocator that counts, and a window over it.
//!
//! A test binary that wants to measure declares `#[global_allocator] static HEAP: Counting =
//! Counting;`. It counts by thread, so that tests beside each other do not see each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with two counters per thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

thread_local! {
    // Neither has a destructor, so both can be used by an allocator at any time.
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is being torn down is not measured.
    let counted = IN_USE.try_with(|in_use| {
        in_use.set(in_use.get() + bytes);
        in_use.get()
    });
    if let Ok(now) = counted {
        PEAK.try_with(|peak| peak.set(peak.get().max(now))).ok();
    }
}

#[allow(
    unsafe_code,
    reason = "counting what is allocated needs an allocator of one's own"
)]
// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The most bytes that `work` had in use at once on this thread, beyond what was in use before.
/// Always 0 in a binary whose allocator is another one than [`Counting`].
pub fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = work();
    let bytes = (PEAK.get() - before).max(0);
    (result, bytes.unsigned_abs())
}

/// Runs `work` and requires that it was measured, and took at most `limit` bytes at once.
///
/// # Panics
/// If it took more, or if the binary's allocator does not count.
pub fn within<R>(limit: usize, work: impl FnOnce() -> R) -> R {
    let (result, bytes) = peak(|| {
        // Shows that the allocator counts.
        drop(std::hint::black_box(Box::new(0_u8)));
        work()
    });
    assert!(bytes > 0, "the binary's global allocator does not count");
    assert!(bytes <= limit, "{bytes} bytes in use, {limit} are allowed");
    result
}
