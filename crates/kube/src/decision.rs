//! What is to be done about an object: the mirror's whole judgement, without a clock or a network.
//!
//! Positions decide. An object that says more than the cluster knew when it was looked at is left
//! alone; so a mirror that was deposed and does not know it can be late, but not do harm. That its
//! write is conditional on the version it judged keeps out whatever came in between. An object that
//! is not there has no position, so the cluster is asked before it is made: another writer may have
//! deleted what a later mirror wrote.

use std::fmt::Write as _;

use ringfence_core::{ClusterId, FencingToken, LeaseView, Millis, WallTime};

use crate::lease_object::{LeaseObject, MANAGED_BY, Observed, Stamp, Version};
use crate::pace::Stretch;
use crate::position::Position;

/// A lease as the cluster knows it at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// Log position at which the lease looked so.
    pub at: Position,
    /// The cluster whose log that is.
    pub cluster: ClusterId,
    /// The lease; `None` if its name was never granted, or is forgotten.
    pub lease: Option<LeaseView>,
    /// The greatest floor that was ever forgotten: no forgotten name had a greater one.
    pub forgotten: Option<FencingToken>,
    /// Wall time, as the newest entry has it.
    pub now: WallTime,
    /// For how long the holder's session has been silent.
    pub silent: Millis,
}

/// Everything that a judgement stands on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// What the cluster says.
    pub snapshot: &'a LeaseSnapshot,
    /// Whether the object is the lease's floor, which shows the token alone and is never made.
    pub floor: bool,
    /// The token that the lease's own object shows, if the object is its floor and the mirror knows
    /// one.
    pub shown: Option<FencingToken>,
    /// How the TTL is shown.
    pub stretch: Stretch,
    /// The object as it was last read; `None` if there is none.
    pub found: Option<&'a Observed>,
    /// The object as the mirror's last write on it was meant, if it remembers: its face, stamp and
    /// uid count. No other writer has meddled with it as long as it says the same.
    pub written: Option<&'a Observed>,
    /// Whether the cluster was asked after the object was read, or found missing, so that no honest
    /// object can be newer.
    pub confirmed: bool,
}

/// Why something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There was no such object.
    Created,
    /// The lease has changed.
    Moved,
    /// Its holder keeps it alive.
    Renewed,
    /// Another writer has changed or deleted the object; this is what they did.
    Undone(String),
}

/// Why an object is left alone although it does not say what the cluster says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not the mirror's.
    #[error(
        "a Lease of this name belongs to another party (it has no label {MANAGED_BY}); rename \
         either, or delete it"
    )]
    Foreign,
    /// Another cluster has written what this one cannot know to be older.
    #[error(
        "cluster {cluster} mirrors the same lease and is at {at}; let only one of them mirror this \
         prefix here, or delete the object if that cluster is gone"
    )]
    OtherCluster {
        /// The other one, in hexadecimal.
        cluster: String,
        /// Where the object stands.
        at: Position,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is no object, and nothing that one could say.
    Nothing,
    /// The object says what it should.
    Keep,
    /// The object is newer than what is known here, or there is none that would say how old that
    /// is: ask the cluster, and judge again.
    Confirm,
    /// It is left alone.
    Refuse(Refusal),
    /// The object is created or replaced.
    Write {
        /// What it shall say.
        content: LeaseObject,
        /// The position and the cluster that the object is marked with.
        stamp: Stamp,
        /// The version that is replaced; `None`: there must be no object.
        replaces: Option<Version>,
        /// What made the write necessary.
        why: Why,
    },
}

