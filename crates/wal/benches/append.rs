//! Durable appends with 64 in flight, on the disk that holds the build directory.
//!
//! `cargo bench -p ringfence-wal --bench append` measures for five seconds; run as a test, it
//! appends a thousand entries and checks that they are counted.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use ringfence_wal::{EntryId, LogEntry, Options, Wal};

const IN_FLIGHT: u64 = 64;
const PAYLOAD_BYTES: usize = 100;

fn main() {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if measuring {
        println!("bare sync of one written sector: {}", bare_sync(dir.path()));
    }
    let limit = if measuring {
        Duration::from_secs(5)
    } else {
        Duration::MAX
    };
    let entries = if measuring { u64::MAX } else { 1000 };
    run(dir.path(), limit, entries);
}

fn run(dir: &Path, limit: Duration, entries: u64) {
    let (wal, _) = Wal::open(dir, Options::new(*b"bench")).unwrap();
    let payload = Bytes::from(vec![0x5A; PAYLOAD_BYTES]);
    let (sender, durable) = channel();
    let append = |index: u64| {
        let sender = sender.clone();
        let submitted = now();
        let id = EntryId { term: 1, index };
        let done = Box::new(move |result: Result<(), _>| {
            result.unwrap();
            sender.send(submitted).unwrap();
        });
        wal.append(
            vec![LogEntry {
                id,
                payload: payload.clone(),
            }],
            done,
        );
    };

    let mut latencies = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap();
    let begun = now();
    (0..IN_FLIGHT).for_each(append);
    let mut submitted = IN_FLIGHT;
    let mut completed = 0;
    while completed < submitted {
        let since: Instant = durable.recv().unwrap();
        latencies
            .record(since.elapsed().as_micros() as u64)
            .unwrap();
        completed += 1;
        if submitted < entries && begun.elapsed() < limit {
            append(submitted);
            submitted += 1;
        }
    }

    let seconds = begun.elapsed().as_secs_f64();
    let stats = wal.stats();
    wal.close();
    assert_eq!(stats.entries_appended, completed);
    println!("{IN_FLIGHT} in flight, {PAYLOAD_BYTES} bytes each, {completed} entries");
    println!(
        "throughput      {:>10.0} entries/s",
        completed as f64 / seconds
    );
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        println!(
            "{name:<15} {:>10} us",
            latencies.value_at_quantile(quantile)
        );
    }
    println!(
        "entries / sync  {:>10.1}",
        completed as f64 / stats.syncs as f64
    );
    println!("syncs           {:>10.0} /s", stats.syncs as f64 / seconds);
    println!(
        "bytes / entry   {:>10.1}",
        stats.bytes_appended as f64 / completed as f64
    );
    println!("slowest sync    {:>10} us", stats.max_sync_micros);
    println!("segments        {:>10}", stats.live_segments);
}

/// The floor under any durable append on this machine: half of the syncs of one sector, over
/// zeros that are already on the disk, take no longer.
fn bare_sync(dir: &Path) -> String {
    let path = dir.join("bare");
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.write_all_at(&vec![0; 1024 * 1024], 0).unwrap();
    file.sync_all().unwrap();
    let mut micros: Vec<u128> = (0..1000)
        .map(|round| {
            let begun = now();
            file.write_all_at(&[1; 512], round * 512).unwrap();
            file.sync_data().unwrap();
            begun.elapsed().as_micros()
        })
        .collect();
    micros.sort_unstable();
    std::fs::remove_file(path).unwrap();
    format!("median {} us, p99 {} us", micros[500], micros[990])
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
