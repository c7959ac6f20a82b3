//! The scripts in `client/scripts`, which the clients in Rust, Go and Python pass alike: this plays
//! the server's side, and judges. What a script is made of, and which orders a program under test gets and
//! answers, is written in `client/scripts/README.md`.
//!
//! `RINGFENCE_SCRIPT=NAME` runs only the scripts whose file names contain NAME, and prints each step.
#![allow(clippy::unwrap_used)]

mod frames;
mod languages;
mod pattern;
mod play;
mod runner;
mod rust;
mod script;
mod stage;
mod suite;
mod wire;

#[test]
fn rust() {
    suite::run("rust", || Ok(runner::Runner::in_process()));
}

#[test]
fn go() {
    let program = languages::go();
    suite::run("go", move || {
        runner::Runner::start(&mut languages::go_runner(&program))
    });
}

#[test]
fn python() {
    let program = languages::python();
    suite::run("python", move || {
        runner::Runner::start(&mut languages::python_runner(&program))
    });
}
