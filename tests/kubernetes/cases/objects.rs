//! The Lease objects of a namespace, as anybody can see and change them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, Error};
use ringfence_kube::{Observed, Position, UNDONE};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::site::within;

/// The objects of one namespace.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) leases: Api<Lease>,
    events: Api<Event>,
}

impl Objects {
    pub(crate) fn of(client: Client, namespace: &str) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client, namespace),
        }
    }

    /// An object, if there is one and the API server answers.
    pub(crate) async fn get(&self, name: &str) -> Option<Observed> {
        let asked = tokio::time::timeout(Duration::from_secs(5), self.leases.get_opt(name));
        asked.await.ok()?.ok()?.as_ref().map(Observed::of)
    }

    /// Waits until an object looks as it should.
    pub(crate) async fn until(&self, name: &str, is: impl Fn(&Observed) -> bool) -> Observed {
        let waiting = async {
            loop {
                if let Some(found) = self.get(name).await
                    && is(&found)
                {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(&format!("the object {name} as it should be"), waiting).await
    }

    /// Waits until an object names a holder and its token.
    pub(crate) async fn until_held(&self, name: &str, holder: &str, token: u64) -> Observed {
        let held = |found: &Observed| {
            found.content.holder.as_deref() == Some(holder) && token_of(found) == Some(token)
        };
        self.until(name, held).await
    }

    /// All objects there are.
    pub(crate) async fn all(&self) -> BTreeMap<String, Observed> {
        let listed = self.leases.list(&ListParams::default()).await.unwrap();
        let found = listed.items.iter();
        found
            .map(|lease| (lease.metadata.name.clone().unwrap(), Observed::of(lease)))
            .collect()
    }

    /// Changes an object as anybody may who is allowed to.
    pub(crate) async fn edit(&self, name: &str, patch: &Value) -> Lease {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.leases.patch(name, &params, &patch).await.unwrap()
    }

    pub(crate) async fn delete(&self, name: &str) {
        match self.leases.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for an event about an undone change that says so.
    pub(crate) async fn until_told(&self, name: &str, words: &str) {
        let told = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(UNDONE)
                && event
                    .message
                    .as_ref()
                    .is_some_and(|text| text.contains(words))
        };
        let waiting = async {
            loop {
                let events = self.events.list(&ListParams::default()).await.unwrap();
                if events.items.iter().any(told) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(&format!("an event on {name} that says {words:?}"), waiting).await;
    }

    /// Follows everything that happens to the objects from now on.
    pub(crate) async fn follow(&self) -> Story {
        let listed = self.leases.list(&ListParams::default()).await.unwrap();
        let mut version = listed.metadata.resource_version.unwrap();
        let leases = self.leases.clone();
        let task = tokio::spawn(async move {
            let params = WatchParams::default();
            let mut versions = Vec::new();
            // A busy API server ends the watches of those who are slow; nothing is left out when
            // the next one begins where it ended.
            loop {
                let events = leases.watch(&params, &version).await.unwrap();
                let mut events = events.boxed();
                while let Some(event) = events.next().await {
                    let lease = match event.unwrap() {
                        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => lease,
                        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(status) => panic!("{status:?}"),
                    };
                    let name = lease.metadata.name.clone().unwrap();
                    if name == LAST {
                        return versions;
                    }
                    version = lease.metadata.resource_version.clone().unwrap();
                    versions.push((name, Observed::of(&lease)));
                }
            }
        });
        Story {
            objects: self.clone(),
            task,
        }
    }
}

/// The token on an object.
pub(crate) fn token_of(found: &Observed) -> Option<u64> {
    found.content.token.map(ringfence_core::FencingToken::get)
}

/// The position on an object.
pub(crate) fn position(found: &Observed) -> Position {
    found.stamp.as_ref().expect("a stamp").at
}

/// The object that ends a story.
const LAST: &str = "the-story-ends-here";

/// Every version that the objects of a namespace had.
pub(crate) struct Story {
    objects: Objects,
    task: JoinHandle<Vec<(String, Observed)>>,
}

impl Story {
    /// All versions up to now, in the API server's order.
    pub(crate) async fn end(self) -> Vec<(String, Observed)> {
        let mut last = Lease::default();
        last.metadata.name = Some(LAST.to_owned());
        let leases = &self.objects.leases;
        leases.create(&Default::default(), &last).await.unwrap();
        let versions = within("the end of the story", self.task).await.unwrap();
        self.objects.delete(LAST).await;
        versions
    }
}

/// No mirror ever put an older position, or a lower token, over a newer one.
pub(crate) fn assert_never_back(versions: &[(String, Observed)]) {
    let mut newest: BTreeMap<&str, &Observed> = BTreeMap::new();
    for (name, found) in versions {
        if let Some(before) = newest.insert(name, found) {
            assert!(
                position(before) <= position(found),
                "{name} went from {before:?} back to {found:?}"
            );
            assert!(token_of(before) <= token_of(found), "{name}: {found:?}");
        }
    }
}
