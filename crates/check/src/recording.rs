//! A history in memory: operations with their beginnings and ends put together, and the tries of one
//! request merged.

use std::collections::HashMap;
use std::io::BufRead;

use crate::history::{
    Belief, CutOff, Fault, Guard, Header, Invoked, KeepAlive, NodeSeen, Op, Outcome, ReadError,
    Reader, Record, Returned, SessionEnded, WatchEvent, WatchProgress, WatchStarted,
};

/// The most operations of a history that is checked.
pub const OPERATIONS_MAX: usize = 20_000_000;

/// Why a history cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its records contradict each other in a way that no service can have caused.
    #[error("line {line}: {why}; the recorder is wrong")]
    Recorder {
        /// The line, from 1.
        line: u64,
        /// Which rule of the format the record breaks.
        why: String,
    },
    /// It has too many operations.
    #[error("the history has more than {OPERATIONS_MAX} operations; record for a shorter time")]
    TooLong,
}

/// An operation with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation's number, unique within the history.
    pub id: u64,
    /// The client's number, as its recorder chose it.
    pub client: u32,
    /// The session that sent it; none for `open`, for reads, and for operators.
    pub session: Option<u64>,
    /// The session's request number; none if it has none or the recorder does not know it.
    pub request: Option<u64>,
    /// The request, with its arguments.
    pub op: Op,
    /// When it began, in ns.
    pub begin: u64,
    /// When the answer had come, in ns; none if it is unknown what became of it, so that it may
    /// still take effect after the end of the history.
    pub end: Option<u64>,
    /// The answer, or [`Outcome::Unknown`] if none came.
    pub outcome: Outcome,
    /// The log index of the answer, if it was reported.
    pub index: Option<u64>,
    /// When the client learned that it stands in the queue, in ns.
    pub queued: Option<u64>,
}

/// Two answers to one request that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(crate) first: Operation,
    pub(crate) second: Operation,
}

/// What a watch reported, in the order of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// It began, or went on.
    Started(WatchStarted),
    /// It reported a grant or an end.
    Event(WatchEvent),
    /// It reported how far it is.
    Progress(WatchProgress),
}

/// A history in memory.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The recorder, the assumed clocks and the version.
    pub header: Header,
    /// In the order in which they began; the tries of one request are one.
    pub operations: Vec<Operation>,
    /// Keep-alives that extended a session, in the order of the history.
    pub keep_alives: Vec<KeepAlive>,
    /// Sessions that clients learned have ended.
    pub session_ends: Vec<SessionEnded>,
    /// Intervals in which a client's library called a grant held.
    pub beliefs: Vec<Belief>,
    /// Visits at guarded stores.
    pub guards: Vec<Guard>,
    /// Events and progress of all watches, in the order of the history.
    pub watched: Vec<Watched>,
    /// Injected faults, with how often each had an effect.
    pub faults: Vec<Fault>,
    /// What nodes were seen to be.
    pub nodes: Vec<NodeSeen>,
    /// The last line, if it was cut off.
    pub cut_off: Option<CutOff>,
    pub(crate) contradictions: Vec<Contradiction>,
}

impl Recording {
    /// Reads a history to its end.
    ///
    /// # Errors
    /// [`RecordingError`] if it cannot be read, or is none that a recorder can have written.
    pub fn read<R: BufRead>(mut reader: Reader<R>) -> Result<Self, RecordingError> {
        let mut gathered = Gathered::new(reader.header().clone());
        while let Some(record) = reader.next() {
            let taken = gathered.take(record?);
            taken.map_err(|why| RecordingError::Recorder {
                line: reader.line(),
                why,
            })?;
            if gathered.recording.operations.len() > OPERATIONS_MAX {
                return Err(RecordingError::TooLong);
            }
        }
        gathered.recording.cut_off = reader.cut_off();
        Ok(gathered.finish())
    }

