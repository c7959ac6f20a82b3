//! `cargo xtask planted`: switches bugs on, one at a time, and requires that tests notice.
//!
//! A layer of tests catches a bug when it fails; no test knows of any bug. Everything is built
//! once, with the feature `planted` of `ringfence-planted`, and the bug is named by a variable.

mod build;
mod layers;
mod run;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_planted::Bug;

use build::{Built, Program};
use layers::{LAYERS, Layer, Target};
use run::{Ended, Only, Trial};

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Request {
    /// Only those of core, proto, wal and guard: the layers that need no driver and no network
    #[arg(long)]
    pub quick: bool,
    /// Only this bug
    #[arg(long, value_name = "NAME", value_parser = bug_named)]
    pub bug: Option<Bug>,
    /// Only the bugs of this crate, named without `ringfence-`
    #[arg(long = "crate", value_name = "NAME", value_parser = home_named)]
    pub home: Option<&'static str>,
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
        format!("no bug is called `{name}`; there are {}", names.join(", "))
    })
}

/// The crate of this name, if it has bugs.
///
/// # Errors
/// A sentence with all names.
pub fn home_named(name: &str) -> Result<&'static str, String> {
    let mut homes: Vec<_> = Bug::ALL.iter().map(|bug| bug.home()).collect();
    homes.dedup();
    let found = homes.iter().find(|home| **home == name).copied();
    found.ok_or_else(|| format!("no bug is in `{name}`; crates are {}", homes.join(", ")))
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
        .filter(|bug| request.home.is_none_or(|home| home == bug.home()))
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
    let mut proofs = Proofs::default();
    let all = bugs.len();
    let mut verdicts = Vec::with_capacity(all);
    for (at, (bug, layers)) in (1..).zip(bugs) {
        let verdict = hunt(&built, &mut proofs, bug, &layers)?;
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

/// What single tests do by themselves, with a bug and without: on a busy machine a test may fail in
/// a crowd of others for no better reason, and what fails anyway catches nothing.
#[derive(Default)]
struct Proofs(BTreeMap<(&'static str, String, u64, Option<Bug>), bool>);

impl Proofs {
    /// Whether this test, or the whole layer, passes alone.
    fn passes(
        &mut self,
        program: &Program,
        layer: &Layer,
        test: Option<&str>,
        seed: u64,
        bug: Option<Bug>,
    ) -> Result<bool, String> {
        let key = (layer.name, test.unwrap_or_default().to_owned(), seed, bug);
        if let Some(known) = self.0.get(&key) {
            return Ok(*known);
        }
        let only = match test {
            _ if layer.target == Target::Simulation => Only::Seed,
            Some(test) => Only::Exactly(test),
            None => Only::Like(layer.filter, &[]),
        };
        let passes = run::trial(program, bug, seed, only, LIMIT)?.ended == Ended::Passed;
        self.0.insert(key, passes);
        Ok(passes)
    }

    /// Whether the bug is why this failed.
    fn confirm(
        &mut self,
        program: &Program,
        layer: &Layer,
        ended: &Ended,
        seed: u64,
        bug: Bug,
    ) -> Result<bool, String> {
        Ok(match ended {
            Ended::Passed => false,
            Ended::Failed(test) => {
                let test = Some(test.as_str());
                !self.passes(program, layer, test, seed, Some(bug))?
                    && self.passes(program, layer, test, seed, None)?
            }
            // A simulation repeats to the byte, so that only the seed without the bug is to be
            // looked at.
            Ended::Broke { .. } | Ended::Died | Ended::Hung => {
                self.passes(program, layer, None, seed, None)?
            }
        })
    }
}

/// How many tests that fail for another reason are passed over in one layer.
const PASSED_OVER_MAX: usize = 5;

/// Runs one layer after the other, and each with all its seeds, until one fails for the bug.
fn hunt(
    built: &Built<'_>,
    proofs: &mut Proofs,
    bug: Bug,
    layers: &[&'static Layer],
) -> Result<Verdict, String> {
    let mut took = Duration::ZERO;
    for layer in layers {
        let program = built.program(layer)?;
        for seed in layer.seeds {
            let mut passed_over = Vec::new();
            loop {
                let only = match layer.target {
                    Target::Simulation => Only::Seed,
                    Target::Library | Target::Binary | Target::Test(_) => {
                        Only::Like(layer.filter, &passed_over)
                    }
                };
                let trial = run::trial(program, Some(bug), *seed, only, LIMIT)?;
                took += trial.took;
                if proofs.confirm(program, layer, &trial.ended, *seed, bug)? {
                    let caught = Some((*layer, trial));
                    return Ok(Verdict { bug, caught, took });
                }
                let Ended::Failed(test) = trial.ended else {
                    break;
                };
                println!("        {}: {test} fails, but not for this bug", bug.name());
                passed_over.push(test);
                if passed_over.len() == PASSED_OVER_MAX {
                    break;
                }
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
            let simulated = match &trial.ended {
                Ended::Broke { at, .. } => format!("{at} s"),
                _ => String::from("-"),
            };
            format!(
                "{name:<30} {:<10} {seed:>4} {simulated:>9} {seconds:>7.1} s  {}",
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
        "\n{:<30} {:<10} {:>4} {:>9} {:>9}  {}\n",
        "bug", "caught by", "seed", "simulated", "took", "test, or promise"
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
    reason = "how long it took is shown to a person"
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
