//! Starting a node: its directory, its port, and its way to a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_core::{Access, QUIET_TIME_MAX, TOKEN_FLOOR_MAX};
use ringfence_history::{Clock, History};
use ringfence_planted::{Bug, planted};
use ringfence_wal::{Fs, FsLock};
use tokio::sync::watch;

use crate::bootstrap::forming::find_seat;
use crate::bootstrap::seat::{SeatError, resume};
use crate::config::NodeConfig;
use crate::leader::term::Route;
use crate::membership::list::FIRST_MEMBERS_MAX;
use crate::network::bind;
use crate::node::Node;
use crate::peers::server::PeerService;
use crate::platform::clock;
use crate::platform::files::make_dir_durable;
use crate::platform::place;
use crate::read::freshness;
use crate::requests::keepalive::KeepAlives;
use crate::requests::propose::{Dispatcher, Proposals};
use crate::shared::inner::{Inner, Parts};
use crate::store::data_dir::LOCK_FILE;
use crate::store::identity::{Identity, IdentityError};
use crate::store::state::State;
use crate::tasks::twin;
use crate::types::entry_size::{WAL_SEGMENT_BYTES_MAX, WAL_SEGMENT_BYTES_MIN};
use crate::types::stop::StopSignal;

/// Why a node did not start. Nothing was changed but what the message says.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration cannot be used.
    #[error("{what} is {offered}: {why}")]
    Config {
        /// The name of the value, as the configuration spells it.
        what: &'static str,
        /// The value that was given.
        offered: String,
        /// The allowed values.
        why: String,
    },
    /// The data directory cannot be used.
    #[error("data directory {path}")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process uses the data directory.
    #[error("data directory {path} is in use by another process; stop it, or use another one")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory is another node's.
    #[error(
        "data directory {path} belongs to node {found:?}, this node is called {expected:?}; start \
         it as {found:?}, or give {expected:?} a directory of its own"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// This node's name.
        expected: String,
        /// The name in the directory.
        found: String,
    },
    /// There is a log, but nothing says whose.
    #[error(
        "data directory {path} holds a log but no identity; restore the identity file, or empty \
         the directory and let the node join again"
    )]
    NoIdentity {
        /// The directory.
        path: PathBuf,
    },
    /// The identity file.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A new cluster goes on with what this directory held.
    #[error(
        "data directory {path} is retired: `ringfence recover` has made a backup of it, and the cluster \
         that is restored from that backup goes on in its place, so this node never starts again; to \
         restore the backup, or to join the restored cluster, give the node an empty directory; see \
         deploy/RECOVERY.md#the-majority-is-lost-for-good"
    )]
    Retired {
        /// The directory.
        path: PathBuf,
    },
    /// The peer port cannot be opened.
    #[error("listen for other nodes on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The log, a snapshot or Raft.
    #[error(transparent)]
    Seat(#[from] SeatError),
}

impl Node {
    /// Opens the storage and the peer port. Forming or joining a cluster, and catching up, go on
    /// in the background: see [`Node::watch_status`].
    ///
    /// # Errors
    /// [`StartError`] says what is wrong and what to do.
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        check(&config)?;
        let lock = open_dir(config.hooks.files.as_ref(), &config.data_dir)?;
        let identity = load_identity(&config)?;
        if identity.retired && !planted(Bug::RetiredStarts) {
            return Err(StartError::Retired {
                path: config.data_dir,
            });
        }
        if let (Some(seat), Some(_)) = (identity.seat, &config.restore) {
            tracing::warn!(
                cluster = %seat.cluster,
                "this node belongs to a cluster, so --restore means nothing unless that cluster is \
                 still to be restored: remove the flag"
            );
        }
        let listen = config.peer_listen;
        let (server, peer_address) = bind(listen).await.map_err(|source| StartError::Listen {
            address: listen,
            source,
        })?;
        let peer_advertise = config
            .peer_advertise
            .clone()
            .or_else(|| named_address(&config))
            .unwrap_or_else(|| peer_address.to_string());

        let stop = StopSignal::new();
        // A simulated node keeps no history: it decides nothing.
        let (history, feed) = match place::current() {
            None => {
                let clock = Clock {
                    since_boot: clock::since_boot,
                    wall: clock::wall,
                };
                History::open(&config.data_dir, config.history, clock)
            }
            Some(_) => History::none(),
        };
        let state = Arc::new(State::new(
            feed,
            stop.clone(),
            config.hooks.observer.clone(),
        ));
        let route = watch::Sender::new(Route::NoLeader);
        let (proposals, pending) = Proposals::new();
        let (keepalives, batcher) = KeepAlives::new(state.clone(), route.subscribe());
        let dispatcher = Dispatcher {
            proposals: proposals.clone(),
            pending,
            route: route.subscribe(),
        };
        let seat = identity.seat;
        let inner = Arc::new(Inner::new(Parts {
            config,
            peer_address,
            peer_advertise,
            identity,
            process: twin::this_process(),
            state,
            history,
            stop,
            proposals,
            keepalives,
            route,
            lock,
        }));
        let tasks = &inner.tasks;
        tasks.spawn(dispatcher.run());
        tasks.spawn(batcher.run());
        let service = PeerService::new(inner.clone());
        let accept = inner.config.peer_tls.as_ref();
        let accept = accept.map(|tls| tls.accept.clone());
        let figures = inner.peer_port.clone();
        tasks.spawn(server.run(service, inner.stop.clone(), accept, figures));
        let node = Self {
            inner: inner.clone(),
        };
        match seat {
            Some(seat) => {
                if let Err(error) = resume(&inner, seat).await {
                    node.crash().await;
                    return Err(error.into());
                }
            }
            None => tasks.spawn(find_seat(inner.clone())),
        }
        tasks.spawn(freshness::keep_fresh(inner.clone()));
        tasks.spawn(freshness::keep_confirmed(inner.clone()));
        let _supervisor = crate::platform::runtime::spawn(end_when_stopped(node.clone()));
        Ok(node)
    }
}

