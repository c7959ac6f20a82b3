//! The objects of the mirror as the API server has them: all of them once, then each change.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use futures_util::StreamExt as _;

use crate::face::{Found, MANAGED_BY, MANAGER};
use crate::limits::{PAGE_OBJECTS, REQUEST_TIME_MAX, WATCH_SECONDS, WATCH_SILENCE_MAX};
use crate::name::{Naming, ObjectName};
use crate::trouble::Trouble;

/// How many changes wait here before the API server has to.
const CHANGES_MAX: usize = 256;

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) object: ObjectName,
    pub(crate) found: Found,
    /// It was deleted, or has lost the mirror's label.
    pub(crate) gone: bool,
}

/// The changes; they end with this value.
pub(crate) struct Changes {
    told: mpsc::Receiver<Result<Change, Trouble>>,
    _task: JoinSet<()>,
}

impl Changes {
    /// The next change. After trouble there is none.
    pub(crate) async fn next(&mut self) -> Result<Change, Trouble> {
        let ended = || Err(Trouble::Away("the watch has ended".to_owned()));
        self.told.recv().await.unwrap_or_else(ended)
    }
}

fn selector() -> String {
    format!("{MANAGED_BY}={MANAGER}")
}

fn api(client: &Client, naming: &Naming) -> Api<Lease> {
    match naming.namespace() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Lists the objects that carry the mirror's label, and says what to watch from.
pub(crate) async fn list(
    client: &Client,
    naming: &Naming,
) -> Result<(Vec<(ObjectName, Found)>, String), Trouble> {
    let api = api(client, naming);
    let mut objects = Vec::new();
    let mut page = ListParams::default()
        .labels(&selector())
        .limit(PAGE_OBJECTS);
    loop {
        let listed = timeout(REQUEST_TIME_MAX, api.list(&page)).await;
        let listed = listed.map_err(|_| silent())?;
        let listed = listed.map_err(|error| Trouble::of(&error, false))?;
        let found = listed.items.iter();
        objects.extend(found.filter_map(|lease| Some((name(lease)?, Found::of(lease)))));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => {
                return Ok((
                    objects,
                    listed.metadata.resource_version.unwrap_or_default(),
                ));
            }
        }
    }
}

/// Begins to watch behind a version.
pub(crate) fn watch(client: &Client, naming: &Naming, version: String) -> Changes {
    let (tell, told) = mpsc::channel(CHANGES_MAX);
    let api = api(client, naming);
    let mut task = JoinSet::new();
    drop(task.spawn(async move {
        if let Err(trouble) = follow(api, version, &tell).await {
            drop(tell.send(Err(trouble)).await);
        }
    }));
    Changes { told, _task: task }
}

/// Tells changes until something is wrong; a watch that has ended by itself is begun anew.
async fn follow(
    api: Api<Lease>,
    mut version: String,
    tell: &mpsc::Sender<Result<Change, Trouble>>,
) -> Result<(), Trouble> {
    let params = WatchParams::default()
        .labels(&selector())
        .timeout(WATCH_SECONDS);
    loop {
        let begun = timeout(REQUEST_TIME_MAX, api.watch(&params, &version)).await;
        let begun = begun.map_err(|_| silent())?;
        let mut events = begun.map_err(|error| Trouble::of(&error, false))?.boxed();
        loop {
            let event = timeout(WATCH_SILENCE_MAX, events.next()).await;
            let event = match event.map_err(|_| silent())? {
                None => break,
                Some(event) => event.map_err(|error| Trouble::of(&error, false))?,
            };
            let (lease, gone) = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, false),
                WatchEvent::Deleted(lease) => (lease, true),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(Trouble::of(&kube::Error::Api(status), false));
                }
            };
            version = lease.resource_version().unwrap_or(version);
            let Some(object) = name(&lease) else {
                continue;
            };
            let found = Found::of(&lease);
            let change = Change {
                object,
                found,
                gone,
            };
            if tell.send(Ok(change)).await.is_err() {
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

fn silent() -> Trouble {
    Trouble::Away(format!("no answer within {} s", REQUEST_TIME_MAX.as_secs()))
}