    /// Takes records that are in memory; `lines` in errors count from the header.
    ///
    /// # Errors
    /// [`RecordingError`] if no recorder can have written them.
    pub fn of(
        header: Header,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, RecordingError> {
        let mut gathered = Gathered::new(header);
        for (record, line) in records.into_iter().zip(2..) {
            let taken = gathered.take(record);
            taken.map_err(|why| RecordingError::Recorder { line, why })?;
        }
        Ok(gathered.finish())
    }

    /// The first time of the history, in ns; times for people count from it.
    #[must_use]
    pub fn origin(&self) -> u64 {
        let operations = self.operations.iter().map(|operation| operation.begin);
        let guards = self.guards.iter().map(|guard| guard.begin);
        let beliefs = self.beliefs.iter().map(|belief| belief.from);
        let keep_alives = self.keep_alives.iter().map(|keep_alive| keep_alive.sent);
        let watched = self.watched.iter().map(|watched| match watched {
            Watched::Started(started) => started.t,
            Watched::Event(event) => event.t,
            Watched::Progress(progress) => progress.t,
        });
        let all = operations.chain(guards).chain(beliefs).chain(keep_alives);
        all.chain(watched).min().unwrap_or(0)
    }
}

struct Gathered {
    recording: Recording,
    /// Where each operation stands.
    by_id: HashMap<u64, usize>,
}

impl Gathered {
    fn new(header: Header) -> Self {
        Self {
            recording: Recording {
                header,
                operations: Vec::new(),
                keep_alives: Vec::new(),
                session_ends: Vec::new(),
                beliefs: Vec::new(),
                guards: Vec::new(),
                watched: Vec::new(),
                faults: Vec::new(),
                nodes: Vec::new(),
                cut_off: None,
                contradictions: Vec::new(),
            },
            by_id: HashMap::new(),
        }
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        let recording = &mut self.recording;
        match record {
            Record::Header(_) => return Err("a second header".to_owned()),
            Record::Invoked(invoked) => return self.invoked(invoked),
            Record::Returned(returned) => return self.returned(returned),
            Record::Queued(queued) => {
                let operation = self.operation(queued.id)?;
                in_order(operation.begin, queued.t, "queued before it began")?;
                operation.queued = Some(queued.t);
            }
            Record::KeepAlive(keep_alive) => {
                in_order(
                    keep_alive.sent,
                    keep_alive.acked,
                    "acked before it was sent",
                )?;
                recording.keep_alives.push(keep_alive);
            }
            Record::SessionEnded(ended) => recording.session_ends.push(ended),
            Record::Belief(belief) => {
                in_order(belief.from, belief.until, "a belief ends before it begins")?;
                recording.beliefs.push(belief);
            }
            Record::Guard(guard) => {
                in_order(guard.begin, guard.end, "a guard answers before it is asked")?;
                recording.guards.push(guard);
            }
            Record::WatchStarted(started) => recording.watched.push(Watched::Started(started)),
            Record::WatchEvent(event) => recording.watched.push(Watched::Event(event)),
            Record::WatchProgress(progress) => recording.watched.push(Watched::Progress(progress)),
            Record::Fault(fault) => recording.faults.push(fault),
            Record::Node(node) => recording.nodes.push(node),
            Record::Note(_) => {}
        }
        Ok(())
    }

    fn operation(&mut self, id: u64) -> Result<&mut Operation, String> {
        let at = self.by_id.get(&id);
        let at = at.ok_or_else(|| format!("operation {id} never began"))?;
        Ok(&mut self.recording.operations[*at])
    }

    fn invoked(&mut self, invoked: Invoked) -> Result<(), String> {
        let in_session = !matches!(
            invoked.op,
            Op::Open { .. }
                | Op::Check { .. }
                | Op::Get { .. }
                | Op::Revoke { .. }
                | Op::Evict { .. }
        );
        if in_session && invoked.session.is_none() {
            return Err(format!(
                "operation {} belongs to a session, and has none",
                invoked.id
            ));
        }
        let at = self.recording.operations.len();
        if self.by_id.insert(invoked.id, at).is_some() {
            return Err(format!("operation {} begins twice", invoked.id));
        }
        self.recording.operations.push(Operation {
            id: invoked.id,
            client: invoked.client,
            session: invoked.session,
            request: invoked.request,
            op: invoked.op,
            begin: invoked.t,
            end: None,
            outcome: Outcome::Unknown {
                error: String::new(),
            },
            index: None,
            queued: None,
        });
        Ok(())
    }

    fn returned(&mut self, returned: Returned) -> Result<(), String> {
        let id = returned.id;
        let operation = self.operation(id)?;
        if operation.end.is_some() {
            return Err(format!("operation {id} returns twice"));
        }
        in_order(operation.begin, returned.t, "it returns before it began")?;
        if !fits(&operation.op, &returned.outcome) {
            let outcome = serde_json::to_string(&returned.outcome).unwrap_or_default();
            return Err(format!("operation {id} cannot be answered with {outcome}"));
        }
        let unknown = matches!(returned.outcome, Outcome::Unknown { .. });
        operation.end = (!unknown).then_some(returned.t);
        operation.outcome = returned.outcome;
        operation.index = returned.index;
        Ok(())
    }

