//! How fast the two checkers are, and how much memory they take:
//! `cargo bench -p ringfence-check -- OPERATIONS CLIENTS LEASES FILE.jsonl`; 100,000, 16 and 8 if left
//! out. The history is kept in the file, if one is named.
//!
//! The history is made by the real state machine with lost messages, crashes and new leaders. The
//! memory named is the peak during each step, all that was made before it included. Each step runs
//! on one core; where others want it too, the second time counts only what the step had of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

#[path = "../tests/it/world/mod.rs"]
mod world;

use std::io::Cursor;
use std::time::Instant;

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::history::{Reader, Writer};
use ringfence_check::{Recording, witness};
use world::{Play, Recorded, play};

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let calls = numbers.next().unwrap_or(100_000);
    let clients = u32::try_from(numbers.next().unwrap_or(16)).unwrap();
    let leases = u32::try_from(numbers.next().unwrap_or(8)).unwrap();

    let recorded = took("play", || {
        play(Play {
            seed: 1,
            clients,
            leases,
            calls,
            trouble: true,
        })
    });
    println!(
        "{} records, {} entries",
        recorded.records.len(),
        recorded.log.len()
    );
    let bytes = took("write", || {
        let mut writer = Writer::new(Vec::new(), &Recorded::header()).unwrap();
        recorded
            .records
            .iter()
            .for_each(|record| writer.append(record).unwrap());
        writer.finish().unwrap()
    });
    println!("{} MB", bytes.len() / 1_000_000);
    if let Some(file) = std::env::args().find(|argument| argument.ends_with(".jsonl")) {
        std::fs::write(file, &bytes).unwrap();
    }
    let recording = took("read", || {
        Recording::read(Reader::new(Cursor::new(bytes)).unwrap()).unwrap()
    });
    let found = took("black box", || blackbox::check(&recording, Caps::default()));
    println!("{}\n{found}", found.verdict());
    let log = recorded
        .log
        .into_iter()
        .map(Ok::<_, std::convert::Infallible>);
    let found = took("witness", || witness::check(&recording, log).unwrap());
    println!("{}\n{found}", found.verdict());
}

fn took<T>(what: &str, work: impl FnOnce() -> T) -> T {
    // From here on the kernel counts the peak from zero; where it cannot, the peak is that of the
    // whole.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let (begun, run) = (Instant::now(), run_ns());
    let done = work();
    let seconds = begun.elapsed().as_secs_f64();
    let of_core = (run_ns() - run) as f64 / 1e9;
    let megabytes = peak_bytes() / 1_000_000;
    println!("{what}: {seconds:.2} s, {of_core:.2} s of a core, {megabytes} MB");
    done
}

/// How long this thread has run, in ns; 0 where the system does not count it.
fn run_ns() -> u64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = counted.split(' ').next().and_then(|text| text.parse().ok());
    first.unwrap_or(0)
}

/// The most memory that this process had at a time; 0 where the system does not count it.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1_024
}
