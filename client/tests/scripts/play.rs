//! One script against one program, step by step.

use std::collections::HashMap;
use std::time::Duration;

use ringfence_client::{BootClock, Clock, Moment};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::pattern::{self, Seen};
use crate::runner::Runner;
use crate::script::Script;
use crate::stage::{KeepAlives, Stage};
use crate::wire::Mode;

/// Longer than any healthy step takes.
const LONG: Duration = Duration::from_secs(10);
/// How long what is left of a script may take to end.
const CLEAN_UP: Duration = Duration::from_secs(3);
/// Between two looks at what should come to hold.
const LOOK: Duration = Duration::from_millis(20);
/// The requests that a script has to expect; the others are answered without it, unless it says
/// `manual`.
const STRICT: [&str; 4] = ["acquire", "cancel", "release", "transfer"];

struct Play<'a> {
    stage: Stage,
    runner: &'a mut Runner,
    seen: Seen,
    /// What was started and not yet looked at, and its number at the runner.
    started: HashMap<String, (u64, oneshot::Receiver<Value>)>,
    /// When what a label names was seen.
    times: HashMap<String, Moment>,
    /// The request that a label names.
    requests: HashMap<String, usize>,
    strict: Vec<String>,
}

pub(crate) async fn answer(answer: oneshot::Receiver<Value>) -> Result<Value, String> {
    match timeout(LONG, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("the runner has ended".into()),
        Err(_) => Err(format!("no answer of the runner within {LONG:?}")),
    }
}

/// The outcome, and whether the runner has given up all that it had.
pub(crate) async fn play(
    script: &Script,
    runner: &mut Runner,
    verbose: bool,
) -> (Result<(), String>, bool) {
    let stage = match Stage::new(script.nodes).await {
        Ok(stage) => stage,
        Err(error) => return (Err(error.to_string()), true),
    };
    let addresses = stage.addresses();
    let seen = addresses.map(|(name, address)| (name.to_owned(), json!({"address": address})));
    let mut play = Play {
        seen: seen.collect(),
        stage,
        runner,
        started: HashMap::new(),
        times: HashMap::new(),
        requests: HashMap::new(),
        strict: STRICT.map(str::to_owned).into(),
    };
    let mut outcome = Ok(());
    for (at, step) in script.steps.iter().enumerate() {
        let done = play.step(step).await;
        if verbose {
            eprintln!("{} step {}: {step}: {done:?}", script.name, at + 1);
        }
        if let Err(why) = done {
            outcome = Err(format!("step {} {step}: {why}", at + 1));
            break;
        }
    }
    let outcome = outcome.and_then(|()| play.nothing_unexpected());
    let outcome = outcome.map_err(|why| format!("{why}{}", play.history()));
    play.stage.answer_everything().ok();
    let (_, reset) = play.runner.ask("reset", &json!({}));
    let is_clean = timeout(CLEAN_UP, reset).await.is_ok_and(|one| one.is_ok());
    (outcome, is_clean)
}

/// The members of a step that are not for the runner.
const OWN: [&str; 8] = [
    "do",
    "start",
    "ok",
    "error",
    "eventually",
    "steadily",
    "for_ms",
    "why",
];

