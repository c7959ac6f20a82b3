//! Stamping: a new leader puts its token on the objects that it guards, before it trusts them.

use std::fmt::Debug;

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::refusal::Verdict;

/// How many objects a page of a listing has.
const PAGE_OBJECTS: u32 = 250;

/// Why not everything is stamped: nothing may be trusted yet.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// Somebody else leads already, or this process leads no more.
    #[error("{kind} {name}: {why}; this grant is over")]
    Fenced {
        /// The kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// The words of the refusal.
        why: String,
    },
    /// Anything else; what was stamped stays so, and stamping again does no harm.
    #[error("the API server did not do it")]
    Failed(#[from] Error),
}

/// Objects that carry this grant's token: whoever held the lease before cannot write them any more.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "these are the objects to begin with: what was read before may be old"]
pub struct Stamped<K> {
    /// The objects as they are now.
    pub objects: Vec<K>,
    /// Names of objects that do not exist. Nothing on them could be stamped: who creates one before
    /// the API server knows of the new grant is not kept out.
    pub absent: Vec<String>,
}

/// Stamps the objects with these names, through a [client](super::client) that fences.
///
/// # Errors
/// [`StampError`] at the first object that was not stamped.
pub async fn stamp<K>(
    api: &Api<K>,
    names: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Stamped<K>, StampError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    let (mut objects, mut absent) = (Vec::new(), Vec::new());
    for name in names {
        let name = name.as_ref();
        match stamp_one(api, name).await? {
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
pub async fn stamp_all<K>(api: &Api<K>, chosen: &ListParams) -> Result<Stamped<K>, StampError>
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
            None => return stamp(api, names).await,
        }
    }
}

/// `None` if there is none.
async fn stamp_one<K>(api: &Api<K>, name: &str) -> Result<Option<K>, StampError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    // The layer and the policies put the token on it.
    let patch = Patch::Merge(json!({"metadata": {"annotations": {}}}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            let why = match Verdict::of(&error) {
                Verdict::Fenced(why) => why,
                verdict @ Verdict::Unsent(_) if verdict.is_fenced() => {
                    "the lease is lost".to_owned()
                }
                Verdict::Unsent(_) | Verdict::Other => return Err(StampError::Failed(error)),
            };
            Err(StampError::Fenced {
                kind: K::kind(&K::DynamicType::default()).into_owned(),
                name: name.to_owned(),
                why,
            })
        }
    }
}
