//! Stamping: a new leader puts its token on the objects that it guards, before it trusts them.

use std::fmt::Debug;

use kube::api::{Api, ListParams, Patch, PatchParams, Request};
use kube::{Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::held::Held;
use super::refusal::{Unsent, Verdict};
use super::request::Bare;
use crate::TOKEN;
use crate::policy::{INHERITED, STAMP};

/// How many objects a page of a listing has.
const PAGE_OBJECTS: u32 = 250;

/// Why not everything is stamped: nothing may be trusted yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StampError {
    /// Another process leads already, or this one lost leadership.
    #[error("{kind} {name}: {why}; this grant is over")]
    Stale {
        /// The kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The words of the refusal.
        why: String,
    },
    /// A policy of ours, or the webhook, refused it for another reason; the grant may go on.
    #[error("{kind} {name}: {why}; the lease is held, but the write does not fit the rules")]
    Refused {
        /// The kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The words of the refusal.
        why: String,
    },
    /// It was written, and the API server put no mark on it: no policy judges such writes, so stale
    /// ones are done, too.
    #[error(
        "{kind} {name} has {} in its annotation {TOKEN} after a write with the fence {fence}, so no \
         policy fences it; apply what `ringfence kube policy` prints for this lease, and look \
         whether its resource, its namespace, the service account and the carrier are those that it \
         was printed for",
        shown(.found.as_deref())
    )]
    NotStamped {
        /// The kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The fence of the grant.
        fence: String,
        /// The mark that it has.
        found: Option<String>,
    },
    /// A write that inherits the stamp of the write before it was not refused: no policy judges such
    /// writes, so stale ones are done, too. It was a dry run; nothing was written by it.
    #[error(
        "{kind} {name} can be written without the fence {fence}, so no policy fences it; apply what \
         `ringfence kube policy` prints for this lease, and look whether its resource, its namespace, \
         the service account and the carrier are those that it was printed for"
    )]
    Unguarded {
        /// The kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The fence of the grant.
        fence: String,
    },
    /// Anything else; what was stamped stays so, and stamping again does no harm.
    #[error("the API server did not do it")]
    Failed(#[from] Error),
}

fn shown(mark: Option<&str>) -> String {
    mark.map_or_else(|| "nothing".to_owned(), |mark| format!("{mark:?}"))
}

/// Objects that carry this grant's token: earlier holders cannot write them any more.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "these are the objects to begin with: what was read before may be old"]
pub struct Stamped<K> {
    /// The objects as they are now.
    pub objects: Vec<K>,
    /// Names of objects that do not exist. Nothing on them could be stamped: who creates one before
    /// the API server knows of the new grant is not kept out.
    pub absent: Vec<String>,
}

/// Stamps the objects with these names, through the [client](super::client) that fences with this
/// lease.
///
/// # Errors
/// [`StampError`] at the first object that was not stamped.
pub async fn stamp<K>(
    api: &Api<K>,
    held: &impl Held,
    names: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Stamped<K>, StampError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    let (mut objects, mut absent) = (Vec::new(), Vec::new());
    for name in names {
        let name = name.as_ref();
        match stamp_one(api, held, name).await? {
            Some(object) => objects.push(object),
            None => absent.push(name.to_owned()),
        }
    }
    Ok(Stamped { objects, absent })
}

/// Stamps all objects that `chosen` selects. One that is created meanwhile is not among them.
///
/// # Errors
/// [`StampError`] at the first object that was not stamped.
pub async fn stamp_all<K>(
    api: &Api<K>,
    held: &impl Held,
    chosen: &ListParams,
) -> Result<Stamped<K>, StampError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    let mut names = Vec::new();
    let mut page = chosen.clone().limit(PAGE_OBJECTS);
    loop {
        let listed = api.list_metadata(&page).await?;
        let found = listed.items.into_iter();
        names.extend(found.filter_map(|object| object.metadata.name));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return stamp(api, held, names).await,
        }
    }
}

/// `None` if there is none.
async fn stamp_one<K>(api: &Api<K>, held: &impl Held, name: &str) -> Result<Option<K>, StampError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    // The layer and the policies put the token on it.
    let patch = Patch::Merge(json!({"metadata": {"annotations": {}}}));
    let (kind, name) = (
        K::kind(&K::DynamicType::default()).into_owned(),
        name.to_owned(),
    );
    let error = match api.patch(&name, &PatchParams::default(), &patch).await {
        Ok(object) => {
            let annotations = object.meta().annotations.as_ref();
            let found = annotations.and_then(|annotations| annotations.get(TOKEN));
            let fence = format!("{}#{}", held.name(), held.token());
            if found != Some(&held.token().to_string()) {
                let found = found.cloned();
                return Err(StampError::NotStamped {
                    kind,
                    name,
                    fence,
                    found,
                });
            }
            let stamp = annotations.and_then(|annotations| annotations.get(STAMP));
            let by_sequence = stamp.and_then(|stamp| stamp.strip_prefix(&fence));
            if !by_sequence.is_some_and(|number| number.starts_with('.')) {
                return Ok(Some(object));
            }
            // The client may have written the mark itself, and that shows nothing.
            match inherit(api, &name, &patch).await {
                Ok(()) => return Err(StampError::Unguarded { kind, name, fence }),
                Err(error) if is_inherited(&error) => return Ok(Some(object)),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    if matches!(&error, Error::Api(status) if status.code == 404) {
        return Ok(None);
    }
    Err(match Verdict::of(&error) {
        Verdict::Stale(why) => StampError::Stale { kind, name, why },
        Verdict::Refused(why) => StampError::Refused { kind, name, why },
        Verdict::Unsent(Unsent::Lost { .. }) => {
            let why = "the lease is lost".to_owned();
            StampError::Stale { kind, name, why }
        }
        Verdict::Unsent(_) | Verdict::Other => StampError::Failed(error),
    })
}

/// Writes an object as a dry run, without a stamp: it keeps that of the write before.
async fn inherit<K: Resource + Clone>(
    api: &Api<K>,
    name: &str,
    patch: &Patch<serde_json::Value>,
) -> Result<(), Error> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let request = Request::new(api.resource_url()).patch(name, &params, patch);
    let mut request = request.map_err(Error::BuildRequest)?;
    request.extensions_mut().insert(Bare);
    let client = api.clone().into_client();
    client.request::<serde_json::Value>(request).await.map(drop)
}

/// Whether a policy has refused a write because it has no number of its own.
fn is_inherited(error: &Error) -> bool {
    matches!(Verdict::of(error), Verdict::Refused(words) if words.starts_with(INHERITED))
}