/// A node that stops on its own must not go on answering.
async fn end_when_stopped(node: Node) {
    drop(node.stopped().await);
    node.crash().await;
}

fn check(config: &NodeConfig) -> Result<(), StartError> {
    let wrong = |what, offered: &str, why: &str| {
        Err(StartError::Config {
            what,
            offered: offered.to_owned(),
            why: why.to_owned(),
        })
    };
    if config.name.is_empty() || config.name.len() > 255 {
        return wrong("name", &config.name, "a node's name has 1 to 255 bytes");
    }
    let mut names: Vec<&String> = config
        .initial_cluster
        .iter()
        .map(|(name, _)| name)
        .collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong("initial-cluster", pair[0], "a name stands there twice");
    }
    let first = config.initial_cluster.len();
    if first > FIRST_MEMBERS_MAX {
        let why = format!("at most {FIRST_MEMBERS_MAX} first members are allowed");
        return wrong("initial-cluster", &format!("{first} members"), &why);
    }
    if config.initial_cluster.is_empty() && config.join.is_empty() {
        return wrong(
            "initial-cluster",
            "(empty)",
            "name the first members, or members to join",
        );
    }
    if let Some(floor) = config.token_floor.filter(|floor| *floor > TOKEN_FLOOR_MAX) {
        let why = format!("0 to {TOKEN_FLOOR_MAX} are allowed");
        return wrong("token-floor", &floor.to_string(), &why);
    }
    if config.quiet_time > QUIET_TIME_MAX {
        let why = format!("0 to {QUIET_TIME_MAX} are allowed");
        return wrong("quiet-time", &config.quiet_time.to_string(), &why);
    }
    if let (Some(floor), true) = (
        config.token_floor,
        config.restore.as_ref().is_some_and(|restore| restore.drill),
    ) {
        let why = "a drill has tokens from 1, so that no store admits them: leave it out";
        return wrong("token-floor", &floor.to_string(), why);
    }
    let rules = config
        .restore
        .as_ref()
        .and_then(|restore| restore.rules.as_ref());
    if let Some(Err(why)) = rules.map(|rules| Access::check(rules)) {
        return wrong("rules", "a set of rules", &why.to_string());
    }
    if let Err(error) = config.settings.check() {
        return wrong("settings", &error.to_string(), "see the documented ranges");
    }
    let segment = config.wal_segment_bytes;
    // The log would say so too, but only when it is made: after the cluster was formed or joined.
    let range = WAL_SEGMENT_BYTES_MIN..=WAL_SEGMENT_BYTES_MAX;
    if !range.contains(&segment) || !segment.is_multiple_of(512) {
        let why = format!(
            "{WAL_SEGMENT_BYTES_MIN} to {WAL_SEGMENT_BYTES_MAX} are allowed, multiples of 512"
        );
        return wrong("wal-segment-bytes", &segment.to_string(), &why);
    }
    match config.openraft() {
        Ok(_) => Ok(()),
        Err(error) => wrong(
            "timing",
            &format!("{:?}", config.timing),
            &error.to_string(),
        ),
    }
}

fn named_address(config: &NodeConfig) -> Option<String> {
    let mut named = config.initial_cluster.iter();
    named
        .find(|(name, _)| *name == config.name)
        .map(|(_, address)| address.clone())
}

/// Makes the directory if need be, and keeps other processes out.
fn open_dir(files: &dyn Fs, path: &Path) -> Result<FsLock, StartError> {
    let failed = |source| StartError::DataDir {
        path: path.to_owned(),
        source,
    };
    make_dir_durable(files, path).map_err(failed)?;
    match files.lock(&path.join(LOCK_FILE)).map_err(failed)? {
        FsLock::Busy(_) => Err(StartError::Locked {
            path: path.to_owned(),
        }),
        held @ FsLock::Held(_) => Ok(held),
    }
}

fn load_identity(config: &NodeConfig) -> Result<Identity, StartError> {
    let path = &config.data_dir;
    let files = config.hooks.files.as_ref();
    if let Some(identity) = Identity::load(files, path)? {
        if identity.name != config.name {
            return Err(StartError::OtherNode {
                path: path.clone(),
                expected: config.name.clone(),
                found: identity.name,
            });
        }
        return Ok(identity);
    }
    if files.has_dir(&path.join("wal")) {
        return Err(StartError::NoIdentity { path: path.clone() });
    }
    let identity = Identity::unseated(&config.name);
    identity.save(files, path)?;
    Ok(identity)
}
