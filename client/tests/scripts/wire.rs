//! A TCP proxy before a node: connections through it can be broken, fall silent, or be refused.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What becomes of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// They vanish, and no end is notified; also those of connections that are opened now.
    Silent,
    /// Connections are closed, and so are new ones.
    Refuse,
}

#[derive(Clone, Copy)]
struct State {
    mode: Mode,
    cuts: u64,
}

/// See the module.
pub(crate) struct Wire {
    address: String,
    state: watch::Sender<State>,
    accepting: AbortHandle,
}

impl Wire {
    pub(crate) async fn to(target: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let mode = Mode::Pass;
        let state = watch::Sender::new(State { mode, cuts: 0 });
        let subscribed = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connection(near, target.clone(), subscribed.subscribe()));
            }
        });
        Ok(Self {
            address,
            state,
            accepting: accepting.abort_handle(),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Breaks the connections that are open now.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.state.send_modify(|state| state.mode = mode);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connection(near: TcpStream, target: String, mut state: watch::Receiver<State>) {
    let began = *state.borrow_and_update();
    if began.mode == Mode::Refuse {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    near.set_nodelay(true).ok();
    far.set_nodelay(true).ok();
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let is_over = |state: &State| state.cuts != began.cuts || state.mode == Mode::Refuse;
    let (there, back) = (state.clone(), state.clone());
    tokio::select! {
        () = copy(near_read, far_write, there) => {}
        () = copy(far_read, near_write, back) => {}
        _ = state.wait_for(is_over) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: watch::Receiver<State>) {
    let mut buffer = [0; 16 * 1024];
    // A connection that lost bytes once is of no use any more, and stays open.
    let mut lost = false;
    while let Ok(count) = from.read(&mut buffer).await {
        lost |= state.borrow().mode == Mode::Silent;
        if count == 0 {
            return;
        }
        if !lost && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
