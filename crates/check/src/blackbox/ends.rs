//! I7: no session ends by time earlier than its TTL after its last acknowledged sign of life. I10:
//! no session comes back.

use std::collections::HashMap;

use super::Told;
use crate::history::{Op, Outcome, SessionCause, WatchCause, WatchKind};
use crate::lives::{Life, Lives};
use crate::recording::{Recording, Watched};
use crate::verdict::{Report, Rule, Violation};

/// A client learned that a session has ended.
struct Ended {
    session: u64,
    t: u64,
    cause: Option<SessionCause>,
    operation: Option<u64>,
    how: &'static str,
}

pub(super) fn check(recording: &Recording, lives: &Lives, told: &Told, report: &mut Report) {
    let mut first: HashMap<u64, u64> = HashMap::new();
    for ended in ends(recording) {
        let t = first.entry(ended.session).or_insert(ended.t);
        *t = ended.t.min(*t);
        if let Some(life) = lives.get(ended.session) {
            report.violations.extend(early(&ended, life, lives, told));
        }
    }
    comes_back(recording, &first, told, report);
}

fn ends(recording: &Recording) -> impl Iterator<Item = Ended> {
    let told = recording.session_ends.iter().map(|ended| Ended {
        session: ended.session,
        t: ended.t,
        cause: ended.cause,
        operation: None,
        how: "its client learned",
    });
    let answered = recording.operations.iter().filter_map(|operation| {
        let expired = operation.outcome == Outcome::SessionExpired;
        let session = match operation.op {
            Op::Evict { session } => Some(session),
            _ => operation.session,
        };
        Some(Ended {
            session: session.filter(|_| expired)?,
            t: operation.end?,
            cause: None,
            operation: Some(operation.id),
            how: "a request was answered",
        })
    });
    let watched = recording
        .watched
        .iter()
        .filter_map(|watched| match watched {
            Watched::Event(event) if event.kind == WatchKind::Ended(WatchCause::Expired) => {
                Some(Ended {
                    session: event.session?,
                    t: event.t,
                    cause: Some(SessionCause::Expired),
                    operation: None,
                    how: "a watch reported",
                })
            }
            _ => None,
        });
    told.chain(answered).chain(watched)
}

fn early(ended: &Ended, life: &Life, lives: &Lives, told: &Told) -> Option<Violation> {
    let by_will = life.ended_by_will.is_some_and(|by_will| by_will <= ended.t);
    let by_time = match ended.cause {
        Some(cause) => cause == SessionCause::Expired,
        None => !by_will,
    };
    let not_before = lives.expires_not_before(ended.session);
    // What was acknowledged after the end is a session that came back.
    if !by_time || ended.t >= not_before || life.last_sign > ended.t {
        return None;
    }
    Some(Violation {
        rule: Rule::I7,
        t: ended.t,
        lease: None,
        operations: ended.operation.into_iter().collect(),
        what: format!(
            "session {} with a TTL of {} ms had ended by {}, as {}; but what it sent at {} was \
             acknowledged, so it cannot have run out of time before {}",
            ended.session,
            life.ttl_ms.unwrap_or_default(),
            told.time(ended.t),
            ended.how,
            told.time(life.last_sign),
            told.time(not_before),
        ),
    })
}

/// Whatever was sent after a client knew that its session had ended cannot be acknowledged.
fn comes_back(recording: &Recording, ended: &HashMap<u64, u64>, told: &Told, report: &mut Report) {
    let mut back = |session: u64, sent: u64, acked: u64, operation: Option<u64>| {
        let Some(&t) = ended.get(&session).filter(|&&t| t < sent) else {
            return;
        };
        report.violated(Violation {
            rule: Rule::I10,
            t: acked,
            lease: None,
            operations: operation.into_iter().collect(),
            what: format!(
                "session {session} had ended by {}, and what it sent at {} was acknowledged at {}",
                told.time(t),
                told.time(sent),
                told.time(acked)
            ),
        });
    };
    for keep_alive in &recording.keep_alives {
        back(keep_alive.session, keep_alive.sent, keep_alive.acked, None);
    }
    for operation in &recording.operations {
        let alive = matches!(
            operation.outcome,
            Outcome::Granted { .. } | Outcome::Released | Outcome::Transferred { .. }
        );
        if let (Some(session), Some(end)) = (operation.session.filter(|_| alive), operation.end) {
            back(session, operation.begin, end, Some(operation.id));
        }
    }
}
