//! `top` at a terminal.

use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{Dev, Said, await_that, ringfence, signal};
use crate::terminal::Terminal;

/// What leaves the screen that a program has to itself.
const LEFT: &str = "\u{1b}[?1049l";

fn top(dev: &Dev, arguments: &str) -> Terminal {
    let script = format!("stty cols 100 rows 24; $R top {arguments}; echo code=$?");
    Terminal::start(dev, &["sh", "-c", &script])
}

impl Terminal {
    /// What was drawn, without what moves the cursor.
    fn drawn(&self) -> String {
        let mut text = String::new();
        let screen = self.screen.lock().unwrap();
        let mut letters = screen.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\u{1b}' => drop(letters.find(char::is_ascii_alphabetic)),
                letter => text.push(letter),
            }
        }
        text
    }

    #[track_caller]
    fn draws(&self, what: &str) {
        await_that(what, || self.drawn().contains(what));
    }
}

#[test]
fn nodes_and_leases_are_drawn_as_they_change_and_the_terminal_comes_back() {
    let dev = Dev::start(3);
    dev.run(&["lease", "acquire", "q/first", "--ttl", "1m"])
        .object();
    let mut terminal = top(&dev, "--every 200ms");
    terminal.draws("term ");
    terminal.draws("follower");
    terminal.draws("q/first");

    dev.run(&["lease", "acquire", "q/second", "--ttl", "1m"])
        .object();
    terminal.draws("q/second");
    // A history.
    terminal.types("\r");
    terminal.types("\x1b[B\r");
    terminal.draws("who held q/first");
    terminal.types("/q/s\r");
    terminal.draws("1 leases of q/s");
    assert!(!terminal.screen.lock().unwrap().contains(LEFT));
    terminal.types("q");

    terminal.draws("code=0");
    assert!(terminal.screen.lock().unwrap().contains(LEFT));
}

#[test]
fn a_cluster_that_lost_its_majority_says_so_and_ctrl_c_gives_the_terminal_back() {
    let dev = Dev::start(3);
    let mut terminal = top(&dev, "--every 200ms --timeout 2s");
    terminal.draws("follower");
    for pid in &dev.pids()[1..] {
        signal(*pid, Signal::KILL);
    }
    terminal.draws("down");
    terminal.draws("NO LEADER");
    terminal.types("\x03");
    terminal.draws("code=0");
    assert!(terminal.screen.lock().unwrap().contains(LEFT));
}

#[test]
fn without_a_terminal_it_names_the_commands_for_programs() {
    let asked = |arguments: &[&str]| -> Said {
        let mut command = ringfence();
        command.arg("top").args(arguments).stdin(Stdio::null());
        command.output().unwrap().into()
    };
    for (arguments, got) in [
        (&[][..], "no terminal"),
        (&["--json"], "prints no JSON"),
        (&["--every", "1ms"], "--every is 1ms"),
    ] {
        let said = asked(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(got), "{said:?}");
    }
    assert!(asked(&[]).err.contains("cluster status --json"));
}
