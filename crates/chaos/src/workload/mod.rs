//! The work that is disturbed: clients that acquire, hold, wait, hand over, write and go on
//! writing when they should not, each a process of its own that tells what it saw in lines of the
//! history.

mod actor;
mod ask;
mod flood;
mod holding;
mod memory;
mod outcome;
mod recorder;
mod sqlite;
mod stores;
mod watcher;
mod zombie;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use ringfence_client::{Client, Tls};
use tokio::sync::watch;

pub(crate) use ask::Entry;
pub(crate) use memory::MemoryServer;
pub(crate) use sqlite::{databases, read_journal};

use actor::Actor;
use recorder::Recorder;
use stores::Stores;

/// The store in SQLite files, behind a guard.
pub(crate) const SQLITE: &str = "sqlite";
/// The store in a process's memory, behind a guard.
pub(crate) const MEMORY: &str = "memory";
/// The store in SQLite files that has no guard.
pub(crate) const UNGUARDED: &str = "unguarded";

/// How long one request of a client may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(4);
/// How often a client probes its connection, and how long the answer may take.
const PROBE: Duration = Duration::from_millis(700);
/// How long a client tries to reach any node.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// So many clients watch all leases, beside their other work.
const WATCHERS: u32 = 2;

/// One client of the workload, as its own process is given it.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Its number, from 1.
    pub number: u32,
    /// Where its dice begin.
    pub seed: u64,
    /// Client addresses of nodes.
    pub endpoints: Vec<String>,
    /// Where the databases of the guarded stores are.
    pub stores: PathBuf,
    /// The socket of the store in memory.
    pub memory: PathBuf,
    /// What the leases' names begin with.
    pub prefix: String,
    /// How many leases there are.
    pub leases: u32,
    /// Whether each write is also offered to a store without a guard.
    pub control: bool,
    /// How nodes are connected to, if with TLS.
    pub tls: Option<Tls>,
    /// Planted: the guard in SQLite admits every token.
    pub open_guard: bool,
}

/// Tells a client to make load of no consequence, besides its work.
pub(crate) const ORDER_FLOOD: &str = "flood";
/// Tells it to make no more of it.
pub(crate) const ORDER_CALM: &str = "calm";

/// Runs one client until it is stopped by a line on stdin, or stdin ends. Prints the lines of
/// its history on stdout.
///
/// # Errors
/// If its threads cannot be started, or no process reads what it prints.
pub fn run_client(options: ClientOptions) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(work(options));
    // A write to a database may still be under way; what it does is the database's to tell.
    runtime.shutdown_background();
    done
}

async fn work(options: ClientOptions) -> io::Result<()> {
    let recorder = Recorder::new(options.number);
    let Orders { stop, flood } = orders()?;
    let mut connecting = Client::builder()
        .endpoints(options.endpoints.clone())
        .connect_timeout(CONNECT_LIMIT)
        .request_timeout(REQUEST_LIMIT)
        .keep_alive(PROBE, PROBE);
    if let Some(tls) = options.tls.clone() {
        connecting = connecting.tls(tls);
    }
    let client = connecting.connect().await.map_err(io::Error::other)?;
    if options.number <= WATCHERS {
        let watch = client.watch(options.prefix.clone());
        tokio::spawn(watcher::run(
            watch,
            recorder.clone(),
            options.prefix.clone(),
        ));
    }
    tokio::spawn(flood::run(client.clone(), options.clone(), flood));
    let actor = Actor {
        rng: StdRng::seed_from_u64(options.seed),
        stores: Stores::new(&options, recorder.clone()),
        zombies: zombie::start(&options, recorder.clone()),
        client,
        recorder,
        options,
        stop,
    };
    actor.live().await;
    Ok(())
}

/// What the process's parent wants of it.
struct Orders {
    /// Becomes true when the process is to stop.
    stop: watch::Receiver<bool>,
    /// Is true while load is wanted.
    flood: watch::Receiver<bool>,
}

/// Listens to stdin on a thread of its own.
fn orders() -> io::Result<Orders> {
    let (tell_stop, stop) = watch::channel(false);
    let (tell_flood, flood) = watch::channel(false);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in io::stdin().lines() {
                match line.as_deref() {
                    Ok(ORDER_FLOOD) => {
                        tell_flood.send(true).ok();
                    }
                    Ok(ORDER_CALM) => {
                        tell_flood.send(false).ok();
                    }
                    Ok(_) | Err(_) => break,
                }
            }
            // Also if it cannot be read: then no parent is left to work for.
            tell_stop.send(true).ok();
            tell_flood.send(false).ok();
        })?;
    Ok(Orders { stop, flood })
}
