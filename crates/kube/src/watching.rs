//! The objects of the mirror as the API server has them: all of them once, then each change.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use futures_util::StreamExt as _;

use crate::lease_object::{MANAGED_BY, MANAGER, Observed};
use crate::limits::{
    FLOORS_AGAIN, PAGE_OBJECTS, REQUEST_TIME_MAX, WATCH_SECONDS, WATCH_SILENCE_MAX,
};
use crate::name::{Naming, ObjectName};
use crate::sync_error::SyncError;

/// How many changes wait here before the API server has to.
const CHANGES_MAX: usize = 256;

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) object: ObjectName,
    pub(crate) found: Observed,
    /// It was deleted, or has lost the mirror's label.
    pub(crate) gone: bool,
}

/// What the API server tells.
#[derive(Debug)]
pub(crate) enum Told {
    Change(Change),
    /// It does not show the floors any more, or shows them again.
    Floors(Option<SyncError>),
}

type Tell = mpsc::Sender<Result<Told, SyncError>>;

/// What is reported; it ends with this value.
pub(crate) struct Changes {
    told: mpsc::Receiver<Result<Told, SyncError>>,
    _task: JoinSet<()>,
}

impl Changes {
    /// What is reported next. After trouble there is nothing.
    pub(crate) async fn next(&mut self) -> Result<Told, SyncError> {
        let ended = || Err(SyncError::Away("the watch has ended".to_owned()));
        self.told.recv().await.unwrap_or_else(ended)
    }
}

fn selector() -> String {
    format!("{MANAGED_BY}={MANAGER}")
}

/// Where objects are, and from where to watch what was listed there.
struct Scope {
    api: Api<Lease>,
    version: String,
}

/// From where to watch what was listed.
pub(crate) struct Listed {
    /// All namespaces, or the one that is mirrored.
    main: Scope,
    /// The floors, if they are watched by themselves.
    floors: Option<(Api<Lease>, Result<String, SyncError>)>,
}

impl Listed {
    /// Why the API server does not show the floors, if it does not.
    pub(crate) fn floors_denied(&self) -> Option<&SyncError> {
        self.floors.as_ref()?.1.as_ref().err()
    }
}

/// Lists the objects that carry the mirror's label, and says what to watch from. The floors of a
/// mirror of one namespace may be refused: everything else goes on without them.
pub(crate) async fn list(
    client: &Client,
    naming: &Naming,
) -> Result<(Vec<(ObjectName, Observed)>, Listed), SyncError> {
    let mut objects = Vec::new();
    let namespaced = |namespace: &str| Api::namespaced(client.clone(), namespace);
    let Some([namespace, floors]) = naming.namespaces() else {
        let api = Api::all(client.clone());
        let version = list_one(&api, &mut objects).await?;
        let (main, floors) = (Scope { api, version }, None);
        return Ok((objects, Listed { main, floors }));
    };
    let (api, floors) = (namespaced(namespace), namespaced(floors));
    let version = list_one(&api, &mut objects).await?;
    let listed = match list_one(&floors, &mut objects).await {
        Err(denied @ SyncError::Denied { .. }) => Err(denied),
        listed => Ok(listed?),
    };
    let listed = Listed {
        main: Scope { api, version },
        floors: Some((floors, listed)),
    };
    Ok((objects, listed))
}

async fn list_one(
    api: &Api<Lease>,
    objects: &mut Vec<(ObjectName, Observed)>,
) -> Result<String, SyncError> {
    let mut page = ListParams::default()
        .labels(&selector())
        .limit(PAGE_OBJECTS);
    loop {
        let listed = timeout(REQUEST_TIME_MAX, api.list(&page)).await;
        let listed = listed.map_err(|_| silent())?;
        let listed = listed.map_err(|error| SyncError::of(&error, false))?;
        let found = listed.items.iter();
        objects.extend(found.filter_map(|lease| Some((name(lease)?, Observed::of(lease)))));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(listed.metadata.resource_version.unwrap_or_default()),
        }
    }
}

/// Begins to watch behind what was listed.
pub(crate) fn watch(listed: Listed) -> Changes {
    let (tell, told) = mpsc::channel(CHANGES_MAX);
    let mut task = JoinSet::new();
    if let Some((api, from)) = listed.floors {
        let tell = tell.clone();
        drop(task.spawn(async move {
            if let Err(trouble) = follow_floors(api, from.ok(), &tell).await {
                tell.send(Err(trouble)).await.ok();
            }
        }));
    }
    let Scope { api, version } = listed.main;
    drop(task.spawn(async move {
        if let Err(trouble) = follow(api, version, &tell).await {
            tell.send(Err(trouble)).await.ok();
        }
    }));
    Changes { told, _task: task }
}

/// Tells changes of the floors, from there or once the API server shows them, until something else
/// is wrong than that it does not.
async fn follow_floors(
    api: Api<Lease>,
    mut from: Option<String>,
    tell: &Tell,
) -> Result<(), SyncError> {
    loop {
        let version = match from.take() {
            Some(version) => version,
            None => {
                tokio::time::sleep(FLOORS_AGAIN).await;
                let mut floors = Vec::new();
                let version = match list_one(&api, &mut floors).await {
                    Err(SyncError::Denied { .. }) => continue,
                    version => version?,
                };
                let floors = floors.into_iter().map(|(object, found)| {
                    Told::Change(Change {
                        object,
                        found,
                        gone: false,
                    })
                });
                for told in std::iter::once(Told::Floors(None)).chain(floors) {
                    if tell.send(Ok(told)).await.is_err() {
                        return Ok(());
                    }
                }
                version
            }
        };
        match follow(api.clone(), version, tell).await {
            Err(denied @ SyncError::Denied { .. }) => {
                if tell.send(Ok(Told::Floors(Some(denied)))).await.is_err() {
                    return Ok(());
                }
            }
            ended => return ended,
        }
    }
}

/// Tells changes until something is wrong; a watch that has ended on its own is begun again.
async fn follow(api: Api<Lease>, mut version: String, tell: &Tell) -> Result<(), SyncError> {
    let params = WatchParams::default()
        .labels(&selector())
        .timeout(WATCH_SECONDS);
    loop {
        let begun = timeout(REQUEST_TIME_MAX, api.watch(&params, &version)).await;
        let begun = begun.map_err(|_| silent())?;
        let mut events = begun.map_err(|error| SyncError::of(&error, false))?.boxed();
        loop {
            let event = timeout(WATCH_SILENCE_MAX, events.next()).await;
            let event = match event.map_err(|_| silent())? {
                None => break,
                Some(event) => event.map_err(|error| SyncError::of(&error, false))?,
            };
            let (lease, gone) = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, false),
                WatchEvent::Deleted(lease) => (lease, true),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(SyncError::of(&kube::Error::Api(status), false));
                }
            };
            version = lease.resource_version().unwrap_or(version);
            let Some(object) = name(&lease) else {
                continue;
            };
            let found = Observed::of(&lease);
            let change = Change {
                object,
                found,
                gone,
            };
            if tell.send(Ok(Told::Change(change))).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn name(lease: &Lease) -> Option<ObjectName> {
    Some(ObjectName {
        namespace: lease.metadata.namespace.as_deref()?.into(),
        name: lease.metadata.name.as_deref()?.into(),
    })
}

fn silent() -> SyncError {
    SyncError::Away(format!("no answer within {} s", REQUEST_TIME_MAX.as_secs()))
}
