//! How fast the two checkers are: `cargo bench -p ringfence-check -- OPERATIONS CLIENTS LEASES`.
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
    let begun = Instant::now();
    let done = work();
    println!("{what}: {:.2} s", begun.elapsed().as_secs_f64());
    done
}
