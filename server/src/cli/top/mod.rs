//! `ringfence top`: the nodes and the leases of a cluster on a terminal, as they change.

mod keys;
mod look;
mod picture;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{Failure, Global, exit, signals};
use crate::duration;
use look::Question;
use screen::{Act, Screen};

/// The shortest time between two looks: each asks every node.
const EVERY_MIN: Duration = Duration::from_millis(200);

/// Watch the nodes and the leases of a cluster on the terminal
///
/// Every node is asked once a second, and says what it knows itself. Keys: q ends it, / narrows the
/// leases to a prefix, the arrows choose one, Enter shows who held it before. At most 1,000 leases are
/// listed; nothing is changed. If no node answers and one refuses the credential, it ends with 77.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence top
  ringfence top reports/ --every 5s")]
pub(crate) struct Top {
    /// Only leases whose names begin with it
    #[arg(default_value = "")]
    prefix: String,
    /// How long to wait between two looks, 200ms or more
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = duration::parse)]
    every: Duration,
}

impl Top {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        self.check(global)?;
        global.tls.check(global)?;
        let question = Question {
            prefix: self.prefix,
            opened: None,
        };
        let mut screen = Screen::new(question.prefix.clone(), self.every);
        let (asked, questions) = watch::channel(question);
        // One sight waits at most: a terminal that is slow is shown the newest.
        let (sights, mut seen) = mpsc::channel(1);
        tokio::spawn(look::again_and_again(
            global.clone(),
            self.every,
            questions,
            sights,
        ));

        let mut terminal = ratatui::try_init().map_err(|cause| unusable(&cause))?;
        let _restored = Restored;
        let mut keys = keys::read();
        let mut signal = std::pin::pin!(signals::stop());
        let mut answered = false;
        loop {
            let drawn = terminal.draw(|frame| picture::draw(frame, &mut screen));
            drawn.map_err(|cause| unusable(&cause))?;
            tokio::select! {
                Some(mut sight) = seen.recv() => {
                    answered |= sight.nodes.iter().any(|node| node.said.is_ok());
                    // Nothing was ever seen, and no later look would show more.
                    if let Some(denied) = sight.denied().filter(|_| !answered) {
                        return Err(denied);
                    }
                    screen.sees(sight);
                },
                key = keys.recv() => match key {
                    None => return Ok(ExitCode::SUCCESS),
                    Some(key) => match screen.takes(key) {
                        Act::Quit => return Ok(ExitCode::SUCCESS),
                        Act::Ask => {
                            asked.send(screen.question()).ok();
                        }
                        Act::Nothing => {}
                    },
                },
                signal = &mut signal => return Err(signals::interrupted(signal)),
            }
        }
    }

    /// Refuses what cannot be shown.
    fn check(&self, global: &Global) -> Result<(), Failure> {
        if self.every < EVERY_MIN {
            let got = duration::show(duration::millis(self.every));
            return Err(Failure::usage(format!("--every is {got}")).hint("200ms or more"));
        }
        if global.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let message = match global.json {
                true => "top draws on a terminal and prints no JSON",
                false => "stdin or stdout is no terminal, and top draws on one",
            };
            return Err(Failure::usage(message).hint(
                "for programs: `ringfence cluster status --json`, `ringfence lease list --json` and \
                 `ringfence lease watch --json`",
            ));
        }
        Ok(())
    }
}

/// Gives the terminal back as it was, however the command ends.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn unusable(cause: &io::Error) -> Failure {
    Failure::new(
        exit::SYSTEM,
        "FAULT",
        format!("the terminal cannot be used: {cause}"),
    )
}
