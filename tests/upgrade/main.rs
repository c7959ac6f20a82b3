//! A cluster of an older release becomes one of this build, under load: rolled to rights that bind, and
//! rolled halfway, back and up while its nodes fail.
//!
//! `cargo xtask upgrade` builds the older release and starts this program; `cargo test` leaves it out.
#![allow(clippy::unwrap_used)]

mod halfway;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_proto::v1::Reason;
use ringfence_tests::{Caller, Cluster, Load, Options, Session, Shape, Signal};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const SHAPE: Shape = Shape {
    callers: 6,
    leases: 3,
    ttl: Duration::from_secs(10),
    patience: Duration::from_secs(15),
};

/// The level from which on a cluster knows rights.
const LEVEL_ACCESS: u32 = 4;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The older release's program.
fn older() -> PathBuf {
    let path = std::env::var_os("RINGFENCE_OLDER_SERVER");
    path.expect("RINGFENCE_OLDER_SERVER names an older release: run `cargo xtask upgrade`")
        .into()
}

/// `ringfence lock` of the older release, which knows no credentials.
struct OldHolder(Child);

impl OldHolder {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let lock = Command::new(older())
            .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
            .args(["lock", name, "--", "sleep", "3600"])
            .stdout(Stdio::null())
            .spawn();
        Self(lock.unwrap())
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for OldHolder {
    fn drop(&mut self) {
        // `lock` ends its command and its watchdog with itself when it is killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A holder that begins without a credential and is given one while it holds.
struct Moving {
    caller: Arc<Mutex<Caller>>,
    session: Arc<Session>,
    ended: Arc<Mutex<Option<String>>>,
    keeping: JoinHandle<()>,
}

impl Moving {
    async fn start(caller: Caller) -> Self {
        let session = Arc::new(caller.open("moving", secs(10)).await.unwrap());
        let caller = Arc::new(Mutex::new(caller));
        let ended = Arc::default();
        let keeping = Self::keep(
            Arc::clone(&caller),
            Arc::clone(&session),
            Arc::clone(&ended),
        );
        Self {
            caller,
            session,
            ended,
            keeping: tokio::spawn(keeping),
        }
    }

    async fn keep(
        caller: Arc<Mutex<Caller>>,
        session: Arc<Session>,
        ended: Arc<Mutex<Option<String>>>,
    ) {
        loop {
            let now = caller.lock().unwrap().clone();
            match now.keep_alive(&session).await {
                Ok(reply) if reply.ended.is_empty() && reply.lost.is_empty() => {}
                other => {
                    *ended.lock().unwrap() = Some(format!("{other:?}"));
                    return;
                }
            }
            sleep(session.ttl / 5).await;
        }
    }

    fn prove_by(&self, token: &str) {
        let mut caller = self.caller.lock().unwrap();
        *caller = caller.with_token(token);
    }

    fn caller(&self) -> Caller {
        self.caller.lock().unwrap().clone()
    }

    fn assert_kept(&self) {
        assert_eq!(*self.ended.lock().unwrap(), None, "the session goes on");
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

/// Runs a command of `ringfence access` by the first node's admin socket; what it printed.
fn access(cluster: &Cluster, words: &[&str]) -> String {
    let socket = cluster.data_dir(0).join("admin.sock");
    let run = Command::new(server())
        .args(["--endpoints", &format!("unix:{}", socket.display())])
        .arg("access")
        .args(words)
        .output();
    let run = run.unwrap();
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "access {words:?}: {err}");
    String::from_utf8(run.stdout).unwrap()
}

async fn holder_of(caller: &Caller, name: &str) -> Option<u64> {
    let lease = caller.get(name).await.unwrap();
    Some(lease?.holder?.token)
}

/// Ends a node as an operator does, and starts it as this program; that of this build if `None`.
async fn restart_as(cluster: &mut Cluster, at: usize, server: Option<PathBuf>) {
    cluster.signal(at, Signal::Terminate);
    let code = cluster.wait_exit(at, secs(20)).await;
    assert_eq!(code, Some(0), "{}", cluster.log(at));
    cluster.set_server(at, server);
    cluster.spawn(at);
}

async fn wait_for_level(cluster: &Cluster, level: u32) {
    let wait = async {
        for at in 0..cluster.len() {
            while cluster.level(at).await < level {
                sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let arrived = tokio::time::timeout(secs(60), wait).await;
    arrived.unwrap_or_else(|_| panic!("level {level} on all nodes within 60 s"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_an_older_release_is_rolled_to_enforced_and_no_lease_is_lost() {
    let mut cluster = Cluster::start(Options {
        server: Some(older()),
        ..Options::alone()
    })
    .await;
    let load = Load::start(&cluster, SHAPE).await;
    let anyone = cluster.caller();
    let mut old = OldHolder::start(&cluster, "held/old");
    let moving = Moving::start(cluster.caller()).await;
    let number = moving.session.number();
    let held = anyone.acquire(&moving.session, number, "held/moving", None);
    let held = held.await.unwrap().token;
    let wait = async {
        loop {
            if let Some(token) = holder_of(&anyone, "held/old").await {
                return token;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let held_old = tokio::time::timeout(secs(20), wait).await.unwrap();

    for at in 0..cluster.len() {
        load.progress(20, secs(20)).await;
        // As the first node is upgraded the others know nothing of rights.
        assert!(cluster.level(at).await < LEVEL_ACCESS, "no level too early");
        restart_as(&mut cluster, at, None).await;
        load.progress(20, secs(20)).await;
    }
    wait_for_level(&cluster, LEVEL_ACCESS).await;

    access(&cluster, &["mode", "permissive"]);
    load.progress(20, secs(20)).await;
    access(&cluster, &["grant", "anonymous", "acquire", "load/*"]);
    access(&cluster, &["grant", "token:mover", "acquire", "held/*"]);
    let token = access(&cluster, &["token", "create", "mover", "--ttl", "1d"]);
    moving.prove_by(token.trim());
    sleep(secs(3)).await;
    moving.assert_kept();

    access(&cluster, &["mode", "enforced"]);
    load.progress(60, secs(30)).await;
    // What no rule allows is refused; what was held before is held.
    let stranger = anyone.open("stranger", secs(10)).await.unwrap();
    let refused = anyone.acquire(&stranger, stranger.number(), "held/new", None);
    let refused = refused.await.unwrap_err().reason();
    assert_eq!(refused, Some(Reason::PermissionDenied));
    let moved = moving.caller();
    // Longer than any TTL: sessions that nothing extends would have ended.
    sleep(secs(20)).await;
    moving.assert_kept();
    assert_eq!(holder_of(&moved, "held/moving").await, Some(held));
    assert_eq!(holder_of(&moved, "held/old").await, Some(held_old));
    assert!(old.runs(), "the older client still holds");

    // The session is the token's now.
    let number = moving.session.number();
    let stolen = anyone.release(&moving.session, number, "held/moving", held);
    assert!(stolen.await.is_err(), "anonymous has lost that session");
    let number = moving.session.number();
    let released = moved.release(&moving.session, number, "held/moving", held);
    released.await.unwrap();

    access(&cluster, &["mode", "off"]);
    load.progress(20, secs(20)).await;
    assert_eq!(holder_of(&anyone, "held/old").await, Some(held_old));
    assert!(old.runs(), "the older client still holds");
    load.finish().await;
}
