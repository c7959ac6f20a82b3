//! A proxy between a client and its server that knows where messages begin and end, and disturbs one
//! of them.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_guard::conformance::{Fault, Hit};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

/// Bytes under way between client and proxy.
const BUFFER: usize = 64 * 1024;

/// How long a server may take over an answer that the client is not to get.
const ANSWER: Duration = Duration::from_secs(10);

/// How a protocol's bytes fall into steps: what a client sends and then awaits an answer to.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    /// The length of the first step in these bytes, if all of it is there.
    pub(crate) step: fn(&[u8]) -> Option<usize>,
    /// What is sent in the place of a step that is to fail before it does anything.
    pub(crate) failing: &'static [u8],
    /// Whether these bytes are the end of an answer.
    pub(crate) answered: fn(&[u8]) -> bool,
}

/// What is done from outside while the server carries out a step.
pub(crate) type Outside = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

struct Plan {
    fault: Fault,
    outside: Outside,
    seen: u32,
}

/// The disturbance of one connection, or of all the connections of one client.
pub(crate) struct Hand {
    state: State,
    pump: JoinHandle<()>,
    /// Accepts no further connections, where there may be several.
    last: Arc<Notify>,
}

#[derive(Clone, Default)]
struct State {
    plan: Arc<Mutex<Option<Plan>>>,
    reached: Arc<AtomicBool>,
}

impl Hand {
    /// Counts steps from here on, and disturbs one of them. Nothing may be under way.
    pub(crate) fn arm(&self, fault: Fault, outside: Outside) {
        let plan = Plan {
            fault,
            outside,
            seen: 0,
        };
        *self.state.plan.lock().unwrap() = Some(plan);
    }

    /// Disturbs nothing from here on, and says whether the disturbed step has come.
    pub(crate) fn disarm(&self) -> bool {
        *self.state.plan.lock().unwrap() = None;
        self.state.reached.load(Ordering::SeqCst)
    }

    /// Waits until the connection has ended, and a disturbance that is under way with it. The
    /// client's end must have been dropped.
    pub(crate) async fn ended(self) {
        self.last.notify_one();
        self.pump.await.unwrap();
    }
}

impl State {
    /// What to do with the step that comes now; `None`: nothing special.
    fn next(&self) -> Option<(Hit, Outside)> {
        let mut plan = self.plan.lock().unwrap();
        let plan = plan.as_mut()?;
        let seen = plan.seen;
        plan.seen += 1;
        if seen != plan.fault.step {
            return None;
        }
        self.reached.store(true, Ordering::SeqCst);
        Some((plan.fault.hit, Arc::clone(&plan.outside)))
    }

    fn is_armed(&self) -> bool {
        self.plan.lock().unwrap().is_some()
    }
}

/// Connects to a server through a proxy; what is returned is the client's end.
pub(crate) async fn connect(port: u16, framing: Framing) -> (DuplexStream, Hand) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = TcpStream::connect(address).await.unwrap();
    server.set_nodelay(true).unwrap();
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let state = State::default();
    let pump = tokio::spawn(pump(ours, server, state.clone(), framing));
    let last = Arc::default();
    (theirs, Hand { state, pump, last })
}

/// Makes a port at which one client reaches a server through a proxy.
pub(crate) async fn listen(port: u16, framing: Framing) -> (u16, Hand) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let reached = listener.local_addr().unwrap().port();
    let state = State::default();
    let hand = state.clone();
    let pump = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        let server = server.unwrap();
        server.set_nodelay(true).unwrap();
        pump(client, server, hand, framing).await;
    });
    let last = Arc::default();
    (reached, Hand { state, pump, last })
}

/// Makes a port at which a client reaches a server through as many connections as it likes; their
/// steps are counted together.
pub(crate) async fn serve(port: u16, framing: Framing) -> (u16, Hand) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let reached = listener.local_addr().unwrap().port();
    let (state, last) = (State::default(), Arc::<Notify>::default());
    let (hand, until) = (state.clone(), Arc::clone(&last));
    let pump = tokio::spawn(async move {
        let mut pumps = JoinSet::new();
        loop {
            let (client, _) = tokio::select! {
                accepted = listener.accept() => accepted.unwrap(),
                () = until.notified() => break,
            };
            client.set_nodelay(true).unwrap();
            // While the server is down the client meets what it would meet without a proxy.
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                set_socket_linger(&client, Some(Duration::ZERO)).ok();
                continue;
            };
            server.set_nodelay(true).unwrap();
            pumps.spawn(pump(client, server, hand.clone(), framing));
        }
        while pumps.join_next().await.is_some() {}
    });
    (reached, Hand { state, pump, last })
}

