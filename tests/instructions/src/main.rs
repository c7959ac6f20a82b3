//! Does one kind of work a number of times, so that its instructions can be counted from outside.
//!
//! A duration on a shared machine says nothing below a factor of two. The number of instructions is the same
//! on every run, so a change of a few percent is seen. What it does not see: waiting, memory that is far
//! away, and branches that are guessed wrong.
#![allow(
    clippy::unwrap_used,
    reason = "work that fails has no number of instructions"
)]

mod works;
#[path = "../../../crates/core/benches/world/mod.rs"]
mod world;

use std::process::ExitCode;

use crate::works::WORKS;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = match words.as_slice() {
        [list] if list == "list" => {
            WORKS.iter().for_each(|work| println!("{}", work.name));
            return ExitCode::SUCCESS;
        }
        [name, times] => WORKS
            .iter()
            .find(|work| work.name == name)
            .zip(times.parse().ok()),
        _ => None,
    };
    let Some((work, times)) = found else {
        eprintln!("got {words:?}, expected `list`, or a name of the list and how often it is done");
        return ExitCode::FAILURE;
    };
    (work.run)(times);
    ExitCode::SUCCESS
}
