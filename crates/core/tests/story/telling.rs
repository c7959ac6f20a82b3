//! Outcomes and events in the words of a story.

use std::collections::BTreeMap;
use std::fmt::Write;

use ringfence_core::{
    Acquired, Event, Granted, LeaseName, Outcome, Rejection, SessionId, StateMachine,
};

/// Who is behind which session.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<SessionId, String>);

impl Names {
    pub(crate) fn add(&mut self, session: SessionId, name: &str) {
        self.0.entry(session).or_insert_with(|| name.to_string());
    }

    fn of(&self, session: SessionId) -> String {
        self.0
            .get(&session)
            .cloned()
            .unwrap_or_else(|| format!("session {session}"))
    }

    pub(crate) fn tell(&self, outcome: &Outcome, events: &[Event]) -> String {
        let mut out = self.outcome(outcome) + "\n";
        for event in events {
            writeln!(out, "  * {}", self.event(event)).unwrap();
        }
        out
    }

    fn outcome(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Done => "done".into(),
            Outcome::Opened(opened) => {
                let repeated = if opened.repeated {
                    "open already: "
                } else {
                    "opened "
                };
                let acquired = opened.acquired.as_ref();
                let acquired = acquired.map(|acquired| format!(", {}", self.acquired(acquired)));
                let name = self.of(opened.session);
                format!(
                    "{repeated}{name}, ttl {}{}",
                    opened.ttl,
                    acquired.unwrap_or_default()
                )
            }
            Outcome::Acquired(acquired) => self.acquired(acquired),
            Outcome::Cancelled(cancelled) => format!("cancel: {cancelled:?}"),
            Outcome::Released { token } => format!("released token={token}"),
            Outcome::Transferred { to, token } => {
                format!("transferred to {} token={token}", self.of(*to))
            }
            Outcome::Closed { cause } => format!("closed, cause {cause:?}"),
            Outcome::Renewed(renewed) => {
                let mut out = format!("renewed at {}", renewed.time);
                for session in &renewed.ended {
                    write!(out, ", {} has ended", self.of(*session)).unwrap();
                }
                for (session, lost) in &renewed.lost {
                    for lost in lost {
                        let (name, token) = (&lost.name, lost.token);
                        write!(out, ", {} has lost {name}#{token}", self.of(*session)).unwrap();
                    }
                }
                out
            }
            Outcome::NodeId(id) => format!("node id {id}"),
            Outcome::AccessChanged { set_at, token } => {
                format!("rights changed at {set_at}, token {token:?}")
            }
            Outcome::Object(written) => format!("written {written:?}"),
            Outcome::Rejected(rejection) => format!("refused: {}", self.rejection(rejection)),
        }
    }

    fn acquired(&self, acquired: &Acquired) -> String {
        match acquired {
            Acquired::Granted(granted) => self.granted(granted),
            Acquired::Waiting { name } => format!("waiting for {name}"),
            Acquired::Ended { name, token, cause } => {
                format!("ended {name} token={token}, {cause:?}")
            }
            Acquired::TimedOut { name } => format!("timed out waiting for {name}"),
            Acquired::Cancelled { name } => format!("cancelled {name:?}"),
            Acquired::Refused(rejection) => format!("refused: {}", self.rejection(rejection)),
        }
    }

    fn granted(&self, granted: &Granted) -> String {
        let Granted {
            name,
            token,
            session,
            request,
            ..
        } = granted;
        format!(
            "granted {name} token={token} to {} request={request}",
            self.of(*session)
        )
    }

    fn rejection(&self, rejection: &Rejection) -> String {
        match rejection {
            Rejection::Held { holder, mine } => {
                let mine = if *mine { " (mine)" } else { "" };
                format!(
                    "HELD by {} token={}{mine}",
                    self.of(holder.session),
                    holder.token
                )
            }
            Rejection::PermissionDenied { needed } => format!("denied, needs: {needed}"),
            other => format!("{other:?}"),
        }
    }

    fn event(&self, event: &Event) -> String {
        match event {
            Event::Granted(granted) => self.granted(granted),
            Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } => {
                format!(
                    "ended {name} token={token} of {}: {cause:?}",
                    self.of(*session)
                )
            }
            Event::WaitEnded {
                name,
                session,
                request,
                why,
            } => {
                format!(
                    "wait ended {name} of {} request={request}: {why:?}",
                    self.of(*session)
                )
            }
            // A session is named only after its entry: its number is its name here.
            Event::SessionOpened { session } => format!("session {session} opened"),
            Event::SessionEnded { session, cause } => {
                format!("session ended {}: {cause:?}", self.of(*session))
            }
            Event::Forgotten { name, floor } => format!("forgotten {name} floor={floor}"),
        }
    }

    pub(crate) fn tell_lease(&self, machine: &StateMachine, name: &LeaseName) -> String {
        let Some(lease) = machine.get(name) else {
            return format!("{name} is not known\n");
        };
        let holder = lease.holder.as_ref().map_or("nobody".into(), |held| {
            format!(
                "{} token={} for {}",
                self.of(held.session),
                held.token,
                lease.remaining
            )
        });
        let floor = lease.floor.map_or("none".into(), |floor| floor.to_string());
        let (waiters, blocked) = (lease.waiters, lease.blocked);
        format!("held by {holder}, waiters={waiters} floor={floor} blocked={blocked}\n")
    }

    pub(crate) fn tell_state(&self, machine: &StateMachine) -> String {
        let summary = machine.summary();
        format!("{summary:?}\nnext deadline {:?}\n", machine.next_deadline())
    }
}
