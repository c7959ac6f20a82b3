//! Electors at the Lease endpoint: processes that run client-go's election and know nothing of
//! sessions and tokens. Their requests go to the same services as those of the endpoint.
//!
//! The loop is that of `k8s.io/client-go/tools/leaderelection` 0.36, with its order of requests, its
//! trust in its own clock and its `ReleaseOnCancel`, which looks for a fresh version and trusts its
//! old belief.

use std::time::Duration;

use http::Extensions;
use ringfence_core::{
    FencingToken, Identity, LeaseName, ObjectSpec, ObjectView, ObjectWrite, ObjectWritten, OpenId,
    PodUid, Principal, Rejection, Secret, WriteObject,
};
use ringfence_services::{Fresh, Identified, ObjectRefused, ObjectService};
use tokio::time::{sleep, timeout};

use crate::machine::Machine;
use crate::observe::{Observation, Recorder};
use crate::random::Random;
use crate::workload::Pace;
use crate::world::World;

/// Whose Pods they are: every account has the leases of its own namespace.
pub const ACCOUNTS: &str = "sa:sim:prod/*";
/// The lease of all electors.
pub const LEASE: &str = "k8s/prod/web";

/// The times of an election, as client-go calls them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long candidates wait behind the last renewal that they saw, in whole seconds.
    pub lease_seconds: u32,
    /// How long a leader tries to renew.
    pub renew_deadline: Duration,
    /// How long a process rests between two tries.
    pub retry_period: Duration,
}

impl Times {
    /// Those of a run at this pace.
    #[must_use]
    pub fn of(pace: Pace) -> Self {
        Self {
            lease_seconds: 3 * pace.0,
            renew_deadline: pace.of(Duration::from_millis(2_000)),
            retry_period: pace.of(Duration::from_millis(400)),
        }
    }

