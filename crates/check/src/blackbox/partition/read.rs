//! What each operation did to the lease that it names, or to all leases of its session.

use std::collections::{HashMap, HashSet};

use super::super::spec::Step;
use super::{Lease, MayTransfer, OpenEnded, Timed};
use crate::history::{Acquire, Checked, Op, Outcome};
use crate::recording::{Operation, Recording};

/// How the protocol names a request whose number its session has given up.
const STALE_REQUEST: &str = "STALE_REQUEST";

/// What a cancel says of the acquire that it took back.
#[derive(Clone, Copy)]
enum Fate {
    /// It had no effect.
    Void,
    /// It was granted with this token before this time.
    Granted { token: u64, by: u64 },
}

struct Reading {
    leases: HashMap<String, Lease>,
    /// By session and request number.
    fates: HashMap<(u64, u64), Fate>,
    /// The leases of each session.
    of_session: HashMap<u64, HashSet<String>>,
}

pub(super) fn read(recording: &Recording) -> HashMap<String, Lease> {
    let mut reading = Reading {
        leases: HashMap::new(),
        fates: HashMap::new(),
        of_session: HashMap::new(),
    };
    for operation in &recording.operations {
        reading.note_cancel(operation);
    }
    for (at, operation) in recording.operations.iter().enumerate() {
        match is_forgotten(operation) {
            true => reading.operation(at, &in_doubt(operation)),
            false => reading.operation(at, operation),
        }
    }
    // Only now it is known which leases a session had to do with.
    for (at, operation) in recording.operations.iter().enumerate() {
        reading.end_of_session(at, operation);
    }
    for ended in &recording.session_ends {
        let session = ended.session;
        reading.everywhere(session, |lease| {
            // Before the lease hears of the session it makes no difference that it has ended.
            let heard = lease.sessions.get(&session).copied().unwrap_or_default();
            lease.steps.push(Timed {
                step: Step::Dead { session },
                by: None,
                begin: heard.min(ended.t),
                end: ended.t,
                operation: None,
            });
        });
    }
    reading.leases
}

/// Whether all that was said is that the request's number was given up: what an earlier try of it
/// had done was forgotten with the number.
fn is_forgotten(operation: &Operation) -> bool {
    matches!(&operation.outcome, Outcome::Refused { reason } if reason == STALE_REQUEST)
}

/// The same request, of which it is unknown what it did.
fn in_doubt(operation: &Operation) -> Operation {
    Operation {
        outcome: Outcome::Unknown {
            error: STALE_REQUEST.to_owned(),
        },
        ..operation.clone()
    }
}

impl Reading {
    fn note_cancel(&mut self, operation: &Operation) {
        let (Op::Cancel { request }, Some(session)) = (&operation.op, operation.session) else {
            return;
        };
        let fate = match operation.outcome {
            Outcome::Removed | Outcome::Voided => Fate::Void,
            Outcome::StillGranted { token, .. } => Fate::Granted {
                token,
                by: operation.end.unwrap_or(u64::MAX),
            },
            _ => return,
        };
        self.fates.insert((session, *request), fate);
    }

    fn lease(&mut self, name: &str) -> &mut Lease {
        if !self.leases.contains_key(name) {
            let lease = Lease {
                name: name.to_owned(),
                ..Lease::default()
            };
            self.leases.insert(name.to_owned(), lease);
        }
        self.leases.get_mut(name).expect("inserted a moment ago")
    }

    /// Notes that a session has to do with a lease from this time on.
    fn involve(&mut self, session: u64, name: &str, from: u64) {
        let heard = self.lease(name).sessions.entry(session).or_insert(from);
        *heard = from.min(*heard);
        let leases = self.of_session.entry(session).or_default();
        if !leases.contains(name) {
            leases.insert(name.to_owned());
        }
    }

    fn everywhere(&mut self, session: u64, mut each: impl FnMut(&mut Lease)) {
        for name in self.of_session.get(&session).into_iter().flatten() {
            if let Some(lease) = self.leases.get_mut(name) {
                each(lease);
            }
        }
    }

    /// Adds a step that an answered operation took.
    fn step(&mut self, name: &str, at: usize, operation: &Operation, step: Step) {
        let Some(end) = operation.end else { return };
        let alive = !matches!(step, Step::Dead { .. } | Step::Kill { .. });
        self.lease(name).steps.push(Timed {
            step,
            by: operation.session.filter(|_| alive),
            begin: operation.begin,
            end,
            operation: Some(at),
        });
    }

