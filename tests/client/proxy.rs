//! A TCP proxy before a node, whose two directions can be held up, swallowed or garbled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They pass.
    Pass,
    /// They wait, as on a cut network, and pass late when it is mended.
    Hold,
    /// They vanish, and with them all later ones of that connection.
    Swallow,
    /// Others come in their place.
    Garble,
}

#[derive(Clone, Copy)]
struct Fates {
    up: Fate,
    down: Fate,
}

/// See the module. All connections end when it is dropped.
pub(crate) struct Proxy {
    address: String,
    target: watch::Sender<Option<String>>,
    fates: watch::Sender<Fates>,
    accepted: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl Proxy {
    /// A proxy on a free port that leads nowhere yet: its cluster may have to advertise it.
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0")
    }

    /// A proxy on this address.
    pub(crate) fn at(address: &str) -> Self {
        let listener = std::net::TcpListener::bind(address);
        Self::on(listener.unwrap())
    }

    /// A proxy on a port that is open already, perhaps in another network.
    pub(crate) fn on(listener: std::net::TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let target = watch::Sender::new(None);
        let (up, down) = (Fate::Pass, Fate::Pass);
        let fates = watch::Sender::new(Fates { up, down });
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        let (to, fated) = (target.subscribe(), fates.subscribe());
        let accepting = tokio::spawn(async move {
            // Aborted with this task.
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(carry(near, to.clone(), fated.clone()));
            }
        });
        Self {
            address,
            target,
            fates,
            accepted,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn point_to(&self, target: &str) {
        self.target.send_replace(Some(target.into()));
    }

    /// What happens from now on to bytes for the server, and to those from it.
    pub(crate) fn set(&self, up: Fate, down: Fate) {
        self.fates.send_replace(Fates { up, down });
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(
    near: TcpStream,
    mut target: watch::Receiver<Option<String>>,
    fates: watch::Receiver<Fates>,
) {
    let Ok(address) = target.wait_for(Option::is_some).await.map(|to| to.clone()) else {
        return;
    };
    let Ok(far) = TcpStream::connect(address.unwrap()).await else {
        return;
    };
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::join!(
        pump(near_read, far_write, fates.clone(), |fates| fates.up),
        pump(far_read, near_write, fates, |fates| fates.down),
    );
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fates: watch::Receiver<Fates>,
    way: fn(&Fates) -> Fate,
) {
    let mut buffer = vec![0; 16 * 1024];
    // A connection that lost bytes once is of no use any more.
    let mut lost = false;
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let released = fates.wait_for(|fates| way(fates) != Fate::Hold).await;
        let Ok(fate) = released.map(|fates| way(&fates)) else {
            return;
        };
        lost |= fate == Fate::Swallow;
        if fate == Fate::Garble {
            buffer[..count].fill_with(rand::random);
        }
        if !lost && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