/// Ends when either side does, or when the connection is to be reset.
async fn pump(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: TcpStream,
    hand: State,
    framing: Framing,
) {
    let mut pending = Vec::new();
    let (mut up, mut down) = (vec![0; BUFFER], vec![0; BUFFER]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(1..) = read else { return };
                pending.extend_from_slice(&up[..read.unwrap_or(0)]);
                if !hand.is_armed() {
                    // Handshakes have a form of their own.
                    if server.write_all(&pending).await.is_err() { return }
                    pending.clear();
                    continue;
                }
                while let Some(end) = (framing.step)(&pending) {
                    let step: Vec<u8> = pending.drain(..end).collect();
                    let on = match hand.next() {
                        None => server.write_all(&step).await.is_ok(),
                        Some((hit, outside)) => {
                            disturb(&mut server, &step, hit, outside, framing).await
                        }
                    };
                    if !on {
                        // A reset, not an orderly end: what the server has not read is lost.
                        set_socket_linger(&server, Some(Duration::ZERO)).ok();
                        return;
                    }
                }
            }
            read = server.read(&mut down) => {
                let Ok(read @ 1..) = read else { return };
                if client.write_all(&down[..read]).await.is_err() { return }
            }
        }
    }
}

/// Whether the connection goes on.
async fn disturb(
    server: &mut TcpStream,
    step: &[u8],
    hit: Hit,
    outside: Outside,
    framing: Framing,
) -> bool {
    match hit {
        Hit::TimesOut => server.write_all(framing.failing).await.is_ok(),
        Hit::Cancelled => {
            let sent = server.write_all(step).await.is_ok();
            outside().await;
            sent
        }
        Hit::ResetInside => {
            server.write_all(&step[..step.len() / 2]).await.ok();
            false
        }
        Hit::ResetBehind => {
            if server.write_all(step).await.is_ok() {
                let answer = read_answer(server, framing);
                tokio::time::timeout(ANSWER, answer).await.ok();
            }
            false
        }
        Hit::Restart => {
            server.write_all(step).await.ok();
            outside().await;
            false
        }
        // A reset before the step, and whatever is added to the kinds.
        _ => false,
    }
}

async fn read_answer(server: &mut TcpStream, framing: Framing) {
    let mut answer = Vec::new();
    let mut part = [0; 4_096];
    while let Ok(read @ 1..) = server.read(&mut part).await {
        answer.extend_from_slice(&part[..read]);
        if (framing.answered)(&answer) {
            return;
        }
    }
}

/// PostgreSQL: up to a `Query` or a `Sync`, which the server answers with `ReadyForQuery`.
pub(crate) const POSTGRES: Framing = Framing {
    step: postgres_step,
    // Fails whatever the state: alone without a trace, in a transaction by aborting it.
    failing: b"Q\x00\x00\x00\x0fSELECT 1/0\x00",
    answered: |answer| {
        answer
            .len()
            .checked_sub(6)
            .is_some_and(|at| answer[at..].starts_with(b"Z\x00\x00\x00\x05"))
    },
};

fn postgres_step(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let kind = *bytes.get(at)?;
        let length = bytes.get(at + 1..at + 5)?;
        let end = at + 1 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        if end > bytes.len() {
            return None;
        }
        // A client that says goodbye awaits no answer.
        if matches!(kind, b'Q' | b'S' | b'X') {
            return Some(end);
        }
        at = end;
    }
}

/// Redis: a command is an array of bulk strings.
pub(crate) const REDIS: Framing = Framing {
    step: redis_step,
    failing: b"*1\r\n$20\r\nRINGFENCE-NO-COMMAND\r\n",
    answered: |answer| answer.ends_with(b"\r\n"),
};

fn redis_step(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| -> Option<(usize, usize)> {
        let line = bytes.get(at + 1..)?;
        let end = line.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = std::str::from_utf8(&line[..end]).unwrap();
        Some((digits.parse().unwrap(), at + 1 + end + 2))
    };
    let (parts, mut at) = number(0)?;
    for _ in 0..parts {
        let (length, start) = number(at)?;
        at = start + length + 2;
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// MySQL: a command is one packet, three bytes of length, a number and the content.
pub(crate) const MYSQL: Framing = Framing {
    step: mysql_step,
    // No statement: it fails, and leaves the transaction as it is.
    failing: b"\x02\x00\x00\x00\x03?",
    // The server sends its answer when it has carried out the command, and all of it at once as far as
    // it fits its buffer.
    answered: |answer| mysql_step(answer).is_some(),
};

fn mysql_step(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..4)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    let end = 4 + length;
    (bytes.len() >= end).then_some(end)
}

/// HTTP: a request, whose body is as long as its head says.
pub(crate) const HTTP: Framing = Framing {
    step: http_message,
    // Without a signature: refused.
    failing: b"GET / HTTP/1.1\r\nHost: s3\r\n\r\n",
    answered: |answer| http_message(answer).is_some(),
};

fn http_message(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |length| length.trim().parse().unwrap());
    (bytes.len() >= end + length).then_some(end + length)
}

/// HTTP/2: a request ends with a frame that ends its stream. What comes in between waits for it.
pub(crate) const HTTP2: Framing = Framing {
    step: end_of_stream,
    // A PING without its 8 bytes: the server gives up the connection.
    failing: b"\x00\x00\x00\x06\x00\x00\x00\x00\x00",
    answered: |answer| end_of_stream(answer).is_some(),
};

fn end_of_stream(bytes: &[u8]) -> Option<usize> {
    const HEAD: usize = 9;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;
    let mut at = 0;
    loop {
        let head = bytes.get(at..at + HEAD)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        at += HEAD + length;
        if at > bytes.len() {
            return None;
        }
        if matches!(head[3], DATA | HEADERS) && head[4] & END_STREAM != 0 {
            return Some(at);
        }
    }
}
