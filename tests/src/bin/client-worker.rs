//! A process for the tests in `tests/client`: it holds leases as a service would, and prints what
//! it believes and when. `RINGFENCE_ENDPOINTS` says where its cluster is.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_client::{
    BootClock, Client, Clock, HeldLease, Session, SessionHandle, SessionOptions, unstable,
};
use ringfence_proto::v1::KeepAliveRequest;
use ringfence_proto::v1::client_frame::Body;
use ringfence_proto::wire::session_handle_to_wire;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::AsyncBufReadExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

type Fallible<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match *args.as_slice() {
        ["hold", name, ttl] => hold(name, millis(ttl)?).await,
        ["write", name, ttl, store, stop_at] => {
            write(name, millis(ttl)?, store, stop_at.parse()?).await
        }
        ["clocks"] => clocks(),
        ["block", name, ttl, pause] => block(name, millis(ttl)?, millis(pause)?).await,
        ["leave", name, ttl] => leave(name, millis(ttl)?).await,
        ["resume", handle, name] => resume(handle.parse()?, name).await,
        ["crowd", clients, sessions, ttl] => {
            crowd(clients.parse()?, sessions.parse()?, millis(ttl)?).await
        }
        _ => Err(
            "expected hold, write, clocks, block, leave, resume or crowd, and their arguments"
                .into(),
        ),
    }
}

fn millis(text: &str) -> Fallible<Duration> {
    Ok(Duration::from_millis(text.parse()?))
}

async fn connect() -> Fallible<Client> {
    let endpoints = std::env::var("RINGFENCE_ENDPOINTS")?;
    Ok(Client::connect(endpoints.split(',')).await?)
}

async fn open(client: &Client, ttl: Duration) -> Fallible<Session> {
    let identity = format!("worker {}", std::process::id());
    Ok(client
        .open_session(SessionOptions { ttl, identity })
        .await?)
}

/// Works until the lease is lost: looks at it, and says when it began to look.
async fn hold(name: &str, ttl: Duration) -> Fallible {
    let client = connect().await?;
    let session = open(&client, ttl).await?;
    let lease = session.acquire(name).wait(ttl * 20).send().await?;
    println!("holds {}", lease.token());
    loop {
        let at = BootClock.now().since_boot().as_nanos();
        if let Some(loss) = lease.loss() {
            println!("lost {at} {loss}");
            return Ok(());
        }
        println!("work {} {at} {}", lease.token(), wall_seconds());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes 1, 2, 3 … to a store, each under its fence, until the store refuses. Stands still between the
/// look at its lease that says yes and the write with this number; 0: nowhere.
async fn write(name: &str, ttl: Duration, store: &str, stop_at: u64) -> Fallible {
    let client = connect().await?;
    let session = open(&client, ttl).await?;
    let lease = session.acquire(name).wait(ttl * 20).send().await?;
    println!("holds {}", lease.token());
    let mut store = BufReader::new(TcpStream::connect(store)?);
    for value in 1.. {
        if let Some(loss) = lease.loss() {
            println!("lost {loss}");
            return Ok(());
        }
        if value == stop_at {
            println!("stops before {value}");
            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)?;
        }
        // Nothing is looked at any more: this is the write that a pause held up.
        writeln!(store.get_mut(), "{} {value}", lease.fence())?;
        let mut answer = String::new();
        store.read_line(&mut answer)?;
        println!("{} {value}", answer.trim_end());
        if answer.starts_with("refused") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What the clock of belief shows, and the one that stands still while the machine is suspended, in
/// milliseconds.
fn clocks() -> Fallible {
    let standing = clock_gettime(ClockId::Monotonic);
    let standing = standing.tv_sec * 1_000 + standing.tv_nsec / 1_000_000;
    println!("belief {}", BootClock.now().since_boot().as_millis());
    println!("standing {standing}");
    Ok(())
}

/// Blocks the only thread of its executor.
async fn block(name: &str, ttl: Duration, pause: Duration) -> Fallible {
    let client = connect().await?;
    let session = open(&client, ttl).await?;
    let lease = session.acquire(name).send().await?;
    let until = BootClock.now() + pause;
    println!("holds {}", lease.token());
    while BootClock.now() < until {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    println!("woke {}", lease.is_valid());
    lease.release().await?;
    println!("released");
    Ok(())
}

/// Uses a session, and leaves it to the process that gets its handle.
async fn leave(name: &str, ttl: Duration) -> Fallible {
    let session = open(&connect().await?, ttl).await?;
    let token = session.acquire(name).send().await?.forget();
    println!("wall {}", wall_seconds());
    println!("left {} {token}", session.detach());
    Ok(())
}

/// Resumes a session that another process has left.
async fn resume(handle: SessionHandle, name: &str) -> Fallible {
    let session = connect().await?.attach(handle, Duration::MAX).await?;
    let lease = session.acquire(name).send().await?;
    println!("wall {}", wall_seconds());
    println!("holds {}", lease.token());
    lease.release().await?;
    Ok(())
}

/// Many clients, each with a connection of its own and many sessions, each of those with a lease.
/// From the line `measure` on each session sends keep-alives one after the other; at the line `stop`
/// they say how long those took.
async fn crowd(clients: usize, sessions: usize, ttl: Duration) -> Fallible {
    let mut members: Vec<Arc<(Client, Session, HeldLease)>> = Vec::new();
    // One after the other: that they come at once is for the change of leader.
    for _ in 0..clients {
        let client = connect().await?;
        for _ in 0..sessions {
            let session = open(&client, ttl).await?;
            let name = format!("crowd/{}/{}", std::process::id(), members.len());
            let lease = session.acquire(name).send().await?;
            members.push(Arc::new((client.clone(), session, lease)));
        }
    }
    println!("ready {}", members.len());
    let mut input = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    input.next_line().await?;
    let (stop, stopped) = watch::channel(false);
    let mut measuring = JoinSet::new();
    for member in members.iter().cloned() {
        measuring.spawn(keep_alives(member, ttl, stopped.clone()));
    }
    println!("measures");
    input.next_line().await?;
    stop.send_replace(true);
    while let Some(told) = measuring.join_next().await {
        let words: Vec<String> = told?.iter().map(u128::to_string).collect();
        println!("took {}", words.join(" "));
    }
    let valid = members.iter().filter(|member| member.2.is_valid()).count();
    println!("valid {valid}");
    Ok(())
}

/// Microseconds that each keep-alive took, from its first try to its answer.
async fn keep_alives(
    member: Arc<(Client, Session, HeldLease)>,
    ttl: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Vec<u128> {
    let (client, session, _) = &*member;
    let mut took = Vec::new();
    // Spread over the time between two, so that some are under way whenever a leader goes.
    let first = (ttl / 3).mul_f64(rand::random());
    tokio::time::sleep(first).await;
    while !*stopped.borrow() {
        let sent = client.now();
        let handle = session.handle();
        let sessions = vec![session_handle_to_wire(handle.session, &handle.secret)];
        let ask = KeepAliveRequest {
            sessions,
            ..KeepAliveRequest::default()
        };
        let answer = unstable::request(client, Body::KeepAlive(ask), ttl).await;
        if answer.is_ok() {
            took.push(client.now().saturating_since(sent).as_micros());
        }
        tokio::select! {
            () = tokio::time::sleep(ttl / 3) => {}
            changed = stopped.changed() => drop(changed),
        }
    }
    took
}

#[expect(
    clippy::disallowed_methods,
    reason = "shown to the test that steps it, and decides nothing"
)]
fn wall_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(0)
}
