//! The log, replayed: what each request was answered, and who held what at which index.

use std::collections::{HashMap, HashSet};

use ringfence_core::{
    Command, ENDS_PER_ENTRY_MAX, EndCause, Event, FencingToken, GRANTS_PER_ENTRY_MAX, LeaseName,
    Outcome, Rejection, SessionEnd, SessionId, WaitEnd,
};
use ringfence_model::Model;

use super::answers::{told_acquired, told_outcome};
use crate::history;
use crate::log::Logged;
use crate::recording::Recording;

/// The greatest part of what one entry may end or grant that the model and the state machine agree
/// about: the model knows no budget.
const ENDS_MAX: usize = ENDS_PER_ENTRY_MAX as usize;
const GRANTS_MAX: usize = GRANTS_PER_ENTRY_MAX as usize;

/// An answer, and the index of the entry that gave it.
pub(super) type At = (u64, history::Outcome);

#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Every answer that could be given, in the order of the log; the first is from its first
    /// entry.
    pub(super) answers: Vec<At>,
}

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) index: u64,
    pub(super) ttl_ms: u64,
    pub(super) acquires: bool,
}

#[derive(Debug)]
pub(super) struct Grant {
    pub(super) index: u64,
    pub(super) session: u64,
    pub(super) request: u64,
    pub(super) lease: LeaseName,
    pub(super) end: Option<(u64, EndCause)>,
}

/// A lease from an index on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since {
    pub(super) index: u64,
    pub(super) holder: Option<(u64, u64)>,
    pub(super) floor: u64,
}

/// A grant or an end, as a watch tells it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) index: u64,
    pub(super) n: u32,
    pub(super) kind: history::WatchKind,
    pub(super) lease: LeaseName,
    pub(super) token: u64,
    pub(super) session: u64,
}

pub(super) struct Replay {
    model: Model,
    pub(super) entries: u64,
    pub(super) last_index: u64,
    /// By session and request number.
    pub(super) requests: HashMap<(u64, u64), Asked>,
    pub(super) opened: HashMap<u64, Opened>,
    /// Sessions by the names of their opens.
    pub(super) open_ids: HashMap<String, u64>,
    pub(super) closes: HashMap<u64, Vec<u64>>,
    pub(super) revokes: HashMap<(LeaseName, u64), Vec<At>>,
    pub(super) evicts: HashMap<u64, Vec<u64>>,
    pub(super) grants: HashMap<u64, Grant>,
    pub(super) leases: HashMap<LeaseName, Vec<Since>>,
    /// The greatest token, and from which index on.
    pub(super) greatest: Vec<(u64, u64)>,
    /// Entries that extended a session, for sessions whose keep-alives the history knows.
    pub(super) signs: HashMap<u64, Vec<u64>>,
    /// The entry at which a session ended, however.
    pub(super) ended: HashMap<u64, u64>,
    pub(super) expired: HashMap<u64, u64>,
    pub(super) events: Vec<Told>,
    /// Cluster time from an index on.
    pub(super) times: Vec<(u64, u64)>,
    watched: bool,
    of_interest: HashSet<u64>,
}

impl Replay {
    pub(super) fn of(recording: &Recording) -> Self {
        let of_interest = recording.keep_alives.iter().map(|k| k.session).collect();
        Self {
            model: Model::new(),
            entries: 0,
            last_index: 0,
            requests: HashMap::new(),
            opened: HashMap::new(),
            open_ids: HashMap::new(),
            closes: HashMap::new(),
            revokes: HashMap::new(),
            evicts: HashMap::new(),
            grants: HashMap::new(),
            leases: HashMap::new(),
            greatest: Vec::new(),
            signs: HashMap::new(),
            ended: HashMap::new(),
            expired: HashMap::new(),
            events: Vec::new(),
            times: Vec::new(),
            watched: !recording.watched.is_empty(),
            of_interest,
        }
    }

