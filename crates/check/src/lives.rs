//! How long sessions live at least, by what was acknowledged to them.

use std::collections::HashMap;

use crate::history::{Op, Outcome};
use crate::recording::{Operation, Recording};

/// Cluster time is counted in whole milliseconds, so a deadline may come this much early, in ns;
/// twice that, since a recorder's own times may be rounded as well.
pub(crate) const ROUNDING_NS: u64 = 2_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;

/// A session as its client's history shows it.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Its TTL in ms, if it is known.
    pub(crate) ttl_ms: Option<u64>,
    /// When the last request left that was acknowledged, in ns.
    pub(crate) last_sign: u64,
    /// From when on it may have ended otherwise than by time, in ns.
    pub(crate) ended_by_will: Option<u64>,
}

/// The sessions of a recording, by number.
#[derive(Clone, Debug)]
pub(crate) struct Lives {
    lives: HashMap<u64, Life>,
    rate_bound_ppm: u64,
}

impl Lives {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut lives = Self {
            lives: HashMap::new(),
            rate_bound_ppm: recording.header.rate_bound_ppm.into(),
        };
        for keep_alive in &recording.keep_alives {
            let life = lives.of_session(keep_alive.session);
            life.ttl_ms = Some(keep_alive.ttl_ms);
            life.last_sign = life.last_sign.max(keep_alive.sent);
        }
        for operation in &recording.operations {
            lives.take_notice(operation);
        }
        lives
    }

    fn of_session(&mut self, session: u64) -> &mut Life {
        self.lives.entry(session).or_insert(Life {
            ttl_ms: None,
            last_sign: 0,
            ended_by_will: None,
        })
    }

    fn take_notice(&mut self, operation: &Operation) {
        if let Outcome::Opened {
            session, ttl_ms, ..
        } = operation.outcome
        {
            let life = self.of_session(session);
            life.ttl_ms = Some(ttl_ms);
            life.last_sign = life.last_sign.max(operation.begin);
        }
        let by_will = match &operation.op {
            Op::Close | Op::Release { close: true, .. } => operation.session,
            Op::Evict { session } => Some(*session),
            _ => None,
        };
        let not_done = matches!(operation.outcome, Outcome::NotDone { .. });
        if let Some(session) = by_will.filter(|_| !not_done) {
            let life = self.of_session(session);
            let earlier = life.ended_by_will.unwrap_or(operation.begin);
            life.ended_by_will = Some(earlier.min(operation.begin));
        }
        if let Some(session) = operation.session.filter(|_| is_sign(operation)) {
            let life = self.of_session(session);
            life.last_sign = life.last_sign.max(operation.begin);
        }
    }

    pub(crate) fn get(&self, session: u64) -> Option<&Life> {
        self.lives.get(&session)
    }

    /// How long a TTL is at least, in true time, in ns.
    pub(crate) fn ttl_ns(&self, ttl_ms: u64) -> u64 {
        let slow = u128::from(ttl_ms) * u128::from(NANOS_PER_MILLI) * u128::from(MILLION)
            / u128::from(MILLION + self.rate_bound_ppm);
        u64::try_from(slow).unwrap_or(u64::MAX)
    }

    /// Before this time, in ns, the session has not run out of time; 0 if nothing is known.
    pub(crate) fn expires_not_before(&self, session: u64) -> u64 {
        let Some(life) = self.lives.get(&session) else {
            return 0;
        };
        let Some(ttl_ms) = life.ttl_ms else { return 0 };
        let length = self.ttl_ns(ttl_ms).saturating_sub(ROUNDING_NS);
        life.last_sign.saturating_add(length)
    }

    /// Before this time, in ns, the session is alive, if it ever was.
    pub(crate) fn ends_not_before(&self, session: u64) -> u64 {
        let by_will = self.lives.get(&session).and_then(|life| life.ended_by_will);
        self.expires_not_before(session)
            .min(by_will.unwrap_or(u64::MAX))
    }
}

/// Whether the answer shows that the session was alive when the request was applied. Of a refusal
/// it cannot be known where it was made.
fn is_sign(operation: &Operation) -> bool {
    let read = matches!(operation.op, Op::Check { .. } | Op::Get { .. });
    let silent = matches!(
        operation.outcome,
        Outcome::SessionExpired
            | Outcome::Closed
            | Outcome::Refused { .. }
            | Outcome::Unknown { .. }
            | Outcome::NotDone { .. }
    );
    !read && !silent
}