/// Decides what to do with one object; a pure function, so that every combination is testable.
#[must_use]
pub fn decide(inputs: Inputs<'_>) -> Decision {
    let Some(found) = inputs.found else {
        return if inputs.floor {
            Decision::Nothing
        } else {
            create(inputs)
        };
    };
    if !found.is_ours()
        && inputs
            .written
            .is_none_or(|written| written.uid != found.uid)
    {
        return Decision::Refuse(Refusal::Foreign);
    }
    let cluster = inputs.snapshot.cluster.to_string();
    let mut forged = false;
    if let Some(stamp) = &found.stamp {
        let foreign = stamp.cluster != cluster;
        if stamp.at > inputs.snapshot.at || (foreign && stamp.at == inputs.snapshot.at) {
            if !inputs.confirmed {
                return Decision::Confirm;
            }
            if foreign {
                return Decision::Refuse(Refusal::OtherCluster {
                    cluster: stamp.cluster.clone(),
                    at: stamp.at,
                });
            }
            // The cluster was asked and has not come so far: no mirror wrote this.
            forged = true;
        }
    }
    // A floor without a stamp is a new one: nothing says which mirror has seen more.
    if inputs.floor && found.stamp.is_none() && !inputs.confirmed {
        return Decision::Confirm;
    }
    let known = inputs.snapshot.lease.as_ref().and_then(|lease| lease.floor);
    let foreign = found.stamp.as_ref().map(|stamp| stamp.cluster != cluster);
    if known.is_none() && foreign == Some(true) {
        // Another cluster's lease, of which this one knows nothing.
        return Decision::Keep;
    }
    let Some(content) = content(inputs) else {
        return Decision::Keep;
    };
    let why = match meddled(inputs, found) {
        Some(what) => Why::Undone(what),
        None if forged => Why::Undone("the position is one that was never reached".to_owned()),
        None => match moved(found, &content, &cluster) {
            Some(why) => why,
            None => return Decision::Keep,
        },
    };
    Decision::Write {
        content,
        stamp: Stamp {
            at: inputs.snapshot.at,
            cluster,
        },
        replaces: Some(found.version.clone()),
        why,
    }
}

fn create(inputs: Inputs<'_>) -> Decision {
    let Some(content) = content(inputs) else {
        return Decision::Nothing;
    };
    if !inputs.confirmed {
        return Decision::Confirm;
    }
    let why = match inputs.written {
        Some(_) => Why::Undone("it was deleted".to_owned()),
        None => Why::Created,
    };
    Decision::Write {
        content,
        stamp: Stamp {
            at: inputs.snapshot.at,
            cluster: inputs.snapshot.cluster.to_string(),
        },
        replaces: None,
        why,
    }
}

/// What the object shall say; `None` if there is nothing to say.
fn content(inputs: Inputs<'_>) -> Option<LeaseObject> {
    let before = before(inputs);
    let lease = inputs.snapshot.lease.as_ref();
    let token = lease.and_then(|lease| lease.floor);
    if inputs.floor {
        let token = token.or_else(|| forgotten_floor(inputs, before));
        return Some(LeaseObject {
            token: Some(token?),
            ..LeaseObject::default()
        });
    }
    let Some(granted) = lease.and_then(|lease| lease.holder.as_ref()) else {
        // A name that the cluster has forgotten keeps its floor here.
        let token = token.or(before.and_then(|content| content.token))?;
        return Some(LeaseObject {
            transitions: before.map_or(0, |content| content.transitions),
            token: Some(token),
            ..LeaseObject::default()
        });
    };
    let ttl = lease.map_or(Millis(0), |lease| lease.ttl);
    // No reader may take it for free because its holder goes without a name.
    let holder = match granted.identity.as_str() {
        "" => format!("session-{}", granted.session),
        identity => identity.to_owned(),
    };
    let kept_alive = WallTime(
        inputs
            .snapshot
            .now
            .0
            .saturating_sub(inputs.snapshot.silent.0),
    );
    let transitions = before.map_or(0, |content| {
        let another =
            content.token != Some(granted.token) && content.holder.as_ref() != Some(&holder);
        // From the first holder on, as client-go counts.
        content.transitions.saturating_add(i32::from(another))
    });
    Some(LeaseObject {
        holder: Some(holder),
        seconds: Some(inputs.stretch.seconds(ttl)),
        since: Some(granted.since),
        renewed: Some(kept_alive.max(granted.since)),
        transitions,
        token: Some(granted.token),
    })
}