    /// How long the server keeps a term without a renewal: one and a half of the duration.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.lease().mul_f64(1.5)
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }

    /// How long one request may take.
    fn request(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// A process that takes part in an election, in a Pod of its own.
pub struct Elector {
    number: u32,
    world: World,
    machine: Machine,
    recorder: Recorder,
    random: Random,
    times: Times,
    releases: bool,
    /// The node that it is connected to.
    node: usize,
    /// What it knows of the lease; `None` before its first read.
    lease: Option<ObjectView>,
    observed: Option<Observed>,
}

/// What client-go calls the observed record.
#[derive(Clone)]
struct Observed {
    holder: String,
    /// When it saw it first, by its own clock.
    at: Duration,
    /// The spec that was read last; what it wrote itself is not compared.
    raw: Option<Raw>,
}

/// The spec of a lease.
type Raw = (String, u32, u64, u64, u32);

fn raw(lease: &ObjectView) -> Raw {
    let holder = lease.holder.as_ref();
    let holder = holder.map_or("", |(identity, _)| identity.as_str());
    (
        holder.to_owned(),
        lease.seconds,
        lease.acquired.0,
        lease.renewed.0,
        lease.transitions,
    )
}

impl Elector {
    /// A process on this machine that is killed and started as often as it likes; `life` tells its
    /// processes apart.
    #[must_use]
    pub fn new(
        world: &World,
        machine: &Machine,
        recorder: &Recorder,
        (number, life): (u32, u64),
        times: Times,
    ) -> Self {
        Self {
            number,
            machine: machine.clone(),
            world: world.clone(),
            recorder: recorder.clone(),
            random: world.random(&format!("elector {number} life {life}")),
            times,
            // As controllers do, or do not.
            releases: number.is_multiple_of(2),
            node: number as usize % world.nodes().len(),
            lease: None,
            observed: None,
        }
    }

    /// Takes part for ever.
    pub async fn run(mut self) {
        loop {
            self.acquire().await;
            self.recorder.see(Observation::Case("elector: leads"));
            self.renew().await;
            self.recorder.see(Observation::ElectorEnded {
                elector: self.number,
            });
            if self.releases {
                self.release().await;
            }
        }
    }

    async fn acquire(&mut self) {
        while !self.try_acquire_or_renew().await {
            self.rest().await;
        }
    }

    /// Renews until it could not for the deadline, which restarts after each rest.
    async fn renew(&mut self) {
        loop {
            self.rest().await;
            let renewed = timeout(self.times.renew_deadline, self.acquire());
            if renewed.await.is_err() {
                return;
            }
        }
    }

    async fn rest(&mut self) {
        let period = self.times.retry_period;
        sleep(self.random.time(period..period.mul_f64(1.2))).await;
    }

    fn name(&self) -> String {
        format!("elector-{}", self.number)
    }

    fn leads(&self) -> bool {
        let observed = self.observed.as_ref();
        observed.is_some_and(|observed| observed.holder == self.name())
    }

    /// Whether what it saw last may still hold, by its own clock.
    fn is_lease_valid(&self) -> bool {
        let now = self.machine.since_boot();
        let lease = self.times.lease();
        self.observed
            .as_ref()
            .is_some_and(|observed| observed.at + lease > now)
    }

    async fn try_acquire_or_renew(&mut self) -> bool {
        let name = self.name();
        if self.leads() && self.is_lease_valid() && self.update(&name).await {
            self.observe(&name, None);
            return true;
        }
        let Some(found) = self.get().await else {
            return false;
        };
        let Some(found) = found else {
            self.lease = None;
            let made = self.update(&name).await;
            if made {
                self.observe(&name, None);
            }
            return made;
        };
        let read = raw(&found);
        self.lease = Some(found);
        let known = self.observed.as_ref().and_then(|known| known.raw.as_ref());
        if known != Some(&read) {
            self.observe(&read.0.clone(), Some(read.clone()));
        }
        if !read.0.is_empty() && self.is_lease_valid() && !self.leads() {
            return false;
        }
        let done = self.update(&name).await;
        if done {
            let raw = self.observed.as_ref().and_then(|known| known.raw.clone());
            self.observe(&name, raw);
        }
        done
    }

    fn observe(&mut self, holder: &str, raw: Option<Raw>) {
        let known = self.observed.take().and_then(|known| known.raw);
        self.observed = Some(Observed {
            holder: holder.to_owned(),
            at: self.machine.since_boot(),
            raw: raw.or(known),
        });
    }

    /// Looks for a fresh version, and gives back what it believes to hold.
    async fn release(&mut self) {
        let Some(Some(found)) = self.get().await else {
            return;
        };
        if !self.leads() {
            return;
        }
        if found
            .holder
            .as_ref()
            .is_some_and(|(who, _)| who.as_str() != self.name())
        {
            self.recorder.see(Observation::Case(
                "elector: releases what another one holds",
            ));
        }
        self.lease = Some(found);
        if self.update("").await {
            self.observe("", None);
        }
    }

    /// The lease as it is now; no answer is `None`.
    async fn get(&mut self) -> Option<Option<ObjectView>> {
        let (who, name) = (self.who(), lease());
        let asked = self
            .world
            .call_services(&self.machine, self.node, move |services| {
                let (objects, who, name) =
                    (ObjectService::new(services), who.clone(), name.clone());
                async move {
                    let caller = objects.caller(&who);
                    objects.get(&caller, &name, Fresh::Newest).await
                }
            });
        match timeout(self.times.request(), asked).await {
            Ok(Ok(Ok(found))) => Some(found),
            _ => {
                self.go_to_another();
                None
            }
        }
    }

    /// Writes, on the version that it knows, that `holder` holds the lease; says whether that was
    /// done.
    async fn update(&mut self, holder: &str) -> bool {
        let mut bytes = [0; 16];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random.next().to_le_bytes());
        }
        let metadata = self.lease.as_ref().map(|lease| lease.metadata.clone());
        let write = WriteObject {
            name: lease(),
            version: self.lease.as_ref().map(|lease| lease.version),
            pod: Some(self.pod()),
            watched: None,
            write: ObjectWrite::Put {
                metadata: metadata.unwrap_or_default(),
                spec: Some(ObjectSpec {
                    holder: Identity::parse(holder).expect("a short name"),
                    seconds: self.times.lease_seconds,
                    new_term: false,
                    open: OpenId::new(bytes),
                    secret: Secret::new(bytes),
                }),
            },
        };
        let who = self.who();
        let asked = self
            .world
            .call_services(&self.machine, self.node, move |services| {
                let (objects, who, write) =
                    (ObjectService::new(services), who.clone(), write.clone());
                async move {
                    let caller = objects.caller(&who);
                    objects.write(&caller, write).await
                }
            });
        match timeout(self.times.request(), asked).await {
            Ok(Ok(Ok(written))) => {
                self.take(&written);
                true
            }
            Ok(Ok(Err(refused))) => {
                self.note(&refused);
                false
            }
            _ => {
                self.go_to_another();
                false
            }
        }
    }

    fn take(&mut self, written: &ObjectWritten) {
        self.lease = Some(written.object.clone());
        if let Some((token, _)) = written.held {
            self.holds(token);
        }
    }

    fn holds(&self, token: FencingToken) {
        self.recorder.see(Observation::ElectorHolds {
            elector: self.number,
            token: token.get(),
        });
    }

    fn note(&mut self, refused: &ObjectRefused) {
        match refused {
            ObjectRefused::Rejected(Rejection::Owing { .. }) => {
                let case = "elector: refused until it noticed its loss";
                self.recorder.see(Observation::Case(case));
            }
            ObjectRefused::Rejected(_) | ObjectRefused::Held { .. } => {}
            ObjectRefused::Refused(_) | ObjectRefused::Behind { .. } => self.go_to_another(),
        }
    }

    fn go_to_another(&mut self) {
        let nodes = self.world.nodes().len() as u64;
        self.node = usize::try_from(self.random.within(0..nodes)).unwrap_or_default();
    }

    fn pod(&self) -> PodUid {
        PodUid::parse(&format!("uid-{}", self.number)).expect("a short uid")
    }

    /// What its token proves.
    fn who(&self) -> Extensions {
        let mut who = Extensions::new();
        who.insert(Identified {
            principal: Principal::parse("sa:sim:prod/web").expect("a principal as it is named"),
            token: None,
            pod: None,
            process: Some(self.pod()),
            expires_unix: None,
        });
        who
    }
}

fn lease() -> LeaseName {
    LeaseName::parse(LEASE).expect("a name of a lease")
}
