//! Electors: campaigns for leadership that go on for ever.
//!
//! An [`Elector`] is one candidate. Each of its [campaigns](Elector::campaign) waits for a lease,
//! runs the leader's work while it is held, drops the work when it is lost, and campaigns again.

mod attempt;
mod backoff;
mod campaign;
mod gauges;
mod handle;
mod leading;
mod limit;
mod listeners;
mod outcome;
mod request;
mod running;
mod shards;
mod shared;
mod term;
mod timings;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ringfence_core::Pod;

pub use campaign::{Campaign, CampaignError};
pub use gauges::{AlreadyRegistered, Gauges, Reading};
pub use handle::CampaignHandle;
pub use leading::Leading;
pub use listeners::{StopCause, Stopped};
pub use outcome::Outcome;
pub use request::Successor;
pub use shards::Candidates;
pub use shared::{CampaignState, Leader};
pub use timings::{InvalidTimings, Timings};

use crate::lease::identity::unique_identity;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::error::OpenError;
use crate::session::open::{self, Lifetime};
use crate::sync::lock;
use shared::OwnSessions;

/// One candidate for any number of leases, with one session for all of them. Cheap to clone.
///
/// When its session is lost all its terms end, and it opens another one. The last clone and
/// campaign close it.
///
/// ```no_run
/// use ringfence_client::{Client, Elector};
///
/// # async fn serve() -> Result<(), std::io::Error> { std::future::pending().await }
/// # async fn lead() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect(["10.0.0.1:7420", "10.0.0.2:7420"]).await?;
/// let elector = Elector::new(&client);
/// elector
///     .campaign("billing/leader")
///     .on_new_leader(|leader| println!("{} leads", leader.identity))
///     .run(|leading| async move {
///         println!("leading as {}", leading.fence());
///         serve().await // dropped when the lease is lost
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Which mode
///
/// | you want | use |
/// |---|---|
/// | a leader's work, again and again, in a process that does other things too | [`Campaign::run`] |
/// | callbacks as client-go has them | [`Campaign::run_callbacks`] |
/// | to block until this process leads, and to end with the leadership | [`Campaign::lead`] and [`HeldLease::lost`] |
/// | one process at a time to run something to its end, a migration for example | [`Campaign::once`] |
/// | work that is split | [`Elector::candidates`] |
/// | a lock of the shape that Kubernetes tools expect, renewed by hand | [`RawLock`] |
///
/// All of them are leases: a leader that is dead, or cut off, blocks no candidate for longer than
/// its lease duration, or twice that if the cluster changes its own leader meanwhile.
///
/// In Kubernetes all of them can also lead [for life](ElectorBuilder::for_life): the term then ends
/// with the Pod and not sooner. Choose it where a short time without a leader does less harm than a
/// leader that is replaced while it lives, and where an operator is there to say that a dead node
/// is dead; choose a lease duration where a takeover must not wait for that.
///
/// [`HeldLease::lost`]: crate::Term::lost
/// [`RawLock`]: crate::RawLock
#[derive(Clone, Debug)]
pub struct Elector {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    identity: String,
    timings: Timings,
    pod: Option<Pod>,
    session: tokio::sync::Mutex<Option<Session>>,
    own: Arc<OwnSessions>,
    /// The leases that it campaigns for.
    names: Mutex<BTreeSet<String>>,
}

/// Sets up an [`Elector`]; [`Elector::builder`] begins one.
#[derive(Debug)]
#[must_use = "a builder does nothing until build()"]
pub struct ElectorBuilder {
    client: Client,
    identity: Option<String>,
    timings: Timings,
    pod: Option<Pod>,
}

impl ElectorBuilder {
    /// Who the candidate is, for people: at most 255 bytes without control characters. A
    /// [unique](unique_identity) one unless set; one that is set has to be unique too, which is
    /// [watched](Campaign::on_duplicate).
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// The times of its elections; 15 s, 10 s and 2 s unless set.
    pub fn timings(mut self, timings: Timings) -> Self {
        self.timings = timings;
        self
    }

    /// Leads for life: its session is [bound to a Pod](Client::open_session_for) in the place of a
    /// lease duration. Nothing is renewed, and no silence ends a term.
    pub fn for_life(mut self, pod: Pod) -> Self {
        self.pod = Some(pod);
        self
    }

    /// The elector. It opens its session when it first campaigns.
    #[must_use]
    pub fn build(self) -> Elector {
        let inner = Inner {
            client: self.client,
            identity: self.identity.unwrap_or_else(unique_identity),
            timings: self.timings,
            pod: self.pod,
            session: tokio::sync::Mutex::default(),
            own: Arc::default(),
            names: Mutex::default(),
        };
        Elector {
            inner: Arc::new(inner),
        }
    }
}

impl Elector {
    /// A candidate with a unique identity and the standard times.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self::builder(client).build()
    }

    /// Begins to set up an elector.
    pub fn builder(client: &Client) -> ElectorBuilder {
        ElectorBuilder {
            client: client.clone(),
            identity: None,
            timings: Timings::default(),
            pod: None,
        }
    }

    /// Who this candidate is.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.inner.identity
    }

    /// The times of its elections.
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.inner.timings
    }

    /// Begins a campaign for a lease. One elector campaigns for a name once at a time.
    pub fn campaign(&self, name: impl Into<String>) -> Campaign {
        Campaign::new(Arc::clone(&self.inner), name.into(), None)
    }

    /// Begins a campaign for each of the shards `name/0` to `name/(shards - 1)`.
    pub fn candidates(&self, name: impl AsRef<str>, shards: u32) -> Candidates {
        let name = name.as_ref();
        let campaign = |shard| {
            let inner = Arc::clone(&self.inner);
            Campaign::new(inner, format!("{name}/{shard}"), Some(shard))
        };
        Candidates {
            campaigns: (0..shards).map(campaign).collect(),
        }
    }
}

impl Inner {
    /// The elector's session: the present one while it is live, else a new one.
    async fn session(&self) -> Result<Session, OpenError> {
        let mut present = self.session.lock().await;
        if let Some(session) = present.as_ref().filter(|session| session.is_live()) {
            return Ok(session.clone());
        }
        // What it leaves at the cluster is settled before the next grant of each name.
        *present = None;
        let life = match &self.pod {
            Some(pod) => Lifetime::Pod(pod.clone()),
            None => Lifetime::Ttl {
                ttl: self.timings.lease_duration(),
                renew_deadline: self.timings.renew_deadline(),
            },
        };
        let session = open::open(&self.client, self.identity.clone(), life).await?;
        self.own.add(session.id());
        *present = Some(session.clone());
        Ok(session)
    }

    /// Notes that there is a campaign for `name`; `None` if there was one.
    fn enter(self: &Arc<Self>, name: &str) -> Option<NameEntry> {
        lock(&self.names)
            .insert(name.to_owned())
            .then(|| NameEntry {
                elector: Arc::clone(self),
                name: name.to_owned(),
            })
    }
}

/// A campaign that runs.
#[derive(Debug)]
struct NameEntry {
    elector: Arc<Inner>,
    name: String,
}

impl Drop for NameEntry {
    fn drop(&mut self) {
        lock(&self.elector.names).remove(&self.name);
    }
}
