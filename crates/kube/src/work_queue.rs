//! Which object is looked at when: pure, every time is an argument.
//!
//! A change of a lease comes before any renewal, an object is looked at by one request at a time,
//! and a writer that fights with the mirror over an object is answered ever more slowly. A new
//! token waits for none of that: policies stand on it, and no meddler may hold it up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_core::{FencingToken, Millis};

use crate::clock::backoff;
use crate::decision::Why;
use crate::lease_object::Observed;
use crate::limits::{OBJECT_PACE, REQUESTS_MAX, STRIKE_MAX, STRIKE_MIN, STRIKES_KEPT};
use crate::name::ObjectName;
use crate::outcome::Outcome;
use crate::pace::{Pace, Stretch};
use crate::sync_error::SyncError;

/// How much of the time in which no renewal was begun is made up for.
const CATCH_UP: Duration = Duration::from_millis(20);

/// What is known of an object.
#[derive(Clone, Debug, Default)]
pub(crate) enum Known {
    /// It has to be read.
    #[default]
    Unknown,
    /// There is none, or none of ours.
    Absent,
    /// It was this when it was seen last.
    Object(Arc<Observed>),
}

/// The next object to look at, with what is known of it.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) object: ObjectName,
    pub(crate) known: Known,
    pub(crate) written: Option<Arc<Observed>>,
    pub(crate) noted: Option<Instant>,
    pub(crate) stretch: Stretch,
}

#[derive(Debug, Default)]
struct Entry {
    known: Known,
    written: Option<Arc<Observed>>,
    /// The request that is under way.
    busy: Option<Busy>,
    /// Where it stands in the queue.
    due: Option<(Instant, Turn)>,
    /// Since when a change waits to be shown.
    noted: Option<Instant>,
    /// The newest token that the lease is known to have.
    token: Option<FencingToken>,
    /// The TTL of the session that holds the lease, if one does.
    held: Option<Millis>,
    /// No request was begun for that token yet.
    urgent: bool,
    /// What the watch reported while a request was under way.
    told: Option<Known>,
    /// Meddled with, or refused, so often in a row.
    strikes: u32,
    struck: Option<Instant>,
    wrote: Option<Instant>,
    refused: bool,
}

/// A request, and what it is to show: that is owed again if it comes to nothing.
#[derive(Clone, Copy, Debug)]
struct Busy {
    turn: Turn,
    began: Instant,
    noted: Option<Instant>,
    urgent: bool,
}

/// How urgent a look is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// A change that no object shows yet.
    Change,
    /// Half a TTL has passed.
    Renewal,
}

/// All objects and when they are due.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    entries: BTreeMap<ObjectName, Entry>,
    changes: BTreeSet<(Instant, ObjectName)>,
    renewals: BTreeSet<(Instant, ObjectName)>,
    busy: usize,
    busy_renewals: usize,
    /// No renewal before this.
    renewal_from: Option<Instant>,
    pace: Pace,
}

impl WorkQueue {
    /// A lease has changed; the greatest token granted for it is this now.
    pub(crate) fn changed(
        &mut self,
        object: ObjectName,
        token: Option<FencingToken>,
        noted: Instant,
    ) {
        let entry = self.entries.entry(object.clone()).or_default();
        entry.noted.get_or_insert(noted);
        if token > entry.token {
            entry.token = token;
            entry.urgent = true;
        }
        let at = paced(entry, noted);
        self.queue(&object, at, Turn::Change);
    }

    /// The lease of an object is held by a session with this TTL, or by none.
    pub(crate) fn held(&mut self, object: &ObjectName, ttl: Option<Millis>) {
        let entry = self.entries.entry(object.clone()).or_default();
        self.pace.held(entry.held, ttl);
        entry.held = ttl;
    }

    /// Whether there is such an object, or something is known of it.
    pub(crate) fn knows(&self, object: &ObjectName) -> bool {
        self.entries.contains_key(object)
    }