    /// Replays the next entry, unless nothing can be said from there on.
    pub(super) fn apply(&mut self, logged: Logged) -> Result<(), String> {
        if logged.index > self.last_index + 1 {
            return Err(match self.last_index {
                0 => format!(
                    "the log begins at entry {}: what was before it was purged behind a snapshot, \
                     which holds a state and not what was answered, so nothing can be said by this \
                     log; dump one that begins at entry 1, of a node that keeps all of it \
                     (--snapshot-log-bytes above what the run will write)",
                    logged.index
                ),
                last => format!("the log has no entries between {last} and {}", logged.index),
            });
        }
        if logged.index <= self.last_index && self.entries > 0 {
            return Err(format!(
                "entry {} comes after entry {}: this is no log",
                logged.index, self.last_index
            ));
        }
        self.entries += 1;
        self.last_index = logged.index;
        let Some(entry) = logged.entry else {
            return Ok(());
        };
        let (outcome, events) = self.model.apply(&entry);
        let time = self.model.time().0;
        if self.times.last().is_none_or(|&(_, last)| last < time) {
            self.times.push((entry.index, time));
        }
        let ends = |event: &&Event| matches!(event, Event::SessionEnded { .. });
        let grants = |event: &&Event| matches!(event, Event::Granted(_));
        if events.iter().filter(ends).count() > ENDS_MAX
            || events.iter().filter(grants).count() > GRANTS_MAX
        {
            return Err(format!(
                "entry {} ends or grants more than one entry may, so the model cannot tell what \
                 comes next",
                entry.index
            ));
        }
        self.take_notice(entry.index, entry.command.bare(), &outcome);
        for (event, n) in events.iter().zip(1..) {
            self.happened(entry.index, n, event);
        }
        Ok(())
    }

    fn take_notice(&mut self, index: u64, command: &Command, outcome: &Outcome) {
        match (command, outcome) {
            (Command::Open(open), Outcome::Opened(opened)) => {
                let session = opened.session.get();
                let hex = open.id.as_bytes().iter().map(|byte| format!("{byte:02x}"));
                self.open_ids.insert(hex.collect(), session);
                self.opened.entry(session).or_insert(Opened {
                    index,
                    ttl_ms: opened.ttl.0,
                    acquires: open.acquire.is_some(),
                });
                if let Some(acquired) = &opened.acquired {
                    self.answered(session, 1, (index, told_acquired(acquired)));
                }
                self.sign(opened.session, index);
            }
            (Command::OpenForPod(open), Outcome::Opened(opened)) => {
                let session = opened.session.get();
                let hex = open.id.as_bytes().iter().map(|byte| format!("{byte:02x}"));
                self.open_ids.insert(hex.collect(), session);
                self.opened.entry(session).or_insert(Opened {
                    index,
                    ttl_ms: opened.ttl.0,
                    acquires: false,
                });
                self.sign(opened.session, index);
            }
            // Another session's, which guessed; or of a caller that is not heard, which is of this
            // try only.
            (
                Command::Request(_),
                Outcome::Rejected(
                    Rejection::WrongSecret
                    | Rejection::OtherPrincipal
                    | Rejection::Banned { .. }
                    | Rejection::TokenRevoked { .. },
                ),
            ) => {}
            (Command::Request(request), outcome) => {
                let session = request.session.get();
                let told = told_outcome(outcome);
                if told != history::Outcome::SessionExpired {
                    self.sign(request.session, index);
                }
                self.answered(session, request.number.get(), (index, told));
            }
            (Command::Close { session, .. }, Outcome::Closed { .. }) => {
                self.closes.entry(session.get()).or_default().push(index);
            }
            (Command::Renew(renew), Outcome::Renewed(renewed)) => {
                for &session in &renew.sessions {
                    if renewed.ended.binary_search(&session).is_err() {
                        self.sign(session, index);
                    }
                }
            }
            (Command::Revoke(revoke), outcome) => {
                let key = (revoke.name.clone(), revoke.token.get());
                let answers = self.revokes.entry(key).or_default();
                answers.push((index, told_outcome(outcome)));
            }
            (Command::Evict(evict), Outcome::Closed { .. }) => {
                let session = evict.session.get();
                self.evicts.entry(session).or_default().push(index);
            }
            _ => {}
        }
    }