/// The floor of a name that the cluster does not know, and may have forgotten: the least token that no
/// stale holder of it can have, as far as anything tells. Every later grant is greater.
fn forgotten_floor(inputs: Inputs<'_>, before: Option<&LeaseObject>) -> Option<FencingToken> {
    let before = before.and_then(|content| content.token);
    // A token that the cluster has not given out yet was written by hand, where tenants may write. It
    // would lock out holders to come.
    let given = |token: &FencingToken| token.get() <= inputs.snapshot.at.counter;
    before
        .max(inputs.snapshot.forgotten)
        .max(inputs.shown.filter(given))
}

/// What the object said before anybody meddled with it, as far as that is known.
fn before(inputs: Inputs<'_>) -> Option<&LeaseObject> {
    match (inputs.found, inputs.written) {
        (Some(found), Some(written)) if by_another_mirror(inputs.snapshot, found, written) => {
            Some(&found.content)
        }
        (_, Some(written)) => Some(&written.content),
        (found, None) => found.map(|found| &found.content),
    }
}

/// Whether a later stamp than our last one is on the object, and one that this cluster has reached.
fn by_another_mirror(snapshot: &LeaseSnapshot, found: &Observed, written: &Observed) -> bool {
    let last = written.stamp.as_ref().map(|stamp| stamp.at);
    let later = |stamp: &Stamp| Some(stamp.at) > last && stamp.at <= snapshot.at;
    found.labelled && found.stamp.as_ref().is_some_and(later)
}

/// What another writer did to an object since the mirror wrote it.
fn meddled(inputs: Inputs<'_>, found: &Observed) -> Option<String> {
    let written = inputs.written?;
    if written.uid != found.uid || by_another_mirror(inputs.snapshot, found, written) {
        return None;
    }
    let mut fields = written.content.differences(&found.content);
    if !found.labelled {
        fields.push(MANAGED_BY);
    }
    if found.stamp != written.stamp {
        fields.push("the mirror's annotations");
    }
    if fields.is_empty() {
        return None;
    }
    let mut what = format!("changed: {}", fields.join(", "));
    if let Some(holder) = &found.content.holder
        && written.content.holder.as_ref() != Some(holder)
    {
        let short: String = holder.chars().take(64).collect();
        // Writing to a `String` cannot fail.
        write!(what, " (holder {short:?})").ok();
    }
    Some(what)
}

/// A keep-alive that moves `renewTime` by less than this part of a TTL is not worth a write. How
/// often a renewal is looked for is the driver's business: each half of a TTL.
const NEWS: u64 = 8;

/// Whether the cluster has gone on.
fn moved(found: &Observed, content: &LeaseObject, cluster: &str) -> Option<Why> {
    let same_cluster = found
        .stamp
        .as_ref()
        .is_some_and(|stamp| stamp.cluster == cluster);
    let fields = content.differences(&found.content);
    let times = ["spec.renewTime", "spec.leaseDurationSeconds"];
    if !found.labelled || !same_cluster || fields.iter().any(|name| !times.contains(name)) {
        return Some(Why::Moved);
    }
    // A longer duration is shown at once, or the lease looks expired; a shorter one with the next
    // renewal. A missing one, and one by hand that is not remembered, is no longer one.
    if found.content.seconds < content.seconds {
        return Some(Why::Renewed);
    }
    let ttl = u64::try_from(content.seconds.unwrap_or(0)).unwrap_or(0) * 1_000;
    match (found.content.renewed, content.renewed) {
        (found, wanted) if found == wanted => None,
        // Two readings of one keep-alive may lie apart as much as the cluster's two times do.
        (Some(found), Some(wanted)) if found.0 <= wanted.0.saturating_add(ttl) => {
            (wanted.0 >= found.0.saturating_add(ttl / NEWS)).then_some(Why::Renewed)
        }
        // Missing, or in the future.
        _ => Some(Why::Moved),
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