    /// The token that an object of the mirror shows, as far as that is known.
    pub(crate) fn shown(&self, object: &ObjectName) -> Option<FencingToken> {
        let entry = self.entries.get(object)?;
        match &entry.known {
            Known::Object(found) if found.is_ours() => found.content.token,
            Known::Object(_) | Known::Absent => None,
            Known::Unknown => entry.written.as_ref()?.content.token,
        }
    }

    /// An object is to be looked at, though nothing is known to have changed.
    pub(crate) fn look_at(&mut self, object: ObjectName, now: Instant) {
        let entry = self.entries.entry(object.clone()).or_default();
        let struck = struck_until(entry).filter(|_| !entry.urgent);
        let at = struck.unwrap_or(now).max(now);
        self.queue(&object, at, Turn::Change);
    }

    /// What the API server has, all of it: whatever is not reported is not there.
    pub(crate) fn listed(&mut self, objects: Vec<(ObjectName, Observed)>, now: Instant) {
        for entry in self.entries.values_mut() {
            entry.known = Known::Absent;
        }
        for (object, found) in objects {
            let entry = self.entries.entry(object).or_default();
            entry.known = Known::Object(Arc::new(found));
        }
        self.look_at_all(now);
    }

    /// What the watch tells of an object; `None`: it is gone, or has lost its label.
    pub(crate) fn told(&mut self, object: ObjectName, found: Observed, gone: bool, now: Instant) {
        let entry = self.entries.entry(object.clone()).or_default();
        let news = if gone {
            Known::Absent
        } else {
            Known::Object(Arc::new(found.clone()))
        };
        if entry.busy.is_some() {
            // Judged when the request has its answer; then it may be old.
            entry.told = Some(if gone { Known::Unknown } else { news });
            return;
        }
        if let Known::Object(known) = &entry.known {
            let same = known.version == found.version;
            let older = !same && found.version.after(&known.version) == Some(false);
            if older || (same && !gone) {
                return;
            }
        }
        entry.known = news;
        self.look_at(object, now);
    }

    /// The next object to look at, if there is one and room for its request.
    pub(crate) fn next(&mut self, now: Instant, requests_max: usize) -> Option<Next> {
        if self.busy >= requests_max.min(REQUESTS_MAX) {
            return None;
        }
        let due = |queue: &BTreeSet<(Instant, ObjectName)>| {
            queue.first().filter(|(at, _)| *at <= now).cloned()
        };
        let (object, turn) = if let Some((_, object)) = due(&self.changes) {
            (object, Turn::Change)
        } else if self.busy_renewals < self.pace.at_once()
            && self.renewal_from.is_none_or(|from| from <= now)
        {
            let (_, object) = due(&self.renewals)?;
            // Counted from when it was to begin: what a timer oversleeps is made up for, but no more
            // than a little, or an interruption would end in a burst.
            let from = self.renewal_from.unwrap_or(now).max(now - CATCH_UP);
            self.renewal_from = Some(from + self.pace.gap());
            self.busy_renewals += 1;
            (object, Turn::Renewal)
        } else {
            return None;
        };
        self.unqueue(&object);
        self.busy += 1;
        let entry = self.entries.entry(object.clone()).or_default();
        let busy = Busy {
            turn,
            began: now,
            noted: entry.noted.take(),
            urgent: std::mem::take(&mut entry.urgent),
        };
        entry.busy = Some(busy);
        Some(Next {
            object,
            known: entry.known.clone(),
            written: entry.written.clone(),
            noted: busy.noted,
            stretch: self.pace.stretch(),
        })
    }

    /// When [`WorkQueue::next`] may have something that it has not now, unless a request ends
    /// before.
    pub(crate) fn wake_at(&self, requests_max: usize) -> Option<Instant> {
        if self.busy >= requests_max.min(REQUESTS_MAX) {
            return None;
        }
        let change = self.changes.first().map(|(at, _)| *at);
        let renewal = self.renewals.first().map(|(at, _)| *at);
        let renewal = renewal.filter(|_| self.busy_renewals < self.pace.at_once());
        let renewal = renewal.map(|at| at.max(self.renewal_from.unwrap_or(at)));
        change.into_iter().chain(renewal).min()
    }