    fn sign(&mut self, session: SessionId, index: u64) {
        if self.of_interest.contains(&session.get()) {
            self.signs.entry(session.get()).or_default().push(index);
        }
    }

    fn answered(&mut self, session: u64, number: u64, answer: At) {
        let asked = self.requests.entry((session, number)).or_default();
        // Repeats mostly say the same again, and only the first of the same matters.
        if asked.answers.iter().all(|(_, known)| *known != answer.1) {
            asked.answers.push(answer);
        }
    }

    fn happened(&mut self, index: u64, n: u32, event: &Event) {
        match event {
            Event::Granted(granted) => {
                let (token, session) = (granted.token.get(), granted.session.get());
                let request = granted.request.get();
                self.since(&granted.name, index, Some((session, token)), Some(token));
                if self.greatest.last().is_none_or(|&(_, last)| last < token) {
                    self.greatest.push((index, token));
                }
                self.grants.insert(
                    token,
                    Grant {
                        index,
                        session,
                        request,
                        lease: granted.name.clone(),
                        end: None,
                    },
                );
                let told = history::Outcome::Granted { token };
                self.answered(session, request, (index, told));
                let kind = history::WatchKind::Granted;
                self.tell(
                    index,
                    n,
                    kind,
                    &granted.name,
                    granted.token,
                    granted.session,
                );
            }
            Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } => {
                self.since(name, index, None, None);
                if let Some(grant) = self.grants.get_mut(&token.get()) {
                    grant.end = Some((index, cause.clone()));
                }
                let kind = history::WatchKind::Ended(watch_cause(cause));
                self.tell(index, n, kind, name, *token, *session);
            }
            Event::WaitEnded {
                session,
                request,
                why,
                ..
            } => {
                let told = match why {
                    WaitEnd::TimedOut => history::Outcome::TimedOut,
                    WaitEnd::Cancelled => history::Outcome::Cancelled,
                    WaitEnd::SessionEnded => history::Outcome::SessionExpired,
                    // The words are the protocol's: the right is gone, or its principal is banned.
                    WaitEnd::Refused => history::Outcome::Refused {
                        reason: "PERMISSION_DENIED".to_owned(),
                    },
                };
                self.answered(session.get(), request.get(), (index, told));
            }
            Event::SessionEnded { session, cause } => {
                self.ended.insert(session.get(), index);
                if *cause == SessionEnd::Expired {
                    self.expired.insert(session.get(), index);
                }
            }
            Event::SessionOpened { .. } | Event::Forgotten { .. } => {}
        }
    }

    fn since(
        &mut self,
        name: &LeaseName,
        index: u64,
        holder: Option<(u64, u64)>,
        floor: Option<u64>,
    ) {
        let since = self.leases.entry(name.clone()).or_default();
        let before = since.last().map_or(0, |last| last.floor);
        let next = Since {
            index,
            holder,
            floor: floor.unwrap_or(before),
        };
        match since.last_mut() {
            // No reader can look into the middle of an entry.
            Some(last) if last.index == index => *last = next,
            _ => since.push(next),
        }
    }

    fn tell(
        &mut self,
        index: u64,
        n: u32,
        kind: history::WatchKind,
        lease: &LeaseName,
        token: FencingToken,
        session: SessionId,
    ) {
        if self.watched {
            self.events.push(Told {
                index,
                n,
                kind,
                lease: lease.clone(),
                token: token.get(),
                session: session.get(),
            });
        }
    }
}

fn watch_cause(cause: &EndCause) -> history::WatchCause {
    match cause {
        EndCause::Released => history::WatchCause::Released,
        EndCause::Expired => history::WatchCause::Expired,
        EndCause::Closed => history::WatchCause::Closed,
        EndCause::Revoked { .. } => history::WatchCause::Revoked,
        EndCause::Evicted { .. } => history::WatchCause::Evicted,
        EndCause::Transferred { .. } => history::WatchCause::Transferred,
        EndCause::PodEnded { .. } => history::WatchCause::PodEnded,
    }
}
