//! A TCP proxy before a node: it can swallow bytes while both ends stay connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// See the module.
pub(crate) struct Wire {
    address: String,
    cut: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl Wire {
    pub(crate) async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (is_cut, count) = (Arc::clone(&cut), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
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
            cut,
            connections,
            accepting: accepting.abort_handle(),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// From now on bytes vanish, also on new connections; no end is notified.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// New connections carry bytes again.
    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: Arc<AtomicBool>) {
    let mut buffer = [0; 16 * 1024];
    // A connection that lost bytes once is of no use any more.
    let mut lost = false;
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        lost |= cut.load(Ordering::SeqCst);
        if !lost && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