    /// What came of a request. `true` if the object is refused now and was not before.
    pub(crate) fn done(&mut self, object: &ObjectName, outcome: &Outcome, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(object) else {
            return false;
        };
        let Some(busy) = entry.busy.take() else {
            return false;
        };
        self.busy -= 1;
        self.busy_renewals -= usize::from(busy.turn == Turn::Renewal);
        let told = entry.told.take();
        let noted_since = entry.noted;
        let refused_before = std::mem::take(&mut entry.refused);
        let (mut again, mut kept) = (None, false);
        match outcome {
            Outcome::Nothing => {
                entry.known = Known::Absent;
                if entry.written.is_none() && told.is_none() && noted_since.is_none() {
                    self.forget(object);
                    return false;
                }
            }
            Outcome::Kept(found) => {
                entry.known = Known::Object(found.clone());
                kept = true;
            }
            Outcome::Wrote {
                found,
                written,
                why,
            } => {
                entry.known = Known::Object(found.clone());
                entry.written = Some(written.clone());
                entry.wrote = Some(now);
                self.pace.took(now.saturating_duration_since(busy.began));
                if matches!(why, Why::Undone(_)) {
                    strike(entry, now);
                }
            }
            Outcome::Refused(_) => {
                entry.known = Known::Unknown;
                again = Some(refused(entry, now));
            }
            Outcome::Failed(trouble) => {
                entry.known = Known::Unknown;
                entry.noted = busy.noted.or(entry.noted);
                again = Some(now);
                if let SyncError::Denied { .. } | SyncError::Late = trouble {
                    again = Some(refused(entry, now));
                } else if busy.urgent {
                    // A write between our read and our write may not win by that.
                    entry.urgent = true;
                    again = Some(now + OBJECT_PACE);
                }
            }
        }
        if let Some(told) = told {
            again = again.or(news(entry, told).then_some(now));
        }
        let again = again.or(noted_since.map(|_| now));
        let newly_refused = entry.refused && !refused_before;
        let renew_at = renew_in(entry, self.pace.is_busy(), kept).map(|wait| now + wait);
        if kept && busy.turn == Turn::Renewal {
            // Nothing was asked of the API server, so another one may be.
            self.renewal_from = self.renewal_from.map(|from| from - self.pace.gap());
        }
        if let Some(at) = again {
            let at = paced(entry, at);
            self.queue(object, at, Turn::Change);
        } else if let Some(at) = renew_at {
            self.queue(object, at, Turn::Renewal);
        }
        newly_refused
    }

    /// All objects are to be looked at.
    pub(crate) fn look_at_all(&mut self, now: Instant) {
        let all: Vec<_> = self.entries.keys().cloned().collect();
        all.into_iter().for_each(|object| self.look_at(object, now));
    }

