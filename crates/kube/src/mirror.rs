//! The mirror at work: one task that takes notes of changes, watches the objects and keeps some
//! requests under way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use ringfence_core::LeaseName;
use tracing::{debug, info, warn};

use crate::attempt::{Attempt, Done, attempt};
use crate::clock::{self, backoff};
use crate::dirty_set::{Dirty, DirtySet};
use crate::limits::{PAUSE_MAX, PAUSE_MIN, REQUESTS_MAX, UNFIT_MAX};
use crate::metrics::{Failure, Metrics, Standing};
use crate::name::{Mapping, Naming};
use crate::outcome::Outcome;
use crate::source::Source;
use crate::sync_error::SyncError;
use crate::watching::{self, Change, Told};
use crate::work_queue::WorkQueue;

/// How often the figures are brought up to date.
const FIGURES_EVERY: Duration = Duration::from_secs(1);

/// Shows leases as objects of Kubernetes.
///
/// Let the leader alone [`run`](Mirror::run) it, and [`note`](Mirror::note) each change while it
/// runs. Nothing breaks if two run it at once: positions decide, and every write is conditional.
pub struct Mirror<S> {
    source: Arc<S>,
    client: Client,
    naming: Naming,
    metrics: Metrics,
    notes: DirtySet,
}

impl<S: Source> Mirror<S> {
    /// A mirror that rests.
    #[must_use]
    pub fn new(source: S, client: Client, naming: Naming, metrics: Metrics) -> Self {
        Self {
            source: Arc::new(source),
            client,
            naming,
            metrics,
            notes: DirtySet::default(),
        }
    }

    /// A lease has changed. Takes a short lock and never waits, however the API server is.
    pub fn note(&self, lease: &LeaseName) {
        if self.naming.place(lease) != Mapping::Elsewhere {
            self.notes.note(lease.clone());
        }
    }

    /// Any lease may have changed: events were lost.
    pub fn note_all(&self) {
        self.notes.note_all();
    }

    /// Mirrors for as long as it is polled; drop it to stop. It begins with all leases and all
    /// objects, so nothing that happened before has to be noted.
    pub async fn run(&self) -> std::convert::Infallible {
        let _active = self.metrics.begin();
        let mut run = Run {
            mirror: self,
            schedule: WorkQueue::default(),
            unfit: BTreeSet::new(),
            troubles: 0,
            resume: None,
            heard: None,
            connected: false,
            floors_denied: false,
        };
        loop {
            let trouble = run.follow().await;
            run.away(&trouble);
            run.schedule.give_up(clock::now());
            run.stand();
            clock::reached(run.resume).await;
        }
    }
}

/// One run of a mirror.
struct Run<'a, S> {
    mirror: &'a Mirror<S>,
    schedule: WorkQueue,
    /// Leases that cannot be mirrored and were reported, at most [`UNFIT_MAX`].
    unfit: BTreeSet<LeaseName>,
    /// How often in a row the API server did not answer.
    troubles: u32,
    /// No request before this.
    resume: Option<Instant>,
    /// When the API server answered last.
    heard: Option<Instant>,
    connected: bool,
    /// The API server does not show the floors, which was reported.
    floors_denied: bool,
}