    fn finish(mut self) -> Recording {
        self.recording
            .operations
            .sort_by_key(|operation| operation.begin);
        merge_tries(&mut self.recording);
        self.recording
    }
}

/// Whether an operation of this kind can be answered so at all.
fn fits(op: &Op, outcome: &Outcome) -> bool {
    if let Outcome::Unknown { .. }
    | Outcome::NotDone { .. }
    | Outcome::Refused { .. }
    | Outcome::SessionExpired = outcome
    {
        return true;
    }
    match op {
        Op::Open { acquire, .. } => match (outcome, acquire) {
            (Outcome::Opened { acquired: None, .. }, _) => true,
            (
                Outcome::Opened {
                    acquired: Some(acquired),
                    ..
                },
                Some(ask),
            ) => fits(&Op::Acquire(ask.clone()), acquired),
            _ => false,
        },
        Op::Acquire(_) => matches!(
            outcome,
            Outcome::Granted { .. }
                | Outcome::Ended { .. }
                | Outcome::TimedOut
                | Outcome::Cancelled
                | Outcome::Held { .. }
                | Outcome::Queued { .. }
                | Outcome::Blocked(_)
        ),
        Op::Cancel { .. } => matches!(
            outcome,
            Outcome::Removed | Outcome::StillGranted { .. } | Outcome::Settled | Outcome::Voided
        ),
        Op::Release { .. } => matches!(
            outcome,
            Outcome::Released | Outcome::StaleToken { .. } | Outcome::NotHolder
        ),
        Op::Transfer { .. } => matches!(
            outcome,
            Outcome::Transferred { .. }
                | Outcome::StaleToken { .. }
                | Outcome::NotHolder
                | Outcome::NotWaiting
        ),
        Op::Close => *outcome == Outcome::Closed,
        Op::Evict { .. } => matches!(outcome, Outcome::Closed | Outcome::Done),
        Op::Check { .. } => matches!(outcome, Outcome::Checked(_)),
        Op::Get { .. } => matches!(outcome, Outcome::Lease { .. }),
        Op::Revoke { .. } => matches!(outcome, Outcome::Done | Outcome::StaleToken { .. }),
    }
}

fn in_order(first: u64, second: u64, otherwise: &str) -> Result<(), String> {
    if first <= second {
        return Ok(());
    }
    Err(format!("{otherwise}: {second} ns is before {first} ns"))
}

/// What makes operations tries of one.
#[derive(PartialEq, Eq, Hash)]
enum Same {
    Request(u64, u64),
    Open(String),
}

fn same(operation: &Operation) -> Option<Same> {
    if let Op::Open { open_id, .. } = &operation.op {
        return open_id.clone().map(Same::Open);
    }
    Some(Same::Request(operation.session?, operation.request?))
}

fn merge_tries(recording: &mut Recording) {
    let operations = std::mem::take(&mut recording.operations);
    let mut first: HashMap<Same, usize> = HashMap::new();
    let mut merged: Vec<Operation> = Vec::with_capacity(operations.len());
    for operation in operations {
        let known = same(&operation).map(|same| *first.entry(same).or_insert(merged.len()));
        match known.and_then(|at| merged.get_mut(at)) {
            Some(known) if known.op == operation.op => {
                if !go_together(known, &operation) {
                    recording.contradictions.push(Contradiction {
                        first: known.clone(),
                        second: operation.clone(),
                    });
                }
                merge(known, operation);
            }
            // A number that was used for something else: the cluster has to refuse one of them.
            _ => merged.push(operation),
        }
    }
    recording.operations = merged;
}

/// Whether both answers can be answers to one request.
fn go_together(a: &Operation, b: &Operation) -> bool {
    let (Some(a_end), Some(b_end)) = (a.end, b.end) else {
        return true;
    };
    // Tries that were under way together were answered in an order that is unknown: an answer on
    // a slow connection is passed by a later one on another.
    let crossed = a.begin <= b_end && b.begin <= a_end;
    let a_first = a_end <= b_end;
    ((a_first || crossed) && may_follow(&a.outcome, &b.outcome))
        || ((!a_first || crossed) && may_follow(&b.outcome, &a.outcome))
}

/// Whether a request that was answered so may be answered so when it is repeated.
fn may_follow(first: &Outcome, second: &Outcome) -> bool {
    match (first, second) {
        // Whatever was answered: later the session may be gone, and the number confirmed.
        (_, Outcome::SessionExpired | Outcome::NotDone { .. } | Outcome::Refused { .. })
        | (Outcome::NotDone { .. }, _) => true,
        // An acquire is answered from the present, and two answers may cross.
        (
            Outcome::Granted { token: a } | Outcome::Ended { token: a },
            Outcome::Granted { token: b } | Outcome::Ended { token: b },
        ) => a == b,
        // So is a cancel of what had been granted: by then it may have been given back.
        (Outcome::StillGranted { .. }, Outcome::Settled) => true,
        (Outcome::Opened { session: a, .. }, Outcome::Opened { session: b, .. }) => a == b,
        (first, second) => first == second,
    }
}

/// Adds another try of `known`; the earliest answer counts.
fn merge(known: &mut Operation, other: Operation) {
    known.begin = known.begin.min(other.begin);
    known.queued = [known.queued, other.queued].into_iter().flatten().min();
    // Says that it is too late to say what the request did.
    let late =
        |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. } | Outcome::SessionExpired);
    let better = match (&known.outcome, &other.outcome) {
        (_, Outcome::NotDone { .. }) => false,
        (Outcome::NotDone { .. }, _) => true,
        // A try of unknown outcome may have had its effect all the same.
        (Outcome::Unknown { .. }, told) if late(told) => false,
        (told, _) if late(told) && !late(&other.outcome) => true,
        (_, told) if late(told) && !late(&known.outcome) => false,
        _ => other.end.is_some() && known.end.is_none_or(|end| other.end < Some(end)),
    };
    if better {
        known.end = other.end;
        known.outcome = other.outcome;
        known.index = other.index;
    }
}
