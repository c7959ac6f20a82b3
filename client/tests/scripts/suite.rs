//! All scripts against one client, several at a time.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Moment};
use serde_json::json;

use crate::play;
use crate::runner::Runner;
use crate::script::{self, Script};

/// Scripts wait more than they work.
const AT_A_TIME: usize = 8;
/// A script that fails while this machine stood still for longer is played again: scripts tell times apart
/// that differ by 50 ms.
const STALL: Duration = Duration::from_millis(40);
const TRIES: usize = 3;

/// How late timers are in this process, to know when a machine is too busy to judge times by.
#[derive(Default)]
struct Stalls {
    seen: Mutex<Vec<Moment>>,
}

impl Stalls {
    async fn watch(&self) {
        const PAUSE: Duration = Duration::from_millis(10);
        loop {
            let before = BootClock.now();
            tokio::time::sleep(PAUSE).await;
            let now = BootClock.now();
            if now.saturating_since(before) > PAUSE + STALL {
                self.seen.lock().unwrap().push(now);
            }
        }
    }

    fn any_since(&self, begin: Moment) -> bool {
        self.seen.lock().unwrap().iter().any(|&at| at >= begin)
    }
}

/// Not captured by the test harness: also of tests that pass.
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").ok();
}

pub(crate) fn run(
    language: &'static str,
    start: impl Fn() -> Result<Runner, String> + Send + Sync + 'static,
) {
    let part = std::env::var("RINGFENCE_SCRIPT").unwrap_or_default();
    let scripts = script::all(&part);
    assert!(!scripts.is_empty(), "no script is named {part:?}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let begin = BootClock.now();
    let outcomes = runtime.block_on(play_all(language, scripts, start, !part.is_empty()));
    runtime.shutdown_background();
    let took = BootClock.now().saturating_since(begin);
    judge(language, &outcomes, part.is_empty(), took);
}

type Outcomes = BTreeMap<String, Result<(), String>>;

async fn play_all(
    language: &'static str,
    scripts: Vec<Script>,
    start: impl Fn() -> Result<Runner, String> + Send + Sync + 'static,
    verbose: bool,
) -> Outcomes {
    let stalls = Arc::new(Stalls::default());
    let watched = Arc::clone(&stalls);
    tokio::spawn(async move { watched.watch().await });
    let workers = AT_A_TIME.min(scripts.len());
    let queue = Arc::new(Mutex::new(VecDeque::from(scripts)));
    let (outcomes, start) = (Arc::new(Mutex::new(Outcomes::new())), Arc::new(start));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (queue, outcomes) = (Arc::clone(&queue), Arc::clone(&outcomes));
        let (start, stalls) = (Arc::clone(&start), Arc::clone(&stalls));
        tasks.spawn(async move {
            let mut runner = None;
            loop {
                let next = queue.lock().unwrap().pop_front();
                let Some(script) = next else {
                    return;
                };
                let outcome = play_one(&script, &*start, &mut runner, &stalls, verbose).await;
                let mark = if outcome.is_ok() { "passed" } else { "FAILED" };
                say(&format!("{language:6} {mark} {}", script.name));
                outcomes.lock().unwrap().insert(script.name, outcome);
            }
        });
    }
    tasks.join_all().await;
    std::mem::take(&mut *outcomes.lock().unwrap())
}

async fn play_one(
    script: &Script,
    start: &(impl Fn() -> Result<Runner, String> + Send + Sync),
    runner: &mut Option<Runner>,
    stalls: &Stalls,
    verbose: bool,
) -> Result<(), String> {
    for last in (0..TRIES).rev() {
        let mut ready = match runner.take() {
            Some(ready) => ready,
            None => start()?,
        };
        let hello = play::answer(ready.ask("hello", &json!({})).1).await?;
        let features = hello["ok"]["features"].as_array();
        for need in &script.needs {
            if !features.is_some_and(|features| features.contains(&need.as_str().into())) {
                *runner = Some(ready);
                return Err(format!("the runner lacks the feature {need:?}"));
            }
        }
        let begin = BootClock.now();
        let (outcome, is_clean) = play::play(script, &mut ready, verbose).await;
        // One that is not clean has things left over, and is not used again.
        if is_clean {
            *runner = Some(ready);
        }
        match outcome {
            Err(why) if last > 0 && stalls.any_since(begin) => {
                say(&format!(
                    "{}: played again, since this machine stood still: {why}",
                    script.name
                ));
            }
            outcome => return outcome,
        }
    }
    Ok(())
}

fn judge(language: &str, outcomes: &Outcomes, complete: bool, took: Duration) {
    let known = script::known(language);
    let mut wrong = Vec::new();
    for (name, outcome) in outcomes {
        match (outcome, known.get(name)) {
            (Ok(()), None) => {}
            (Err(why), Some(known)) => {
                say(&format!(
                    "{language}: known not to pass {name}: {known}: {why}"
                ));
            }
            (Err(why), None) => wrong.push(format!("{name}: {why}")),
            (Ok(()), Some(_)) => wrong.push(format!(
                "{name}: passes now; strike it out in client/scripts/known/failures.json"
            )),
        }
    }
    for name in known.keys().filter(|_| complete) {
        if !outcomes.contains_key(name) {
            wrong.push(format!(
                "{name}: known not to pass, but there is no such script"
            ));
        }
    }
    let passed = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    say(&format!(
        "{language}: {passed} of {} scripts passed in {:.1} s",
        outcomes.len(),
        took.as_secs_f64()
    ));
    assert!(wrong.is_empty(), "{language}:\n{}", wrong.join("\n"));
}