impl Play<'_> {
    async fn step(&mut self, step: &Value) -> Result<(), String> {
        let resolved = pattern::resolve(step, &self.seen)?;
        let step = &resolved;
        let members = step.as_object().ok_or("a step is an object")?;
        // The member that says what the step is comes first in none of them, so it is looked for.
        let verbs = [
            "do",
            "start",
            "result",
            "pending",
            "eventually",
            "steadily",
            "expect",
            "answer",
            "none",
            "keep_alives",
            "automatic",
            "manual",
            "cut",
            "silence",
            "refuse",
            "revive",
            "greeting",
            "refuse_streams",
            "going_away",
            "delay_ms",
            "until_ms",
            "abandon",
        ];
        let mut found = verbs.iter().filter(|verb| members.contains_key(**verb));
        let verb = match (found.next(), found.next()) {
            (Some(verb), None) => *verb,
            // These two are also what is waited for.
            _ => return Err("not one of the kinds of steps".into()),
        };
        let named = &step[verb];
        match verb {
            "do" => {
                let answer = self.ask(verb, step)?.1;
                let answer = self::answer(answer).await?;
                self.take_answer(step, answer)
            }
            "start" => {
                let started = self.ask(verb, step)?;
                self.started.insert(label(step)?, started);
                Ok(())
            }
            "result" => {
                let (_, waiting) = self.take_started(named)?;
                let answer = self::answer(waiting).await?;
                self.take_answer(&with_label(step, named), answer)
            }
            "pending" => {
                let name = text(named)?;
                let (_, waiting) = self.started.get_mut(name).ok_or("it was not started")?;
                match waiting.try_recv() {
                    Err(oneshot::error::TryRecvError::Empty) => Ok(()),
                    Ok(answer) => Err(format!("it has ended: {answer}")),
                    Err(error) => Err(error.to_string()),
                }
            }
            "abandon" => {
                let name = text(named)?;
                let (target, _) = self.started.get(name).ok_or("it was not started")?;
                let (_, done) = self.runner.ask("abandon", &json!({"target": *target}));
                self::answer(done).await.map(drop)
            }
            "eventually" => self.eventually(step).await,
            "steadily" => self.steadily(step).await,
            "expect" => self.expect(step).await,
            "answer" => self.answer(step),
            "none" => self.none(step).await,
            "keep_alives" => {
                let keep_alives = match named.as_str() {
                    Some("answer") => KeepAlives::Reply(json!({})),
                    Some("ignore") => KeepAlives::Nothing,
                    Some(other) => return Err(format!("no way to answer keep-alives: {other}")),
                    None => match named.get("refusal_frame") {
                        Some(told) => KeepAlives::Refusal(told.clone()),
                        None => KeepAlives::Reply(named.clone()),
                    },
                };
                self.stage.set_keep_alives(keep_alives);
                Ok(())
            }
            "automatic" | "manual" => {
                let automatic = verb == "automatic";
                for kind in named.as_array().into_iter().flatten() {
                    let kind = text(kind)?;
                    self.stage.set_automatic(kind, automatic);
                    self.strict.retain(|other| other != kind);
                    if !automatic {
                        self.strict.push(kind.to_owned());
                    }
                }
                Ok(())
            }
            "cut" => self.stage.cut(&nodes(named)),
            "silence" => self.stage.set_wires(&nodes(named), Mode::Silent),
            "refuse" => self.stage.set_wires(&nodes(named), Mode::Refuse),
            "revive" => self.stage.set_wires(&nodes(named), Mode::Pass),
            "greeting" => self.stage.greet(named),
            "refuse_streams" => self.stage.refuse_streams(&step["node"], named),
            "going_away" => {
                let leader = step["leader"].as_str().unwrap_or_default();
                self.stage.going_away(&nodes(named), leader)
            }
            "delay_ms" => {
                tokio::time::sleep(millis(named)?).await;
                Ok(())
            }
            "until_ms" => {
                let since = self.times.get(text(&step["since"])?);
                let until = *since.ok_or("that label has no time")? + millis(named)?;
                BootClock.sleep_until(until).await;
                Ok(())
            }
            _ => Err("no such step".into()),
        }
    }

    /// Tells the runner what a step says, with what goes without saying.
    fn ask(&mut self, verb: &str, step: &Value) -> Result<(u64, oneshot::Receiver<Value>), String> {
        let what = text(&step[verb])?;
        let mut fields = step.clone();
        if let Some(members) = fields.as_object_mut() {
            members.retain(|key, _| !OWN.contains(&key.as_str()));
        }
        if what == "connect" && fields["endpoints"].is_null() {
            let addresses = self.stage.addresses().map(|(_, address)| address);
            fields["endpoints"] = addresses.collect::<Vec<_>>().into();
        }
        // Most scripts have one client and one session.
        let absent = match what {
            "connect" => ("as", "client"),
            "open" | "shut_down" => ("client", "client"),
            "acquire" | "close" | "check_session" => ("session", "session"),
            _ => ("lease", "lease"),
        };
        if fields[absent.0].is_null() {
            fields[absent.0] = absent.1.into();
        }
        match what {
            "open" if fields["as"].is_null() => fields["as"] = "session".into(),
            "acquire" if fields["as"].is_null() => fields["as"] = "lease".into(),
            _ => {}
        }
        Ok(self.runner.ask(what, &fields))
    }

    fn take_started(&mut self, named: &Value) -> Result<(u64, oneshot::Receiver<Value>), String> {
        let name = text(named)?;
        self.started
            .remove(name)
            .ok_or_else(|| format!("{name} was not started"))
    }

    /// Compares an answer with what a step expects: success, unless it says `error`.
    fn take_answer(&mut self, step: &Value, answer: Value) -> Result<(), String> {
        match (answer.get("ok"), answer.get("error"), step.get("error")) {
            (Some(value), _, None) => {
                if let Some(expected) = step.get("ok") {
                    pattern::check(expected, value)?;
                }
                let name = step["as"].as_str().map(str::to_owned);
                let absent = match step["do"].as_str() {
                    Some("open") => Some("session"),
                    Some("acquire") => Some("lease"),
                    _ => None,
                };
                if let Some(name) = name.or(absent.map(str::to_owned)) {
                    self.times.insert(name.clone(), BootClock.now());
                    self.seen.insert(name, value.clone());
                }
                Ok(())
            }
            (_, Some(error), Some(expected)) => {
                pattern::check(expected, error).map_err(|why| format!("the error {error}: {why}"))
            }
            _ => Err(format!("the program answered {answer}")),
        }
    }

    /// Asks until the answer is as expected.
    async fn eventually(&mut self, step: &Value) -> Result<(), String> {
        let begin = BootClock.now();
        loop {
            let answer = self.ask("eventually", step)?.1;
            let answer = self::answer(answer).await?;
            match self.take_answer(step, answer) {
                Err(why) if BootClock.now().saturating_since(begin) > LONG => {
                    return Err(format!("not within {LONG:?}: {why}"));
                }
                Err(_) => tokio::time::sleep(LOOK).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Asks for a while; each answer is as expected.
    async fn steadily(&mut self, step: &Value) -> Result<(), String> {
        let (begin, duration) = (BootClock.now(), millis(&step["for_ms"])?);
        loop {
            let answer = self.ask("steadily", step)?.1;
            let answer = self::answer(answer).await?;
            self.take_answer(step, answer)?;
            if BootClock.now().saturating_since(begin) >= duration {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for a request. Of a kind that is answered automatically, for the next one that is as
    /// expected; of others it is the next one that has to be.
    async fn expect(&mut self, step: &Value) -> Result<(), String> {
        let kind = text(&step["expect"])?;
        let strict = self.strict.iter().any(|other| other == kind);
        let nothing = json!({});
        let expected = step.get("with").unwrap_or(&nothing);
        let mut changes = self.stage.changes();
        let (begin, mut passed_over) = (BootClock.now(), String::new());
        loop {
            changes.borrow_and_update();
            for (at, one) in self.stage.received().iter().enumerate() {
                if one.seen || one.kind != kind {
                    continue;
                }
                self.stage.see(at);
                match pattern::check(expected, &one.fields) {
                    Ok(()) => {
                        if let Some(name) = step["as"].as_str() {
                            self.seen.insert(name.to_owned(), one.fields.clone());
                            self.times.insert(name.to_owned(), one.at);
                            self.requests.insert(name.to_owned(), at);
                        }
                        return Ok(());
                    }
                    Err(why) if strict => return Err(format!("{why}, in {}", one.fields)),
                    Err(why) => passed_over = format!("; the last one: {why}"),
                }
            }
            let left = LONG.saturating_sub(BootClock.now().saturating_since(begin));
            if timeout(left, changes.changed()).await.is_err() {
                return Err(format!("not received within {LONG:?}{passed_over}"));
            }
        }
    }

    fn answer(&mut self, step: &Value) -> Result<(), String> {
        let name = text(&step["answer"])?;
        let at = *self.requests.get(name).ok_or("no such request")?;
        let mut replies = step.as_object().into_iter().flatten();
        let reply = replies.find(|(key, _)| *key != "answer" && *key != "why");
        let (kind, told) = reply.ok_or("answered with what?")?;
        self.stage.answer(at, kind, told)
    }

    async fn none(&mut self, step: &Value) -> Result<(), String> {
        tokio::time::sleep(millis(&step["for_ms"])?).await;
        let kinds = step["none"].as_array().ok_or("none: kinds in an array")?;
        let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
        let received = self.stage.received();
        let mut found = received
            .iter()
            .filter(|one| !one.seen && kinds.contains(&one.kind));
        match found.next() {
            None => Ok(()),
            Some(one) => Err(format!("received: {} {}", one.kind, one.fields)),
        }
    }

    /// Each request that a script has to expect was expected.
    fn nothing_unexpected(&self) -> Result<(), String> {
        let received = self.stage.received();
        let is_strict = |kind: &str| self.strict.iter().any(|other| other == kind);
        let mut left = received
            .iter()
            .filter(|one| !one.seen && is_strict(one.kind));
        match left.next() {
            None => Ok(()),
            Some(one) => Err(format!("not expected: {} {}", one.kind, one.fields)),
        }
    }

    /// What was received, for a reader of a failure.
    fn history(&self) -> String {
        let mut text = String::new();
        let received = self.stage.received();
        let first = received.first().map(|one| one.at);
        for one in &received {
            let since = first.map(|first| one.at.saturating_since(first).as_millis());
            let (since, seen) = (
                since.unwrap_or(0),
                if one.seen { "" } else { " (not expected)" },
            );
            let mut fields = one.fields.clone();
            if let Some(fields) = fields.as_object_mut() {
                fields.remove("secret");
            }
            text += &format!(
                "\n    {since:5} ms {} {} {fields}{seen}",
                one.node, one.kind
            );
        }
        text
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("expected a text, got {value}"))
}

fn label(step: &Value) -> Result<String, String> {
    text(&step["as"]).map(str::to_owned)
}

fn millis(value: &Value) -> Result<Duration, String> {
    let number = value.as_u64();
    let number = number.ok_or_else(|| format!("{value} is no number of milliseconds"))?;
    Ok(Duration::from_millis(number))
}

/// `true` names all nodes.
fn nodes(named: &Value) -> Value {
    if named == &Value::Bool(true) {
        Value::Null
    } else {
        named.clone()
    }
}

fn with_label(step: &Value, name: &Value) -> Value {
    let mut step = step.clone();
    step["as"] = name.clone();
    step
}
