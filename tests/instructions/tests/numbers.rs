//! The instructions of each work are those of `numbers.txt`, within three percent.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringfence-instructions");
/// The two runs whose difference is taken.
const TIMES: (u64, u64) = (200, 1_200);
const TOLERANCE_PERCENT: u64 = 3;
/// Optimized code is other code, and has numbers of its own.
const PROFILE: &str = if cfg!(debug_assertions) {
    "dev"
} else {
    "release"
};

type Numbers = BTreeMap<String, u64>;

#[test]
fn work_takes_the_instructions_that_are_written_down() {
    let counted = count_all();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("numbers.txt");
    let mut all = read(&file);
    if env::var("RINGFENCE_INSTRUCTIONS").as_deref() == Ok("write") {
        all.insert(PROFILE.to_owned(), counted);
        return write(&file, &all);
    }
    let wanted = all.remove(PROFILE).unwrap_or_default();
    let differing = differing(&wanted, &counted);
    assert!(
        differing.is_empty(),
        "{differing}\nIf that is as it is meant: RINGFENCE_INSTRUCTIONS=write cargo test --test numbers, and say in the \
         commit what the change buys"
    );
}

/// A line for each that is not as it was.
fn differing(wanted: &Numbers, counted: &Numbers) -> String {
    let mut lines = String::new();
    for name in wanted.keys().filter(|name| !counted.contains_key(*name)) {
        writeln!(lines, "{name}: is written down, and there is no such work").unwrap();
    }
    for (name, now) in counted {
        let Some(before) = wanted.get(name) else {
            writeln!(lines, "{name}: {now}, and no number is written down").unwrap();
            continue;
        };
        let ratio = *now as f64 / *before as f64;
        println!("{name}: {now} instructions, {ratio:.3} of what is written down");
        if now.abs_diff(*before) * 100 > before * TOLERANCE_PERCENT {
            writeln!(
                lines,
                "{name}: {now} instructions, {before} before: {ratio:.3} of it"
            )
            .unwrap();
        }
    }
    lines
}

/// Two at a time, for two cores.
fn count_all() -> Numbers {
    let listed = Command::new(PROGRAM).arg("list").output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<&str> = names.lines().collect();
    assert!(!names.is_empty());
    let mut counted = Numbers::new();
    for two in names.chunks(2) {
        thread::scope(|scope| {
            let count = |name: &&str| {
                let name = (*name).to_owned();
                scope.spawn(move || (count(&name), name))
            };
            let running: Vec<_> = two.iter().map(count).collect();
            for one in running {
                let (count, name) = one.join().unwrap();
                counted.insert(name, count);
            }
        });
    }
    counted
}

/// Of one piece of work: what the longer run has more.
fn count(name: &str) -> u64 {
    let (few, many) = (instructions(name, TIMES.0), instructions(name, TIMES.1));
    (many - few) / (TIMES.1 - TIMES.0)
}

fn instructions(name: &str, times: u64) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .args([PROGRAM, name, &times.to_string()]);
    let output = valgrind.output();
    let output = output.unwrap_or_else(|why| {
        panic!("valgrind counts instructions and does not start: {why}; apt-get install valgrind")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let total = said.lines().find_map(|line| line.split_once("refs:"));
    let (_, total) = total.unwrap_or_else(|| panic!("valgrind printed no total: {said}"));
    total.trim().replace(',', "").parse().unwrap()
}

/// `PROFILE NAME NUMBER` in each line.
fn read(file: &PathBuf) -> BTreeMap<String, Numbers> {
    let mut all = BTreeMap::<String, Numbers>::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [profile, name, number] = words[..] {
            let numbers = all.entry(profile.to_owned()).or_default();
            numbers.insert(name.to_owned(), number.parse().unwrap());
        }
    }
    all
}

fn write(file: &PathBuf, all: &BTreeMap<String, Numbers>) {
    let mut text = String::new();
    for (profile, numbers) in all {
        for (name, number) in numbers {
            writeln!(text, "{profile} {name} {number}").unwrap();
        }
    }
    fs::write(file, text).unwrap();
}

#[test]
fn a_number_that_moves_by_more_than_the_tolerance_is_seen() {
    let of = |number| Numbers::from([("apply".to_owned(), number)]);
    assert_eq!(differing(&of(1_000), &of(1_030)), "");
    assert!(differing(&of(1_000), &of(1_031)).contains("1.031 of it"));
    assert!(differing(&of(1_000), &of(969)).contains("0.969 of it"));
    assert!(differing(&Numbers::new(), &of(1)).contains("no number is written down"));
    assert!(differing(&of(1), &Numbers::new()).contains("there is no such work"));
}
