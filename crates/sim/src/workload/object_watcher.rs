//! A watch of Lease objects that goes on at one node after the other, from the version it has come to.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Extensions;
use ringfence_core::{Frozen, LeaseName, Principal};
use ringfence_services::{Fresh, Identified, ObjectService};
use tokio::time::{sleep, timeout};

use super::Pace;
use crate::machine::Machine;
use crate::observe::{Observation, Recorder};
use crate::world::World;

/// How long it is away.
const AWAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(900));
/// How long a node may take to come to the version.
const COMES: Duration = Duration::from_secs(3);
/// The objects that it watches.
const PREFIX: &str = "k8s/prod/";

/// What it shows of an object: its version, its holder and how often that changed.
type Shown = (u64, Option<String>, u32);

/// One watch.
pub struct ObjectWatcher {
    world: World,
    machine: Machine,
    recorder: Recorder,
    shown: BTreeMap<LeaseName, Shown>,
    version: u64,
}

impl ObjectWatcher {
    /// A watch on a machine of its own.
    #[must_use]
    pub fn new(world: &World, recorder: &Recorder) -> Self {
        Self {
            world: world.clone(),
            machine: world.machine("object watcher"),
            recorder: recorder.clone(),
            shown: BTreeMap::new(),
            version: 0,
        }
    }

    /// Watches for ever.
    pub async fn watch(mut self, pace: Pace) {
        let mut random = self.world.random("object watcher");
        loop {
            sleep(random.time(pace.of(AWAY.0)..pace.of(AWAY.1))).await;
            let nodes = self.world.nodes().len() as u64;
            let node = usize::try_from(random.within(0..nodes)).unwrap_or_default();
            if let Some(state) = self.look(node).await {
                self.go_on(&state);
            }
        }
    }

    /// The state of a node that has come to the version.
    async fn look(&self, node: usize) -> Option<Frozen> {
        let fresh = match self.version {
            0 => Fresh::Any,
            version => Fresh::Version(version, COMES),
        };
        let looked = self
            .world
            .call_services(&self.machine, node, move |services| {
                let objects = ObjectService::new(services);
                async move {
                    let caller = objects.caller(&who());
                    objects.look(&caller, PREFIX, fresh).await
                }
            });
        timeout(2 * COMES, looked).await.ok()?.ok()?.ok()
    }

    fn go_on(&mut self, state: &Frozen) {
        let from = self.version;
        if from < state.objects_forgotten() {
            self.shown.clear();
            self.version = 0;
        }
        for (version, name, _) in state.objects_gone_after(self.version) {
            if self.shown.get(name).is_some_and(|shown| shown.0 < version) {
                self.shown.remove(name);
            }
        }
        for (_, name) in state.objects_changed_after(self.version) {
            if name.as_str().starts_with(PREFIX)
                && let Some(shown) = shown(state, name)
            {
                self.shown.insert(name.clone(), shown);
            }
        }
        self.version = state.objects_version();
        let listed = state.objects(PREFIX, None);
        let listed: BTreeMap<LeaseName, Shown> = listed
            .filter_map(|object| Some((object.name.clone(), shown(state, &object.name)?)))
            .collect();
        self.recorder.see(Observation::ObjectsWatched {
            from,
            to: self.version,
            shown: format!("{:?}", self.shown),
            listed: format!("{listed:?}"),
        });
    }
}

fn shown(state: &Frozen, name: &LeaseName) -> Option<Shown> {
    let object = state.object(name)?;
    let holder = object
        .holder
        .map(|(identity, token)| format!("{} {token}", identity.as_str()));
    Some((object.version, holder, object.transitions))
}

fn who() -> Extensions {
    let mut who = Extensions::new();
    who.insert(Identified {
        principal: Principal::parse("sa:sim:prod/watcher").expect("a principal as it is named"),
        token: None,
        pod: None,
        process: None,
        expires_unix: None,
    });
    who
}