    fn operation(&mut self, at: usize, operation: &Operation) {
        let session = operation.session;
        match (&operation.op, session) {
            (Op::Open { acquire, .. }, _) => self.open(at, operation, acquire.as_ref()),
            (Op::Acquire(acquire), Some(session)) => {
                self.acquire(at, operation, acquire, Some(session), &operation.outcome);
            }
            (Op::Release { lease, token, .. }, Some(session)) => {
                self.involve(session, lease, operation.begin);
                let token = *token;
                match &operation.outcome {
                    Outcome::Released => {
                        self.step(lease, at, operation, Step::Release { session, token });
                    }
                    other => self.not_ended(at, operation, lease, token, other),
                }
            }
            (Op::Transfer { lease, token, to }, Some(session)) => {
                self.involve(session, lease, operation.begin);
                self.transfer(at, operation, lease, *token, *to);
            }
            (Op::Revoke { lease, token, .. }, _) => self.revoke(at, operation, lease, *token),
            (Op::Check { lease, token }, _) => {
                let token = *token;
                let step = match operation.outcome {
                    Outcome::Checked(Checked::Current) => Step::Held {
                        session: None,
                        token,
                    },
                    Outcome::Checked(Checked::Superseded(newest)) => {
                        Step::Superseded { token, newest }
                    }
                    Outcome::Checked(Checked::Ended) => Step::NotCurrent { token },
                    Outcome::Checked(Checked::Unknown) => Step::Above { token },
                    _ => return,
                };
                self.step(lease, at, operation, step);
            }
            (Op::Get { lease }, _) => {
                let step = match operation.outcome {
                    Outcome::Lease {
                        session,
                        token: Some(token),
                        ..
                    } => Step::Held { session, token },
                    Outcome::Lease {
                        session: None,
                        token: None,
                        ..
                    } => Step::Free,
                    _ => return,
                };
                self.step(lease, at, operation, step);
            }
            (Op::Cancel { .. }, Some(session)) => {
                if let Outcome::StillGranted { lease, token } = &operation.outcome {
                    self.involve(session, lease, operation.begin);
                    let step = Step::Held {
                        session: Some(session),
                        token: *token,
                    };
                    self.step(lease, at, operation, step);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, at: usize, operation: &Operation, acquire: Option<&Acquire>) {
        let Some(acquire) = acquire else { return };
        let unknown = Outcome::Unknown {
            error: String::new(),
        };
        match &operation.outcome {
            Outcome::Opened {
                session, acquired, ..
            } => {
                let outcome = acquired.as_deref().unwrap_or(&unknown);
                self.acquire(at, operation, acquire, Some(*session), outcome);
            }
            Outcome::Unknown { .. } => self.acquire(at, operation, acquire, None, &unknown),
            _ => {}
        }
    }

    fn acquire(
        &mut self,
        at: usize,
        operation: &Operation,
        acquire: &Acquire,
        session: Option<u64>,
        outcome: &Outcome,
    ) {
        let name = &acquire.lease;
        let open_ended = OpenEnded {
            session,
            from: operation.begin,
        };
        let Some(session) = session else {
            self.lease(name).open_ended.push(open_ended);
            return;
        };
        self.involve(session, name, operation.begin);
        let inline = matches!(operation.op, Op::Open { .. }).then_some(1);
        let request = operation.request.or(inline);
        let fate = request.and_then(|request| self.fates.get(&(session, request)).copied());
        let mut granted = |token, end| {
            self.lease(name).steps.push(Timed {
                step: Step::Grant { session, token },
                by: Some(session),
                begin: operation.begin,
                end,
                operation: Some(at),
            });
        };
        let end = operation.end.unwrap_or(u64::MAX);
        match outcome {
            Outcome::Granted { token } => granted(*token, end),
            Outcome::Ended { token } => {
                granted(*token, end);
                self.step(name, at, operation, Step::Over { token: *token });
            }
            Outcome::Held { session, token, .. } => {
                let step = Step::Held {
                    session: Some(*session),
                    token: *token,
                };
                self.step(name, at, operation, step);
            }
            Outcome::Queued { .. } | Outcome::Blocked(_) => {
                self.step(name, at, operation, Step::Free);
            }
            Outcome::Unknown { .. } | Outcome::SessionExpired | Outcome::Cancelled => {
                match (fate, outcome) {
                    (Some(Fate::Granted { token, by }), _) => granted(token, by),
                    (Some(Fate::Void), _) | (None, Outcome::Cancelled) => {}
                    (None, _) => self.lease(name).open_ended.push(open_ended),
                }
                if *outcome == Outcome::SessionExpired {
                    self.step(name, at, operation, Step::Dead { session });
                }
            }
            _ => {}
        }
    }

    /// A release or a hand-over that did not come about, or may not have.
    fn not_ended(
        &mut self,
        at: usize,
        operation: &Operation,
        name: &str,
        token: u64,
        outcome: &Outcome,
    ) {
        let Some(session) = operation.session else {
            return;
        };
        match outcome {
            Outcome::StaleToken { current } => {
                self.step(name, at, operation, Step::NotCurrent { token });
                if let Some(current) = *current {
                    let step = Step::Held {
                        session: None,
                        token: current,
                    };
                    self.step(name, at, operation, step);
                }
            }
            Outcome::NotHolder => {
                self.step(name, at, operation, Step::HeldByOther { session, token });
            }
            Outcome::SessionExpired => {
                self.step(name, at, operation, Step::Dead { session });
                self.may_end(name, token, operation.begin);
            }
            Outcome::Unknown { .. } => self.may_end(name, token, operation.begin),
            _ => {}
        }
    }

    fn may_end(&mut self, name: &str, token: u64, from: u64) {
        let known = self.lease(name).token_may_end.entry(token).or_insert(from);
        *known = from.min(*known);
    }

    fn transfer(
        &mut self,
        at: usize,
        operation: &Operation,
        name: &str,
        token: u64,
        to: Option<u64>,
    ) {
        let Some(session) = operation.session else {
            return;
        };
        match operation.outcome {
            Outcome::Transferred { to, token: new } => {
                self.involve(to, name, operation.begin);
                let step = Step::Transfer {
                    session,
                    token,
                    to,
                    new,
                };
                self.step(name, at, operation, step);
            }
            Outcome::NotWaiting => {
                let step = Step::Held {
                    session: Some(session),
                    token,
                };
                self.step(name, at, operation, step);
            }
            Outcome::Unknown { .. } | Outcome::SessionExpired => {
                let from = operation.begin;
                let may = MayTransfer { session, to, from };
                let lease = self.lease(name);
                lease.may_transfer.entry(token).or_default().push(may);
                if operation.outcome == Outcome::SessionExpired {
                    self.step(name, at, operation, Step::Dead { session });
                }
            }
            ref other => self.not_ended(at, operation, name, token, other),
        }
    }

    fn revoke(&mut self, at: usize, operation: &Operation, name: &str, token: u64) {
        match operation.outcome {
            Outcome::Done => self.step(name, at, operation, Step::Revoke { token }),
            Outcome::StaleToken { current } => {
                self.step(name, at, operation, Step::RevokeStale { token });
                if let Some(current) = current {
                    let step = Step::Held {
                        session: None,
                        token: current,
                    };
                    self.step(name, at, operation, step);
                }
            }
            Outcome::Unknown { .. } => {
                let lease = self.lease(name);
                let known = lease.token_may_be_revoked.entry(token);
                let known = known.or_insert(operation.begin);
                *known = operation.begin.min(*known);
            }
            _ => {}
        }
    }

    /// What ends a session does so on each of its leases.
    fn end_of_session(&mut self, at: usize, operation: &Operation) {
        let session = match (&operation.op, &operation.outcome) {
            (Op::Close, Outcome::Closed | Outcome::SessionExpired)
            | (Op::Release { close: true, .. }, Outcome::Released) => operation.session,
            (Op::Evict { session }, Outcome::Closed | Outcome::Done) => Some(*session),
            _ => None,
        };
        let (Some(session), Some(end)) = (session, operation.end) else {
            return;
        };
        let begin = operation.begin;
        self.everywhere(session, |lease| {
            lease.steps.push(Timed {
                step: Step::Kill { session },
                by: None,
                begin,
                end,
                operation: Some(at),
            });
        });
    }
}
