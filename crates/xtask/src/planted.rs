//! `cargo xtask planted`: switches bugs on, one at a time, and requires that tests notice.
//!
//! A layer of tests catches a bug when it fails; no test knows of any bug. Everything is built
//! once, with the feature `planted` of `ringfence-planted`, and the bug is named by a variable.

mod build;
mod layers;
mod run;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_planted::Bug;

use build::{Built, Program};
use layers::{LAYERS, Layer};
use run::{Ended, Trial};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Only the layers that need no driver and no network, and the bugs that they can have.
    pub quick: bool,
    /// Only this bug.
    pub bug: Option<Bug>,
}

/// How long a layer may take with a bug: a bug that makes it hang is noticed too.
const LIMIT: Duration = Duration::from_secs(180);

/// The bug of this name.
///
/// # Errors
/// A sentence with all names.
pub fn bug_named(name: &str) -> Result<Bug, String> {
    let mut bugs = Bug::ALL.iter();
    bugs.find(|bug| bug.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        format!(
            "error: no bug is called `{name}`; there are {}",
            names.join(", ")
        )
    })
}

/// A bug, and what became of it.
struct Verdict {
    bug: Bug,
    /// The layer that failed, and how.
    caught: Option<(&'static Layer, Trial)>,
    /// With all layers before.
    took: Duration,
}

/// Builds, plants and tells; the code is that of the process.
#[must_use]
pub fn run(request: Request, root: &Path) -> ExitCode {
    match try_run(request, root) {
        Ok(verdicts) => {
            print!("{}", table(&verdicts));
            let missed = verdicts.iter().filter(|verdict| verdict.caught.is_none());
            match missed.count() {
                0 => ExitCode::SUCCESS,
                missed => {
                    eprintln!("== {missed} bug(s) NOT caught: a test is missing for each");
                    ExitCode::FAILURE
                }
            }
        }
        Err(message) => {
            eprintln!("== planted: {message}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(request: Request, root: &Path) -> Result<Vec<Verdict>, String> {
    let bugs: Vec<(Bug, Vec<&Layer>)> = Bug::ALL
        .iter()
        .filter(|bug| request.bug.is_none_or(|only| only == **bug))
        .map(|bug| (*bug, layers_for(*bug, request.quick)))
        .filter(|(_, layers)| !layers.is_empty() || !request.quick)
        .collect();
    let mut needed: Vec<&Layer> = LAYERS.iter().collect();
    needed.retain(|layer| {
        let mut all = bugs.iter().flat_map(|(_, layers)| layers);
        all.any(|other| std::ptr::eq(*other, *layer))
    });
    if needed.is_empty() {
        return Err(
            "no layer of tests looks at that: see crates/xtask/src/planted/layers.rs".into(),
        );
    }

    let (built, took) = timed(|| Built::new(root, &needed));
    let built = built?;
    println!("== built in {:.1} s", took.as_secs_f64());
    without_a_bug(&built, &needed)?;
    let all = bugs.len();
    let mut verdicts = Vec::with_capacity(all);
    for (at, (bug, layers)) in (1..).zip(bugs) {
        let verdict = hunt(&built, bug, &layers)?;
        println!("[{at:>2}/{all}] {}", line(&verdict));
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

fn layers_for(bug: Bug, quick: bool) -> Vec<&'static Layer> {
    let mut layers: Vec<_> = LAYERS.iter().collect();
    layers.retain(|layer| layer.homes.contains(&bug.home()) && (layer.quick || !quick));
    layers
}

/// What fails anyway catches nothing.
fn without_a_bug(built: &Built, layers: &[&Layer]) -> Result<(), String> {
    for layer in layers {
        let trial = run::trial(built.program(layer)?, layer, None, layer.seeds[0], LIMIT)?;
        let seconds = trial.took.as_secs_f64();
        match &trial.ended {
            Ended::Passed => println!("   {:<10} passes without a bug, {seconds:.1} s", layer.name),
            failed => {
                return Err(format!(
                    "layer {} fails without any bug: {failed}",
                    layer.name
                ));
            }
        }
    }
    Ok(())
}

/// Runs one layer after the other, and each with all its seeds, until one fails.
fn hunt(built: &Built, bug: Bug, layers: &[&'static Layer]) -> Result<Verdict, String> {
    let mut took = Duration::ZERO;
    for layer in layers {
        let program: &Program = built.program(layer)?;
        for seed in layer.seeds {
            let trial = run::trial(program, layer, Some(bug), *seed, LIMIT)?;
            took += trial.took;
            if trial.ended != Ended::Passed {
                let caught = Some((*layer, trial));
                return Ok(Verdict { bug, caught, took });
            }
        }
    }
    let caught = None;
    Ok(Verdict { bug, caught, took })
}

fn line(verdict: &Verdict) -> String {
    let name = verdict.bug.name();
    let seconds = verdict.took.as_secs_f64();
    match &verdict.caught {
        None => format!("{name:<30} NOT CAUGHT after {seconds:.1} s"),
        Some((layer, trial)) => {
            let seed = match layer.seeds {
                [_] => String::from("-"),
                _ => trial.seed.to_string(),
            };
            format!(
                "{name:<30} {:<10} {seed:>4} {seconds:>7.1} s  {}",
                layer.name, trial.ended
            )
        }
    }
}

fn table(verdicts: &[Verdict]) -> String {
    let caught = verdicts
        .iter()
        .filter(|verdict| verdict.caught.is_some())
        .count();
    let mut text = format!(
        "\n{:<30} {:<10} {:>4} {:>9}  {}\n",
        "bug", "caught by", "seed", "after", "test"
    );
    for verdict in verdicts {
        text += &line(verdict);
        text.push('\n');
    }
    text += &format!("\n{caught} of {} planted bugs caught\n", verdicts.len());
    text
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is told to a person"
)]
fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_a_layer_that_looks_at_its_crate() {
        for bug in Bug::ALL {
            assert!(!layers_for(*bug, false).is_empty(), "{}", bug.name());
        }
    }

    #[test]
    fn thirty_bugs_are_planted_and_the_quick_ones_are_most() {
        let quick = Bug::ALL
            .iter()
            .filter(|bug| !layers_for(**bug, true).is_empty());
        assert!(Bug::ALL.len() >= 30, "{} bugs", Bug::ALL.len());
        assert!(quick.count() * 2 > Bug::ALL.len());
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_all_names() {
        assert_eq!(bug_named("ghost-waiter"), Ok(Bug::GhostWaiter));
        assert!(bug_named("ghost").is_err_and(|message| message.contains("ghost-waiter")));
    }
}
