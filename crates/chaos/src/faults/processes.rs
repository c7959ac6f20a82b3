//! Faults that are signals, and those that a user's script makes.

use std::process::{Child, Command, Stdio};

use super::{Begun, Effect, Running, called, resolve};
use crate::plan::Kind;
use crate::schedule::Victim;
use crate::stage::Stage;

fn all(stage: &Stage, victims: &[Victim]) -> Result<Vec<usize>, String> {
    let mut places = Vec::new();
    for victim in victims {
        let place = resolve(stage, *victim)?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

fn listed(stage: &Stage, places: &[usize]) -> String {
    let names: Vec<String> = places.iter().map(|place| called(stage, *place)).collect();
    names.join("; ")
}

struct Killed {
    places: Vec<usize>,
    died: bool,
}

pub(super) fn kill(stage: &mut Stage, victims: &[Victim]) -> Result<Begun, String> {
    let places = all(stage, victims)?;
    let what = format!("SIGKILL to {}", listed(stage, &places));
    let mut died = true;
    for place in &places {
        died &= stage.nodes[*place].kill();
    }
    let nodes = places.clone();
    Ok(Begun {
        running: Box::new(Killed { places, died }),
        what,
        nodes,
        clients: Vec::new(),
    })
}

impl Running for Killed {
    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        let mut note = String::new();
        for place in &self.places {
            if let Err(why) = stage.start_node(*place) {
                note = why;
            }
        }
        Some(Effect {
            took_effect: self.died && note.is_empty(),
            counters: [("killed".to_owned(), self.places.len() as u64)].into(),
            note,
        })
    }
}

struct Paused {
    places: Vec<usize>,
    seen: bool,
}

pub(super) fn pause(stage: &mut Stage, victims: &[Victim]) -> Result<Begun, String> {
    let places = all(stage, victims)?;
    let what = format!("SIGSTOP to {}", listed(stage, &places));
    for place in &places {
        stage.nodes[*place].pause();
    }
    let nodes = places.clone();
    Ok(Begun {
        running: Box::new(Paused {
            places,
            seen: false,
        }),
        what,
        nodes,
        clients: Vec::new(),
    })
}

impl Running for Paused {
    fn watch(&mut self, stage: &mut Stage) {
        let mut places = self.places.iter();
        self.seen |= places.all(|place| stage.nodes[*place].is_stopped());
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        for place in &self.places {
            stage.nodes[*place].resume();
        }
        Some(stopped(self.seen, self.places.len()))
    }
}

fn stopped(seen: bool, processes: usize) -> Effect {
    Effect {
        took_effect: seen,
        counters: [("stopped".to_owned(), processes as u64)].into(),
        note: match seen {
            true => String::new(),
            false => "the kernel did not show it as stopped".to_owned(),
        },
    }
}

struct PausedClient {
    number: u32,
    seen: bool,
}

pub(super) fn pause_client(stage: &mut Stage, number: u32) -> Result<Begun, String> {
    stage.crew.pause(number);
    Ok(Begun {
        running: Box::new(PausedClient {
            number,
            seen: false,
        }),
        what: format!("SIGSTOP to c{number}"),
        nodes: Vec::new(),
        clients: vec![number],
    })
}

impl Running for PausedClient {
    fn watch(&mut self, stage: &mut Stage) {
        self.seen |= stage.crew.is_stopped(self.number);
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        stage.crew.resume(self.number);
        Some(stopped(self.seen, 1))
    }
}

/// The user's own script makes the fault.
struct Hooked {
    command: String,
    kind: Kind,
    called: Child,
    /// `begin` has ended well.
    begun: Option<bool>,
    /// `heal` was called.
    healing: Option<Child>,
}

pub(super) fn hook(stage: &Stage, kind: Kind) -> Result<Begun, String> {
    let target = stage.plan.target.as_ref();
    let command = target.and_then(|target| target.hook.clone());
    let command = command.ok_or("no script was given with --hook")?;
    let called = call(&command, "begin", kind)?;
    Ok(Begun {
        what: format!("{command} begin {kind}"),
        running: Box::new(Hooked {
            command,
            kind,
            called,
            begun: None,
            healing: None,
        }),
        nodes: Vec::new(),
        clients: Vec::new(),
    })
}

fn call(command: &str, word: &str, kind: Kind) -> Result<Child, String> {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("{command} {word} {kind}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // A script that hangs ends with the run.
    crate::sys::confine(&mut shell, None);
    let called = shell.spawn();
    called.map_err(|cause| format!("cannot call {command}: {cause}"))
}

fn ended_well(child: &mut Child) -> Option<bool> {
    match child.try_wait() {
        Ok(status) => status.map(|status| status.success()),
        Err(_) => Some(false),
    }
}

impl Running for Hooked {
    fn watch(&mut self, _: &mut Stage) {
        if self.begun.is_none() {
            self.begun = ended_well(&mut self.called);
        }
    }

    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        self.watch(stage);
        let begun = self.begun?;
        if self.healing.is_none() {
            match call(&self.command, "heal", self.kind) {
                Ok(child) => self.healing = Some(child),
                Err(note) => {
                    return Some(Effect {
                        note,
                        ..Effect::default()
                    });
                }
            }
        }
        let healed = self.healing.as_mut().and_then(ended_well)?;
        let note = match (begun, healed) {
            (true, true) => "the script said that it was done",
            (false, _) => "`begin` ended with an error",
            (_, false) => "`heal` ended with an error",
        };
        Some(Effect {
            took_effect: begun && healed,
            counters: std::collections::BTreeMap::new(),
            note: note.to_owned(),
        })
    }
}
