//! `ringfence demo`: a paused holder that became stale, and what its write does to a store.
//!
//! Everything is real: three nodes, a store in an SQLite file, two workers, each a process; the
//! signals are real, too. The story is played twice, without and with a guard in the store.

mod act;
mod actor;
mod caller;
mod picture;
mod stage;
mod store;
mod tale;
mod timeline;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringfence_core::Mode;
use serde_json::json;

use act::{A_ADDS, B_ADDS, Ending};
use picture::Panel;
use stage::Stage;
use store::FIRST_BALANCE;

use super::output::Output;
use super::{Failure, Global, exit, parse, signals};

pub(crate) use store::DemoStore;
pub(crate) use worker::DemoWorker;

/// How long the demo may take altogether.
const LIMIT: Duration = Duration::from_secs(40);

/// Show what a paused leader does to a store, without and with fencing tokens; about 15 s
///
/// Three nodes, a store and two workers run as processes of this machine, on free ports and in a
/// temporary directory; nothing is left behind. The exit code is 1 if any step is not as announced.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence demo
  ringfence demo --svg accident.svg")]
pub(crate) struct Demo {
    /// Write a picture of both acts to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// How much rights bind in the demo's cluster: off, permissive or enforced; with enforced, the
    /// workers get the right to their lease, and no other
    #[arg(long, default_value = "off", value_name = "MODE", value_parser = parse::mode)]
    access: Mode,
}

impl Demo {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let output = Output::new(global);
        output.note(
            "Three nodes, a store and two workers are started: real processes, real signals.",
        );
        let mut stage = tokio::select! {
            stage = Stage::set(self.access) => stage?,
            signal = signals::stop() => return Err(signals::interrupted(signal)),
        };
        if let Some(granted) = stage.granted() {
            output.note(format!("Rights bind, and one was given: {granted}"));
        }
        let played = tokio::select! {
            played = tokio::time::timeout(LIMIT, both_acts(&mut stage, output)) => match played {
                Ok(played) => played,
                Err(_) => Err(Failure::new(exit::NEGATIVE, "NOT_AS_TOLD", "not done within 40 s")
                    .hint("run it again on a machine that is less busy")),
            },
            signal = signals::stop() => Err(signals::interrupted(signal)),
        };
        stage.strike().await;
        let (without, with) = played?;
        end(output, &without, &with)?;
        if let Some(file) = &self.svg {
            paint(file, &without, &with)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn both_acts(stage: &mut Stage, output: Output) -> Result<(Ending, Ending), Failure> {
    output.note(format!("Nodes: {}.\n", stage.cast()));
    output.note("ACT 1. The workers take turns by a lease, but the store has no guard.\n");
    let without = act::play(stage, 1, false, output).await?;
    let [first, second] = B_ADDS;
    let corrupted = FIRST_BALANCE + A_ADDS;
    if without.balance != corrupted {
        let seen = without.balance.to_string();
        return Err(actor::not_told(
            "the unguarded store",
            &corrupted.to_string(),
            &seen,
        ));
    }
    output.note(format!(
        "\n  The balance is {}. {first} and {second} had been added to {FIRST_BALANCE}, stored and \
         confirmed,\n  and are lost: the store is corrupt.\n",
        without.balance
    ));

    let healed = stage.heal().await?;
    output.note(format!(
        "ACT 2. The same again, with a guard in the store ({healed} has been started again).\n"
    ));
    let with = act::play(stage, 2, true, output).await?;
    let correct = FIRST_BALANCE + first + second;
    if with.balance != correct {
        let seen = with.balance.to_string();
        return Err(actor::not_told(
            "the guarded store",
            &correct.to_string(),
            &seen,
        ));
    }
    output.note(format!(
        "\n  The balance is {}: every write that was confirmed is in it.\n",
        with.balance
    ));
    Ok((without, with))
}

/// Writes the picture of both acts.
fn paint(file: &Path, without: &Ending, with: &Ending) -> Result<(), Failure> {
    let lost: i64 = B_ADDS.iter().sum();
    let svg = picture::draw(&[
        Panel {
            title: "Without a guard: worker A is stopped, its lease expires, and it writes anyway"
                .into(),
            drawing: &without.drawing,
            verdict: format!(
                "the balance is {}: the {lost} that B added, stored and confirmed, are lost",
                without.balance
            ),
            correct: false,
        },
        Panel {
            title: "With a guard: the store has seen a greater token and refuses the write".into(),
            drawing: &with.drawing,
            verdict: format!(
                "the balance is {}: every write that was confirmed is in it",
                with.balance
            ),
            correct: true,
        },
    ]);
    std::fs::write(file, svg).map_err(|cause| {
        let message = format!("cannot write {}: {cause}", file.display());
        Failure::new(exit::SYSTEM, "FAULT", message)
    })
}

fn end(output: Output, without: &Ending, with: &Ending) -> Result<(), Failure> {
    let (token_a, token_b) = with.tokens;
    let verdict = format!(
        "Verdict: worker A woke up with token {token_a} and believed that it held the lease,\n\
         but the store had seen token {token_b} and refused its write; without the guard the\n\
         same write destroyed {} of {}.",
        with.balance - FIRST_BALANCE,
        with.balance,
    );
    output.note(format!("ACT 2, drawn:\n\n{}", with.drawing));
    let object = json!({
        "verdict": "STALE_TOKEN",
        "token": token_a,
        "newest": token_b,
        "unguarded_balance": without.balance,
        "guarded_balance": with.balance,
    });
    output.result(&object, verdict)
}
