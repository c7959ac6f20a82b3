//! One direction of a connection, or of a stream on one: messages in order, each in its time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::connection::{Broken, Connection, Side};
use crate::lock::lock;
use crate::machine::MachineId;

/// How many messages may be under way before the sender waits.
const UNDER_WAY_MAX: usize = 64;

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Notified of a message, of room, and of the end.
    moved: Notify,
}

struct State<T> {
    under_way: VecDeque<(Duration, T)>,
    /// When the newest message was sent, and when it arrives: what is sent at the same time is in
    /// the same packet, and what comes later does not overtake it.
    last: (Duration, Duration),
    /// The sender has gone, and when that is noticed.
    closed: Option<Duration>,
    /// The receiver has gone.
    refused: bool,
}

/// The sending end.
pub struct Inlet<T> {
    shared: Arc<Shared<T>>,
    connection: Arc<Connection>,
    from: Side,
}

/// The receiving end.
pub struct Outlet<T> {
    shared: Arc<Shared<T>>,
    connection: Arc<Connection>,
    to: Side,
}

impl Connection {
    /// A way for messages that `from` sends.
    #[must_use]
    pub fn pipe<T>(self: &Arc<Self>, from: Side) -> (Inlet<T>, Outlet<T>) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                under_way: VecDeque::new(),
                last: (Duration::MAX, Duration::ZERO),
                closed: None,
                refused: false,
            }),
            moved: Notify::new(),
        });
        let inlet = Inlet {
            shared: shared.clone(),
            connection: self.clone(),
            from,
        };
        let outlet = Outlet {
            shared,
            connection: self.clone(),
            to: from.other(),
        };
        (inlet, outlet)
    }
}

impl<T> Inlet<T> {
    /// Sends a message once there is room.
    ///
    /// # Errors
    /// [`Broken`] if the connection is, or if no task receives any more.
    pub async fn send(&self, message: T) -> Result<(), Broken> {
        loop {
            let moved = self.shared.moved.notified();
            self.connection.whole_at(self.from)?;
            {
                let state = lock(&self.shared.state);
                if state.refused {
                    return Err(Broken("the other end reads no more".to_owned()));
                }
                if state.under_way.len() < UNDER_WAY_MAX {
                    break;
                }
            }
            tokio::select! {
                biased;
                () = moved => {}
                () = self.connection.broken_at(self.from) => {}
            }
        }
        self.push(message);
        Ok(())
    }

    /// Sends a message at once; what does not arrive is lost in silence.
    pub fn push(&self, message: T) {
        if self.connection.whole_at(self.from).is_err() {
            return;
        }
        let mut state = lock(&self.shared.state);
        let arrives = self.arrives(&mut state);
        state.under_way.push_back((arrives, message));
        drop(state);
        self.shared.moved.notify_waiters();
    }

    /// When what is sent now arrives.
    fn arrives(&self, state: &mut State<T>) -> Duration {
        let net = self.connection.net();
        let now = net.now();
        let (sent, arrives) = state.last;
        if sent == now {
            return arrives;
        }
        let (from, to) = self.machines();
        let arrives = arrives.max(now + net.delay(from, to));
        state.last = (now, arrives);
        arrives
    }

    fn machines(&self) -> (MachineId, MachineId) {
        let machine = |side| self.connection.machine(side).id();
        (machine(self.from), machine(self.from.other()))
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closed = Some(self.arrives(&mut state));
        drop(state);
        self.shared.moved.notify_waiters();
    }
}

enum Next<T> {
    Message(T),
    End,
    At(Duration),
    Later,
}

impl<T> Outlet<T> {
    /// The next message; `None` once the sender has gone and all that it sent is read.
    ///
    /// # Errors
    /// [`Broken`] if the connection is, as this end knows it.
    pub async fn recv(&mut self) -> Result<Option<T>, Broken> {
        let connection = &self.connection;
        let net = connection.net();
        let to = connection.machine(self.to).id();
        let from = connection.machine(self.to.other()).id();
        loop {
            let moved = self.shared.moved.notified();
            connection.whole_at(self.to)?;
            let next = self.next(net.now(), net.is_cut(from, to));
            let wait = match next {
                Next::Message(message) => {
                    self.shared.moved.notify_waiters();
                    return Ok(Some(message));
                }
                Next::End => return Ok(None),
                Next::At(time) => Some(net.inner.timeline.at(time)),
                Next::Later => None,
            };
            let wait = async {
                match wait {
                    Some(at) => {
                        tokio::time::sleep_until(at).await;
                        net.whole(from, to).await;
                    }
                    None => moved.await,
                }
            };
            tokio::select! {
                biased;
                () = wait => {}
                () = connection.broken_at(self.to) => {}
            }
        }
    }

    fn next(&self, now: Duration, cut: bool) -> Next<T> {
        let mut state = lock(&self.shared.state);
        let due = match (state.under_way.front(), state.closed) {
            (Some((due, _)), _) => *due,
            (None, Some(due)) => due,
            (None, None) => return Next::Later,
        };
        if due > now || cut {
            return Next::At(due);
        }
        match state.under_way.pop_front() {
            Some((_, message)) => Next::Message(message),
            None => Next::End,
        }
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.refused = true;
        state.under_way.clear();
        drop(state);
        self.shared.moved.notify_waiters();
    }
}