impl<S: Source> Run<'_, S> {
    /// Begins with everything and goes on with what changes, until there is trouble.
    async fn follow(&mut self) -> SyncError {
        let mirror = self.mirror;
        if !mirror.source.confirm().await {
            return SyncError::Away("no leader confirms what is known".to_owned());
        }
        let (objects, listed) = match watching::list(&mirror.client, &mirror.naming).await {
            Ok(listed) => listed,
            Err(trouble) => return trouble,
        };
        let count = objects.len();
        let ours = objects.into_iter();
        let ours = ours.filter(|(object, _)| mirror.naming.lease(object).is_some());
        self.schedule.listed(ours.collect(), clock::now());
        self.look_at_all_leases();
        self.answered();
        self.floors(listed.floors_denied());
        info!(objects = count, "mirroring leases to Kubernetes");

        let mut changes = watching::watch(listed);
        let mut requests: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
        let mut figures = tokio::time::interval(FIGURES_EVERY);
        loop {
            self.begin_requests(&requests);
            tokio::select! {
                change = changes.next() => match change {
                    Ok(Told::Change(change)) => self.told(change),
                    Ok(Told::Floors(denied)) => self.floors(denied.as_ref()),
                    Err(trouble) => return trouble,
                },
                noted = mirror.notes.take() => self.noted(noted),
                Some(done) = requests.next(), if !requests.is_empty() => self.done(done),
                () = clock::reached(self.wake_at()) => {}
                _ = figures.tick() => self.stand(),
            }
        }
    }

    /// One request at a time while the API server is away.
    fn requests_max(&self) -> usize {
        if self.troubles > 0 { 1 } else { REQUESTS_MAX }
    }

    /// Begins whatever is due.
    fn begin_requests(&mut self, requests: &FuturesUnordered<BoxFuture<'static, Done>>) {
        let now = clock::now();
        if self.resume.is_some_and(|resume| now < resume) {
            return;
        }
        while let Some(next) = self.schedule.next(now, self.requests_max()) {
            let Some(lease) = self.mirror.naming.lease(&next.object) else {
                // Only names that have a lease come into the schedule.
                self.schedule.done(&next.object, &Outcome::Nothing, now);
                continue;
            };
            let floor = self.mirror.naming.is_floor(&next.object);
            let shown = match self.mirror.naming.place(&lease) {
                Mapping::Object(object) if floor => self.schedule.shown(&object),
                Mapping::Object(_) | Mapping::Elsewhere | Mapping::InvalidObjectName(_) => None,
            };
            let begun = Attempt {
                floor,
                shown,
                object: next.object,
                lease,
                known: next.known,
                written: next.written,
                noted: next.noted,
                stretch: next.stretch,
            };
            let (source, client) = (self.mirror.source.clone(), self.mirror.client.clone());
            requests.push(Box::pin(attempt(source, client, begun)));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let wake = self.schedule.wake_at(self.requests_max())?;
        Some(wake.max(self.resume.unwrap_or(wake)))
    }

    fn told(&mut self, change: Change) {
        if self.mirror.naming.lease(&change.object).is_some() {
            let now = clock::now();
            self.schedule
                .told(change.object, change.found, change.gone, now);
        }
    }

    /// Whether the API server shows the floors; without them everything else is mirrored.
    fn floors(&mut self, denied: Option<&SyncError>) {
        match denied {
            Some(trouble) if !self.floors_denied => warn!(
                %trouble,
                "floors are not kept: give this node's account get, list, watch and patch on Leases \
                 in the namespace of --kube-floors; leases are mirrored all the same"
            ),
            None if self.floors_denied => info!("floors are kept again"),
            Some(_) | None => {}
        }
        self.floors_denied = denied.is_some();
    }

    fn noted(&mut self, noted: Dirty) {
        if noted.all {
            self.schedule.look_at_all(clock::now());
            self.look_at_all_leases();
        }
        for (lease, since) in noted.leases {
            self.lease_changed(lease, since);
        }
    }

    fn look_at_all_leases(&mut self) {
        let now = clock::now();
        let prefix = self.mirror.naming.leases();
        for lease in self.mirror.source.names(&prefix) {
            self.lease_changed(lease, now);
        }
    }

    fn lease_changed(&mut self, lease: LeaseName, since: Instant) {
        match self.mirror.naming.place(&lease) {
            Mapping::Object(object) => {
                let look = self.mirror.source.look(&lease);
                let lease = look.and_then(|look| look.lease);
                let token = lease.as_ref().and_then(|lease| lease.floor);
                let held = lease.filter(|lease| lease.holder.is_some());
                let held = held.map(|lease| lease.ttl);
                let floor = self.mirror.naming.floor(&object);
                // One that is not there is not made: nothing stands on it.
                if let Some(floor) = floor.filter(|floor| self.schedule.knows(floor)) {
                    self.schedule.changed(floor, token, since);
                }
                self.schedule.held(&object, held);
                self.schedule.changed(object, token, since);
            }
            Mapping::Elsewhere => {}
            Mapping::InvalidObjectName(why) => {
                if self.unfit.len() < UNFIT_MAX && !self.unfit.contains(&lease) {
                    warn!(%lease, %why, "this lease cannot be an object of Kubernetes");
                    self.unfit.insert(lease);
                }
            }
        }
    }

    fn done(&mut self, mut done: Done) {
        let metrics = &self.mirror.metrics;
        let now = clock::now();
        // A webhook that is silent about one namespace looks just like this.
        let others_heard = self.heard.is_some_and(|heard| heard > done.began);
        if let Outcome::Failed(late @ SyncError::Late) = &done.outcome
            && !others_heard
        {
            done.outcome = Outcome::Failed(SyncError::Away(late.to_string()));
        }
        let newly_refused = self.schedule.done(&done.object, &done.outcome, now);
        let object = &done.object;
        match &done.outcome {
            Outcome::Nothing | Outcome::Kept(_) => self.answered(),
            Outcome::Wrote { why, .. } => {
                let lag = done.noted.map(|since| now.saturating_duration_since(since));
                metrics.wrote(why, lag);
                debug!(%object, ?why, "written");
                self.answered();
            }
            Outcome::Refused(refusal) => {
                if newly_refused {
                    warn!(%object, %refusal, "this object is left alone");
                }
                self.answered();
            }
            Outcome::Failed(SyncError::Away(why)) => self.away(&SyncError::Away(why.clone())),
            Outcome::Failed(trouble) => {
                metrics.failed(match trouble {
                    SyncError::Outdated => Failure::Conflict,
                    _ => Failure::Denied,
                });
                if newly_refused {
                    warn!(%object, %trouble, "the API server does not take this object");
                }
                if *trouble != SyncError::Late {
                    self.answered();
                }
            }
        }
    }

    /// The API server has answered something.
    fn answered(&mut self) {
        if self.troubles > 0 {
            info!("leases are shown in Kubernetes again");
        }
        self.troubles = 0;
        self.resume = None;
        self.heard = Some(clock::now());
        self.connected = true;
    }

    /// It has not; the pause grows.
    fn away(&mut self, trouble: &SyncError) {
        if self.troubles == 0 {
            warn!(%trouble, "leases are not shown in Kubernetes for now; they are granted all the same");
        }
        self.mirror.metrics.failed(Failure::Away);
        self.resume = Some(clock::now() + backoff(self.troubles, PAUSE_MIN, PAUSE_MAX));
        self.troubles += 1;
        self.connected = false;
    }

    fn stand(&self) {
        self.mirror.metrics.stands(Standing {
            pending: self.schedule.pending(),
            objects: self.schedule.objects(),
            refused: self.schedule.refused(),
            unfit: self.unfit.len(),
            connected: self.connected,
            floors_denied: self.floors_denied,
        });
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
