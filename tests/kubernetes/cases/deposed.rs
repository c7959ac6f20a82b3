//! Two mirrors at once: the one of a leader that was deposed and does not know it, and the new
//! leader's.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Method, Request};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use ringfence_core::LeaseName;
use ringfence_kube::{Metrics, Mirror, Naming, Observed, PREFIX};
use ringfence_kubernetes::{ControlPlane, User};
use ringfence_tests::Signal;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;
use tower::{Layer, Service};

use crate::objects::{Objects, assert_never_back, token_of};
use crate::replica::{Log, Replica};
use crate::site::{LONG, Site, within};

/// Stops a mirror between reading and writing: what would write waits here.
#[derive(Clone)]
struct Turnstile {
    shut: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
    through: Arc<Semaphore>,
}

impl Turnstile {
    fn open() -> Self {
        Self {
            shut: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
            through: Arc::new(Semaphore::new(0)),
        }
    }

    /// Waits until a write waits.
    async fn until_somebody_waits(&self) {
        let mut waiting = self.waiting.subscribe();
        let waits = waiting.wait_for(|count| *count > 0);
        drop(within("a write at the turnstile", waits).await.unwrap());
    }
}

impl<S> Layer<S> for Turnstile {
    type Service = Stopped<S>;

    fn layer(&self, inner: S) -> Stopped<S> {
        Stopped {
            inner: Arc::new(Mutex::new(inner)),
            turnstile: self.clone(),
        }
    }
}

/// A way to the API server through a [`Turnstile`].
struct Stopped<S> {
    inner: Arc<Mutex<S>>,
    turnstile: Turnstile,
}

impl<S> Service<Request<Body>> for Stopped<S>
where
    S: Service<Request<Body>> + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Whether the way is free is asked by the client that has passed the turnstile.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, turnstile) = (self.inner.clone(), self.turnstile.clone());
        Box::pin(async move {
            if request.method() != Method::GET && *turnstile.shut.borrow() {
                turnstile.waiting.send_modify(|count| *count += 1);
                turnstile.through.acquire().await.unwrap().forget();
            }
            let mut inner = inner.lock().await;
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            let answer = inner.call(request);
            drop(inner);
            answer.await
        })
    }
}

/// A mirror at work; it ends with this value.
struct AtWork {
    mirror: Arc<Mirror<Replica>>,
    _task: JoinSet<()>,
}

fn put_to_work(replica: &Replica, client: Client, namespace: &str) -> AtWork {
    let naming = Naming::new(PREFIX, Some(namespace)).unwrap();
    let mirror = Mirror::new(replica.clone(), client, naming, Metrics::default());
    let mirror = Arc::new(mirror);
    let working = mirror.clone();
    let mut task = JoinSet::new();
    task.spawn(async move { match working.run().await {} });
    AtWork {
        mirror,
        _task: task,
    }
}

/// Stops the old mirror before a write, lets the new one write, lets the old one go on.
async fn overtaken_before_its_write(cut_off: bool, deleted_meanwhile: bool) {
    let Some(plane) = ControlPlane::shared().await else {
        return;
    };
    let namespace = plane.namespace("deposed").await;
    let admin = plane.client(User::Admin).await;
    let objects = Objects::of(admin.clone(), &namespace);
    let story = objects.follow().await;
    let lease = format!("k8s/{namespace}/leader");
    let name = LeaseName::parse(&lease).unwrap();

    let log = Log::begin();
    let turnstile = Turnstile::open();
    let stopped = ClientBuilder::try_from(plane.config(User::Admin).await).unwrap();
    let stopped = stopped.with_layer(&turnstile).build();
    let old = log.replica();
    let first = log.grant("first", &lease);
    let (first_token, deposed) = (first.token, put_to_work(&old, stopped, &namespace));
    objects
        .until_held("leader", "first", first_token.get())
        .await;

    // It reads that the lease is free, and is stopped before it writes so.
    turnstile.shut.send_replace(true);
    first.release();
    old.catch_up();
    deposed.mirror.note(&name);
    turnstile.until_somebody_waits().await;
    old.cut_off(cut_off);

    let second = log.grant("second", &lease);
    let new = log.replica();
    let _successor = put_to_work(&new, admin, &namespace);
    let held = objects
        .until_held("leader", "second", second.token.get())
        .await;
    if deleted_meanwhile {
        objects.delete("leader").await;
        let back = |found: &Observed| found.uid != held.uid;
        objects.until("leader", back).await;
    }

    let asked = old.asked();
    turnstile.through.add_permits(1_000);
    // It finds its write refused, reads, and sees a position beyond what it knows.
    within("the old mirror asks the cluster", async {
        while old.asked() == asked {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let now = objects.get("leader").await.unwrap();
    assert_eq!(now.content.holder.as_deref(), Some("second"));
    assert_eq!(token_of(&now), Some(second.token.get()));

    let versions = story.end().await;
    assert_never_back(&versions);
    let after = versions
        .iter()
        .skip_while(|(_, found)| token_of(found) < Some(second.token.get()));
    for (_, found) in after {
        assert_eq!(found.content.holder.as_deref(), Some("second"), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_mirror_that_was_stopped_before_its_write_loses_it() {
    overtaken_before_its_write(false, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn also_when_it_is_cut_off_from_its_cluster_for_good() {
    overtaken_before_its_write(true, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn also_when_its_object_is_another_one_by_then() {
    overtaken_before_its_write(true, true).await;
}

/// How often the leader is stopped.
const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_are_stopped_and_go_on_put_nothing_old_over_anything_new() {
    let Some(mut site) = Site::start(3).await else {
        return;
    };
    let story = site.objects.follow().await;
    let mut newest = Vec::new();
    for round in 0..ROUNDS {
        let leader = site.cluster.wait_for_leader(LONG).await;
        let session = site.session(&format!("holder-{round}")).await;
        for object in 0..8 {
            site.acquire(&session, &format!("l{object}")).await.forget();
        }
        // Some of these are under way to the API server when it is stopped.
        let closing = session.close();
        site.cluster.signal(leader, Signal::Stop);
        let closed = within("the end of a session", closing).await;
        closed.unwrap();

        let session = site.session(&format!("later-{round}")).await;
        newest.clear();
        for object in 0..8 {
            let name = format!("l{object}");
            let lease = site.acquire(&session, &name).await;
            newest.push((name, format!("later-{round}"), lease.token().get()));
            lease.forget();
        }
        site.cluster.signal(leader, Signal::Continue);
        for (name, holder, token) in &newest {
            site.objects.until_held(name, holder, *token).await;
        }
        within("the end of a session", session.close())
            .await
            .unwrap();
    }
    for (name, _, token) in &newest {
        let free =
            |found: &Observed| found.content.holder.is_none() && token_of(found) == Some(*token);
        site.objects.until(name, free).await;
    }
    let versions = story.end().await;
    assert!(versions.len() >= ROUNDS * 8, "{} versions", versions.len());
    assert_never_back(&versions);
}
