//! Clusters, candidates, and processes of the examples.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ringfence_client::{BootClock, CampaignHandle, Client, Clock, Elector, Leader, Timings};
use ringfence_tests::{Cluster, Options};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A lease duration that is over soon, and survives a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// A cluster of one, for what is not about its nodes.
pub(crate) async fn one_node() -> Cluster {
    let options = Options {
        nodes: 1,
        ..Options::default()
    };
    Cluster::start(options).await
}

pub(crate) async fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.endpoints()).await.unwrap()
}

/// Times around [`LEASE`].
pub(crate) fn short() -> Timings {
    let retry = Duration::from_millis(100);
    Timings::new(Some(LEASE), Some(LEASE * 9 / 10), Some(retry)).unwrap()
}

/// Times with a lease duration that no test outlasts.
pub(crate) fn long() -> Timings {
    let (lease, renew) = (Duration::from_secs(120), Duration::from_secs(100));
    Timings::new(Some(lease), Some(renew), Some(Duration::from_millis(100))).unwrap()
}

pub(crate) fn elector(client: &Client, identity: &str, timings: Timings) -> Elector {
    let builder = Elector::builder(client).identity(identity);
    builder.timings(timings).build()
}

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// The leader, once the candidate has been notified of one: that comes beside its own term, in no
/// order.
pub(crate) async fn leader(handle: &CampaignHandle) -> Leader {
    let mut told = handle.leader();
    let told = within("news of a leader", told.wait_for(Option::is_some)).await;
    told.unwrap().clone().unwrap()
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, waiting).await;
}

/// What happened, in order, reported from anywhere.
#[derive(Clone)]
pub(crate) struct Story(Arc<watch::Sender<Vec<String>>>);

impl Story {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn tell(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// How many lines begin so.
    pub(crate) fn count(&self, start: &str) -> usize {
        let lines = self.0.borrow();
        lines.iter().filter(|line| line.starts_with(start)).count()
    }

    /// Waits until that many lines begin so.
    pub(crate) async fn until(&self, count: usize, start: &str) {
        let waiting = async {
            let mut lines = self.0.subscribe();
            let enough = |lines: &Vec<String>| {
                lines.iter().filter(|line| line.starts_with(start)).count() >= count
            };
            lines.wait_for(enough).await.map(drop).unwrap();
        };
        if tokio::time::timeout(LONG, waiting).await.is_err() {
            panic!("{count} times {start:?} in {:?}", self.lines());
        }
    }
}

/// How slow this machine is meanwhile: the longest time that a request took which a cluster that has
/// nothing else to do answers at once, so with all the waits for a core of two processes.
pub(crate) struct Lag {
    worst: Arc<AtomicU64>,
    asking: AbortHandle,
}

impl Lag {
    /// What a line takes from a process that prints it to a test that waits for it, on a machine that
    /// has nothing else to do.
    const LINE: Duration = Duration::from_millis(500);

    pub(crate) fn of(cluster: &Cluster) -> Self {
        let (worst, caller) = (Arc::<AtomicU64>::default(), cluster.caller());
        let told = Arc::clone(&worst);
        let asking = tokio::spawn(async move {
            loop {
                let asked = BootClock.now();
                caller.get("lag").await.ok();
                let took = BootClock.now().saturating_since(asked).as_millis();
                told.fetch_max(u64::try_from(took).unwrap(), Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self {
            worst,
            asking: asking.abort_handle(),
        }
    }

    /// What may be added to a time in which some messages, wake-ups and lines of output follow upon
    /// each other.
    pub(crate) fn allowance(&self) -> Duration {
        let worst = Duration::from_millis(self.worst.load(Ordering::SeqCst));
        Self::LINE + worst * 4
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

/// A process of one of the client's examples, and what it prints.
pub(crate) struct Example {
    child: Child,
    pub(crate) story: Story,
}

impl Example {
    /// Starts an example that ends on its own after a minute.
    pub(crate) fn start(name: &str, cluster: &Cluster, env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(examples().join(name))
            .arg("60")
            .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let story = Story::new();
        let (told, out) = (story.clone(), child.stdout.take().unwrap());
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                told.tell(line);
            }
        });
        Self { child, story }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits until it has ended; whether it says that all went well.
    pub(crate) async fn end(&mut self) -> bool {
        within("the example ends", self.child.wait())
            .await
            .unwrap()
            .success()
    }
}

/// Where the examples are, brought up to date once per process.
fn examples() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let each = ["cron_singleton", "elector", "fenced_writer", "work_shards"];
        let each = each.map(|name| ["--example", name]);
        ringfence_tests::built(each.as_flattened()).join("examples")
    })
}

/// A TCP proxy that can be cut: bytes vanish then, and no end is notified.
pub(crate) struct Proxy {
    pub(crate) address: String,
    target: Arc<Mutex<String>>,
    cut: Arc<AtomicBool>,
    accepting: AbortHandle,
}

impl Proxy {
    /// A proxy that leads nowhere yet: a cluster that is to advertise it does not run yet.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cut, target) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (is_cut, to) = (Arc::clone(&cut), Arc::<Mutex<String>>::clone(&target));
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let target = to.lock().unwrap().clone();
                let Ok(far) = TcpStream::connect(&target).await else {
                    continue;
                };
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                tokio::spawn(copy(near_read, far_write, Arc::clone(&is_cut)));
                tokio::spawn(copy(far_read, near_write, Arc::clone(&is_cut)));
            }
        });
        Self {
            address,
            target,
            cut,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn point_to(&self, target: &str) {
        *self.target.lock().unwrap() = target.into();
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// New connections carry bytes again.
    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn copy(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    cut: Arc<AtomicBool>,
) {
    let mut buffer = [0; 16 * 1024];
    // A connection that lost bytes once is of no use any more.
    let mut lost = false;
    while let Ok(count) = from.read(&mut buffer).await {
        lost |= cut.load(Ordering::SeqCst);
        if count == 0 || !lost && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Numbers that come in, each once.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Arc<Mutex<VecDeque<u64>>>);

impl Tokens {
    pub(crate) fn push(&self, token: u64) {
        self.0.lock().unwrap().push_back(token);
    }

    /// Whether each is greater than the one before.
    pub(crate) fn rise(&self) -> bool {
        let tokens = self.0.lock().unwrap();
        tokens.iter().zip(tokens.iter().skip(1)).all(|(a, b)| a < b)
    }
}
