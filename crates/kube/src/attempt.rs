//! One look at one object, and what came of it.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use ringfence_core::{FencingToken, LeaseName};

use crate::clock;
use crate::decision::{Decision, Inputs, Why, decide};
use crate::events;
use crate::lease_object::{LeaseObject, Observed, Stamp};
use crate::limits::{EVENT_TIME_MAX, REQUEST_TIME_MAX};
use crate::name::ObjectName;
use crate::outcome::Outcome;
use crate::pace::Stretch;
use crate::source::Source;
use crate::sync_error::SyncError;
use crate::work_queue::Known;

/// What is known before the attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) object: ObjectName,
    /// Whether it is the lease's floor.
    pub(crate) floor: bool,
    /// The token that the lease's own object shows, as far as that is known.
    pub(crate) shown: Option<FencingToken>,
    pub(crate) lease: LeaseName,
    pub(crate) known: Known,
    pub(crate) written: Option<Arc<Observed>>,
    /// When the change was noted that it is for; `None` if it is for none.
    pub(crate) noted: Option<Instant>,
    /// How durations are shown now.
    pub(crate) stretch: Stretch,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) object: ObjectName,
    pub(crate) noted: Option<Instant>,
    pub(crate) began: Instant,
    pub(crate) outcome: Outcome,
}

/// Looks, judges, and writes if need be.
pub(crate) async fn attempt<S: Source>(source: Arc<S>, client: Client, attempt: Attempt) -> Done {
    let Attempt {
        object,
        floor,
        shown,
        lease,
        known,
        written,
        noted,
        stretch,
    } = attempt;
    let asked = Asked {
        source: &*source,
        lease: &lease,
        floor,
        shown,
        stretch,
        written: written.as_deref(),
    };
    let under_way = judge(asked, &client, &object, known);
    let began = clock::now();
    let outcome = match tokio::time::timeout(REQUEST_TIME_MAX, under_way).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(trouble)) => Outcome::Failed(trouble),
        Err(_) => Outcome::Failed(SyncError::Late),
    };
    if let Outcome::Wrote {
        found,
        why: Why::Undone(what),
        ..
    } = &outcome
    {
        let told = events::undone(&client, &object, &found.uid, what);
        // Nothing depends on it.
        tokio::time::timeout(EVENT_TIME_MAX, told).await.ok();
    }
    Done {
        object,
        noted,
        began,
        outcome,
    }
}

/// What a judgement is about.
struct Asked<'a, S> {
    source: &'a S,
    lease: &'a LeaseName,
    floor: bool,
    shown: Option<FencingToken>,
    stretch: Stretch,
    written: Option<&'a Observed>,
}

async fn judge<S: Source>(
    asked: Asked<'_, S>,
    client: &Client,
    object: &ObjectName,
    known: Known,
) -> Result<Outcome, SyncError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &object.namespace);
    let found = match known {
        Known::Absent => None,
        Known::Object(found) => Some(found),
        Known::Unknown => read(&api, object).await?.map(Arc::new),
    };
    let judged = decision(&asked, found.as_deref()).await?;
    Ok(match (judged, found) {
        (Decision::Keep, Some(found)) => Outcome::Kept(found),
        (Decision::Refuse(refusal), _) => Outcome::Refused(refusal),
        (
            Decision::Write {
                content,
                stamp,
                replaces,
                why,
            },
            _,
        ) => {
            let sent = match replaces {
                None => create(&api, &content.object(object, &stamp)).await?,
                Some(version) => patch(&api, object, &content.patch(&version, &stamp)).await?,
            };
            let (found, written) = taken(Observed::of(&sent), content, stamp);
            Outcome::Wrote {
                found,
                written,
                why,
            }
        }
        // Only an object can be kept, and nothing is to be confirmed twice.
        (Decision::Nothing | Decision::Keep | Decision::Confirm, _) => Outcome::Nothing,
    })
}

/// What the API server made of a write, and what was meant. There are as many of both as there are
/// objects, so that they share their memory when they say the same, as they nearly always do.
fn taken(found: Observed, content: LeaseObject, stamp: Stamp) -> (Arc<Observed>, Arc<Observed>) {
    let written = Observed {
        content,
        stamp: Some(stamp),
        ..found.clone()
    };
    let same = found == written;
    let found = Arc::new(found);
    let written = match same {
        true => Arc::clone(&found),
        false => Arc::new(written),
    };
    (found, written)
}

/// The judgement; asks the cluster if the object claims to be newer than what is known here.
async fn decision<S: Source>(
    asked: &Asked<'_, S>,
    found: Option<&Observed>,
) -> Result<Decision, SyncError> {
    let mut confirmed = false;
    loop {
        let Some(snapshot) = asked.source.look(asked.lease) else {
            return Err(SyncError::Away(
                "this node belongs to no cluster".to_owned(),
            ));
        };
        let decision = decide(Inputs {
            snapshot: &snapshot,
            floor: asked.floor,
            shown: asked.shown,
            stretch: asked.stretch,
            found,
            written: asked.written,
            confirmed,
        });
        if decision != Decision::Confirm {
            return Ok(decision);
        }
        if !asked.source.confirm().await {
            return Err(SyncError::Away(
                "no leader confirms what is known".to_owned(),
            ));
        }
        confirmed = true;
    }
}

async fn read(api: &Api<Lease>, object: &ObjectName) -> Result<Option<Observed>, SyncError> {
    let got = api.get_opt(&object.name).await;
    let got = got.map_err(|error| SyncError::of(&error, false))?;
    Ok(got.as_ref().map(Observed::of))
}

async fn create(api: &Api<Lease>, object: &Lease) -> Result<Lease, SyncError> {
    let created = api.create(&PostParams::default(), object).await;
    created.map_err(|error| SyncError::of(&error, true))
}

async fn patch(
    api: &Api<Lease>,
    object: &ObjectName,
    patch: &serde_json::Value,
) -> Result<Lease, SyncError> {
    let patch = Patch::Merge(patch);
    let params = PatchParams::default();
    let patched = api.patch(&object.name, &params, &patch).await;
    patched.map_err(|error| match &error {
        // It was there when it was judged.
        Error::Api(status) if status.code == 404 => SyncError::Outdated,
        _ => SyncError::of(&error, true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_object::Version;
    use crate::position::Position;

    fn stamp() -> Stamp {
        Stamp {
            at: Position::default(),
            cluster: "ab".to_owned(),
        }
    }

    fn found(transitions: i32) -> Observed {
        Observed {
            content: LeaseObject {
                transitions,
                ..LeaseObject::default()
            },
            stamp: Some(stamp()),
            labelled: true,
            version: Version("7".to_owned()),
            uid: "u".to_owned(),
        }
    }

    #[test]
    fn what_was_written_and_found_is_kept_once() {
        let (found, written) = taken(found(3), found(3).content, stamp());
        assert!(Arc::ptr_eq(&found, &written));
    }

    #[test]
    fn what_the_api_server_made_something_else_of_is_known_as_it_was_meant() {
        let (there, meant) = taken(found(4), found(3).content, stamp());
        assert_eq!(
            (there.content.transitions, meant.content.transitions),
            (4, 3)
        );
        assert_eq!(there.uid, meant.uid);
    }
}
