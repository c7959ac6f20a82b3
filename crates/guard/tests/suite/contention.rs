//! Real threads that take the lease from each other all the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ringfence_guard::{Fence, FencingToken, LeaseName};

/// One thread's way to a guarded counter. `false` means refused.
pub(crate) trait Worker: Send {
    fn advance(&mut self, fence: &Fence) -> bool;
    fn read(&mut self) -> u64;
    fn write(&mut self, fence: &Fence, count: u64) -> bool;
}

/// A worker asks for the lease once in so many rounds. In the others it goes on with the grant it
/// has, also when that has long been stale.
const ROUNDS_PER_GRANT: u64 = 8;

/// Each worker takes the lease now and then, and so makes its holder stale; in between it
/// increments the counter, as holder or as one that does not know it is none. Every acknowledged
/// increment must be there in the end.
pub(crate) fn no_increment_is_lost<W: Worker>(name: &LeaseName, workers: Vec<W>, rounds: u64) {
    let newest = AtomicU64::new(0);
    let work = |mut worker: W, mut dice: u64| {
        let (mut done, mut refused) = (0_u64, 0_u64);
        let mut held = None;
        for _ in 0..rounds {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let fence = match held.take() {
                Some(fence) if !(dice >> 33).is_multiple_of(ROUNDS_PER_GRANT) => fence,
                _ => {
                    let token = newest.fetch_add(1, Ordering::SeqCst) + 1;
                    let fence = Fence::new(name.clone(), FencingToken::new(token).unwrap());
                    worker.advance(&fence);
                    fence
                }
            };
            let count = worker.read();
            thread::yield_now();
            if worker.write(&fence, count + 1) {
                done += 1;
            } else {
                refused += 1;
            }
            held = Some(fence);
        }
        (worker, done, refused)
    };
    let work = &work;
    let ended: Vec<_> = thread::scope(|scope| {
        let start = |(seed, worker)| scope.spawn(move || work(worker, seed));
        let running: Vec<_> = (1..).zip(workers).map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let done: u64 = ended.iter().map(|(_, done, _)| done).sum();
    let refused: u64 = ended.iter().map(|(_, _, refused)| refused).sum();
    println!("{done} increments acknowledged, {refused} holders refused");
    assert!(
        done > 0 && refused > 0,
        "no writer got in the way of another: {done} done, {refused} refused"
    );
    let count = ended
        .into_iter()
        .next()
        .map(|(mut worker, ..)| worker.read());
    assert_eq!(count, Some(done), "acknowledged increments were lost");
}
