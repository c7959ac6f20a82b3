//! What one check of the guard in memory costs, on one thread, in nanoseconds.
//!
//! `cargo bench -p ringfence-guard`; with `--profile dist` for figures to publish. Under `cargo test`
//! it only shows that it runs.

use std::hint::black_box;
use std::time::Duration;

use ringfence_guard::{Fence, FencingToken, Guard};

/// Batches per measure; the quickest one counts, as whatever slows one down is not the guard.
const BATCHES: u32 = 50;

/// Nanoseconds per call.
fn measure<R>(calls: u32, mut call: impl FnMut() -> R) -> f64 {
    let mut batch = || (0..calls).for_each(|_| drop(black_box(call())));
    let quickest = (0..BATCHES).map(|_| time(&mut batch)).min();
    quickest.unwrap_or_default().as_secs_f64() * 1e9 / f64::from(calls)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures this machine's time"
)]
fn time(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only `cargo bench` says this; anything else just wants to see it run.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let calls = if measured { 1_000_000 } else { 1_000 };
    let text = "payments/ledger/primary#42";
    let holder: Fence = text.parse()?;
    let zombie: Fence = "payments/ledger/primary#41".parse()?;
    let other: Fence = "payments/ledger/replica#99".parse()?;
    let guard = Guard::new(holder.name.clone());
    guard.advance(&holder)?;
    let mut effects = 0_u64;
    let mut rising = holder.clone();

    println!("guard in memory, one thread, best of {BATCHES} batches of {calls} calls");
    let tell = |what: &str, nanoseconds: f64| println!("{what:<32} {nanoseconds:>8.1} ns");
    tell(
        "admit, current holder",
        measure(calls, || guard.admit(black_box(&holder))),
    );
    tell(
        "with, current holder",
        measure(calls, || guard.with(black_box(&holder), || effects += 1)),
    );
    tell(
        "admit, stale holder",
        measure(calls, || guard.admit(black_box(&zombie))),
    );
    tell(
        "admit, another lease",
        measure(calls, || guard.admit(black_box(&other))),
    );
    let receive = || Fence::receive(guard.name(), Some(black_box(text)));
    tell(
        "parse, admit",
        measure(calls, || receive().and_then(|fence| guard.admit(&fence))),
    );
    let raise = || {
        rising.token = FencingToken::new(rising.token.get() + 1).unwrap_or(rising.token);
        guard.admit(black_box(&rising))
    };
    tell("admit, a greater token each time", measure(calls, raise));
    Ok(())
}
