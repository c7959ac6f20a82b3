//! What processes have used of the processor.

use std::io;
use std::time::Duration;

/// How many of the ticks in `/proc` make a second, on every machine that Linux runs on today.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of a process so far, all its threads, in user and in kernel mode.
///
/// # Errors
/// If there is no such process.
pub fn processor_time(pid: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; behind it, user and system time are the 12th and
    // 13th field.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}