    /// Whatever was under way is given up; it is unknown what came of it.
    pub(crate) fn give_up(&mut self, now: Instant) {
        let busy = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.busy.is_some());
        let mut given_up = Vec::new();
        for (object, entry) in busy {
            let busy = entry.busy.take();
            entry.noted = busy.and_then(|busy| busy.noted).or(entry.noted);
            entry.urgent |= busy.is_some_and(|busy| busy.urgent);
            entry.told = None;
            entry.known = Known::Unknown;
            given_up.push(object.clone());
        }
        (self.busy, self.busy_renewals) = (0, 0);
        given_up
            .into_iter()
            .for_each(|object| self.look_at(object, now));
    }

    /// Leases that wait to be looked at, or are being looked at, because something changed.
    pub(crate) fn pending(&self) -> usize {
        self.changes.len() + self.busy - self.busy_renewals
    }

    /// Number of objects that are known to exist.
    pub(crate) fn objects(&self) -> usize {
        let known = |entry: &&Entry| matches!(entry.known, Known::Object(_));
        self.entries.values().filter(known).count()
    }

    /// Objects that are left alone, or refused by the API server.
    pub(crate) fn refused(&self) -> usize {
        self.entries.values().filter(|entry| entry.refused).count()
    }

    fn queue(&mut self, object: &ObjectName, at: Instant, turn: Turn) {
        let entry = self.entries.entry(object.clone()).or_default();
        if entry.busy.is_some() {
            // What came meanwhile is remembered as `noted` or `told`.
            return;
        }
        // A change is never put off by another one, nor by a renewal.
        if let Some((before, Turn::Change)) = entry.due
            && (turn == Turn::Renewal || before <= at)
        {
            return;
        }
        self.unqueue(object);
        let entry = self.entries.entry(object.clone()).or_default();
        entry.due = Some((at, turn));
        match turn {
            Turn::Change => self.changes.insert((at, object.clone())),
            Turn::Renewal => self.renewals.insert((at, object.clone())),
        };
    }

    fn unqueue(&mut self, object: &ObjectName) {
        let due = self
            .entries
            .get_mut(object)
            .and_then(|entry| entry.due.take());
        if let Some((at, turn)) = due {
            let key = (at, object.clone());
            match turn {
                Turn::Change => self.changes.remove(&key),
                Turn::Renewal => self.renewals.remove(&key),
            };
        }
    }

    fn forget(&mut self, object: &ObjectName) {
        self.unqueue(object);
        if let Some(entry) = self.entries.remove(object) {
            self.pace.held(entry.held, None);
        }
    }
}

/// Takes in what the watch reported during a request; whether it is news.
fn news(entry: &mut Entry, told: Known) -> bool {
    if let (Known::Object(told), Known::Object(known)) = (&told, &entry.known)
        && (told.version == known.version || told.version.after(&known.version) == Some(false))
    {
        return false;
    }
    entry.known = told;
    true
}

fn strike(entry: &mut Entry, now: Instant) {
    let fresh = entry
        .struck
        .is_none_or(|struck| struck + STRIKES_KEPT < now);
    entry.strikes = if fresh { 1 } else { entry.strikes + 1 };
    entry.struck = Some(now);
}

/// When a refusal is tried again: soon, since a writer in the way may have passed already, and
/// ever later while nothing changes.
fn refused(entry: &mut Entry, now: Instant) -> Instant {
    entry.refused = true;
    strike(entry, now);
    let soon = now + STRIKE_MIN;
    struck_until(entry).map_or(soon, |until| until.max(soon))
}

/// The next look at an object that is wanted at `at`: strikes put it off, but not the first look for
/// a new token, so that there are no more such looks than grants.
fn paced(entry: &Entry, at: Instant) -> Instant {
    let at = at.max(entry.wrote.map_or(at, |wrote| wrote + OBJECT_PACE));
    let struck = struck_until(entry).filter(|_| !entry.urgent);
    struck.map_or(at, |until| at.max(until))
}

/// The first strike is for free.
fn struck_until(entry: &Entry) -> Option<Instant> {
    let more = entry.strikes.checked_sub(2)?;
    Some(entry.struck? + backoff(more, STRIKE_MIN, STRIKE_MAX))
}

/// When a held lease's object is looked at again: after half of what it shows; if there are many, after
/// a quarter, so that the last of those that were written together is not late, and after a sixteenth
/// if its holder had not kept it alive by then.
fn renew_in(entry: &Entry, busy: bool, kept: bool) -> Option<Duration> {
    let Known::Object(found) = &entry.known else {
        return None;
    };
    found.content.holder.as_ref()?;
    let seconds = u64::try_from(found.content.seconds?).ok()?;
    let shown = Duration::from_secs(seconds);
    Some(match (busy, kept) {
        (false, _) => shown / 2,
        (true, false) => shown / 4,
        (true, true) => shown / 16,
    })
}

#[cfg(test)]
#[path = "work_queue_tests.rs"]
mod tests;
