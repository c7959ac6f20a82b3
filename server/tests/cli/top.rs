//! `top` at a terminal.

use std::process::Stdio;

use rustix::process::Signal;

use crate::access::Node;
use crate::harness::{Dev, Said, await_that, ringfence, signal};
use crate::terminal::Terminal;

/// What leaves the screen that a program has to itself.
const LEFT: &str = "\u{1b}[?1049l";

const COLUMNS: usize = 100;
const ROWS: usize = 24;

fn top(dev: &Dev, arguments: &str) -> Terminal {
    let script = format!("stty cols {COLUMNS} rows {ROWS}; $R top {arguments}; echo code=$?");
    Terminal::start(dev, &["sh", "-c", &script])
}

impl Terminal {
    /// What stands on the screen: only what changes is drawn, each piece where it belongs.
    fn drawn(&self) -> String {
        let mut lines = vec![vec![' '; COLUMNS]; ROWS];
        let (mut row, mut column) = (0, 0);
        let screen = self.screen.lock().unwrap();
        let mut letters = screen.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\u{1b}' => {
                    let mut asked = String::new();
                    let end = letters.find(|letter| {
                        asked.push(*letter);
                        letter.is_ascii_alphabetic()
                    });
                    // `ESC [ ROW ; COLUMN H` is the one that matters here.
                    let place = asked.trim_start_matches('[').trim_end_matches('H');
                    if let (Some('H'), Some((to_row, to_column))) = (end, place.split_once(';')) {
                        row = to_row.parse::<usize>().unwrap() - 1;
                        column = to_column.parse::<usize>().unwrap() - 1;
                    }
                }
                '\r' => column = 0,
                '\n' => row += 1,
                letter => {
                    if let Some(cell) = lines.get_mut(row).and_then(|line| line.get_mut(column)) {
                        *cell = letter;
                    }
                    column += 1;
                }
            }
        }
        let lines = lines.into_iter().map(String::from_iter);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether a line of the shell ends like this, behind what was drawn.
    fn says(&self, what: &str) -> bool {
        let screen = self.screen.lock().unwrap();
        screen.lines().any(|line| line.trim_end().ends_with(what))
    }

    #[track_caller]
    fn draws(&self, what: &str) {
        await_that(what, || self.drawn().contains(what) || self.says(what));
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
    terminal.draws("1 lease of q/s");
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
    terminal.draws("NO MAJORITY");
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

#[test]
fn a_credential_that_no_node_takes_ends_it_with_the_refusal() {
    let node = Node::start(&["--access", "enforced"]);
    let dev = Dev::start(1);
    let token = node.dir.path().join("token");
    std::fs::write(&token, "this-is-no-token").unwrap();
    let arguments = format!(
        "--endpoints {} --token-file {}",
        node.client,
        token.display()
    );
    let mut terminal = top(&dev, &arguments);
    terminal.draws("code=77");
    let screen = terminal.screen.lock().unwrap().clone();
    assert!(screen.contains("no cluster token"), "{screen}");
    terminal.process.wait().unwrap();
}
