//! Figures of the client, against the cluster at `RINGFENCE_ENDPOINTS` (`ringfence dev` unless set):
//!
//! - `client-figures sessions [COUNT] [SECONDS]`: what idle sessions of one process cost;
//! - `client-figures takeover [CANDIDATES] [ROUNDS]`: from a release to the next grant, and how many
//!   requests that takes, counted at `RINGFENCE_METRICS` (the nodes' HTTP ports).

use std::error::Error;
use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{BootClock, Client, Clock, Session, SessionOptions};
use ringfence_tests::processor_time;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

type Fallible<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// As `ringfence dev` listens.
const DEV: &str = "127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440";
const DEV_METRICS: &str = "127.0.0.1:7422,127.0.0.1:7432,127.0.0.1:7442";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    match args.first().map(String::as_str) {
        Some("sessions") => sessions(number(1, 10_000)?, number(2, 60)?).await,
        Some("takeover") => takeover(number(1, 100)?, number(2, 10)?).await,
        _ => Err("expected `sessions` or `takeover`".into()),
    }
}

fn listed(variable: &str, default: &str) -> Vec<String> {
    let list = std::env::var(variable).unwrap_or_else(|_| default.into());
    list.split(',').map(str::to_owned).collect()
}

async fn connect() -> Fallible<Client> {
    Ok(Client::connect(listed("RINGFENCE_ENDPOINTS", DEV)).await?)
}

/// CPU time of this process so far, all threads.
fn cpu() -> Fallible<Duration> {
    Ok(processor_time(std::process::id())?)
}

/// Memory of this process, in KiB.
fn resident() -> Fallible<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse()?)
}

async fn sessions(count: u64, seconds: u64) -> Fallible {
    let client = connect().await?;
    let before = resident()?;
    let begun = BootClock.now();
    let opened: Arc<Mutex<Vec<Session>>> = Arc::default();
    let left = Arc::new(AtomicU64::new(count));
    let mut openers = JoinSet::new();
    for _ in 0..200 {
        let (client, opened, left) = (client.clone(), Arc::clone(&opened), Arc::clone(&left));
        openers.spawn(async move {
            let one_less = |left: u64| left.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
            {
                let session = client.open_session(SessionOptions::default()).await?;
                opened.lock().map_err(|_| "poisoned")?.push(session);
            }
            Fallible::Ok(())
        });
    }
    while let Some(done) = openers.join_next().await {
        done??;
    }
    let took = BootClock.now().saturating_since(begun);
    println!("{count} sessions opened in {took:?}; CPU {:?}", cpu()?);

    let (begun, cpu_before) = (BootClock.now(), cpu()?);
    client
        .sleep_until(begun + Duration::from_secs(seconds))
        .await;
    let spent = cpu()?.saturating_sub(cpu_before);
    let over = BootClock.now().saturating_since(begun);
    let sessions = opened.lock().map_err(|_| "poisoned")?;
    let live = sessions.iter().filter(|session| session.is_live()).count();
    println!(
        "{live} of them live after {over:?}: {:.2} % of a core; {:.1} MB in all, {:.1} MB before \
         they were opened",
        100.0 * spent.as_secs_f64() / over.as_secs_f64(),
        resident()? as f64 / 1_000.0 * 1.024,
        before as f64 / 1_000.0 * 1.024,
    );
    Ok(())
}

/// The sum of all counters of answered requests of the cluster's clients.
async fn requests() -> Fallible<u64> {
    let mut sum = 0;
    for address in listed("RINGFENCE_METRICS", DEV_METRICS) {
        let mut stream = TcpStream::connect(&address).await?;
        let ask = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let counters = text
            .lines()
            .filter(|line| line.starts_with("ringfence_requests_total{"));
        let of_leases = counters.filter(|line| !line.contains("keep_alive"));
        let counts = of_leases.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        sum += counts.sum::<u64>();
    }
    Ok(sum)
}

/// What all candidates share.
#[derive(Default)]
struct Race {
    /// When the present holder began to release, in nanoseconds since boot.
    released: AtomicU64,
    holders: AtomicUsize,
    overlaps: AtomicUsize,
    took: Mutex<Vec<u64>>,
    tokens: Mutex<Vec<u64>>,
}

fn nanos() -> u64 {
    u64::try_from(BootClock.now().since_boot().as_nanos()).unwrap_or(u64::MAX)
}

async fn stand(session: Session, rounds: u64, race: Arc<Race>) -> Fallible {
    for _ in 0..rounds {
        let acquire = session.acquire("figures/takeover");
        let lease = acquire.wait(Duration::from_secs(600)).send().await?;
        let granted = nanos();
        let released = race.released.load(Ordering::SeqCst);
        let others = race.holders.fetch_add(1, Ordering::SeqCst);
        race.overlaps.fetch_add(others, Ordering::SeqCst);
        if released > 0 {
            let mut took = race.took.lock().map_err(|_| "poisoned")?;
            took.push(granted.saturating_sub(released));
        }
        race.tokens
            .lock()
            .map_err(|_| "poisoned")?
            .push(lease.token().get());
        // What came before is over, for the cluster and for the measurement.
        tokio::time::sleep(Duration::from_millis(5)).await;
        race.holders.fetch_sub(1, Ordering::SeqCst);
        race.released.store(nanos(), Ordering::SeqCst);
        lease.release().await?;
    }
    Ok(())
}

async fn takeover(candidates: u64, rounds: u64) -> Fallible {
    let mut sessions = Vec::new();
    for at in 0..candidates {
        let identity = format!("candidate {at}");
        let ttl = Duration::from_secs(60);
        let client = connect().await?;
        sessions.push(
            client
                .open_session(SessionOptions { ttl, identity })
                .await?,
        );
    }
    let race = Arc::new(Race::default());
    let before = requests().await?;
    let mut standing = JoinSet::new();
    for session in sessions.iter().cloned() {
        standing.spawn(stand(session, rounds, Arc::clone(&race)));
    }
    while let Some(done) = standing.join_next().await {
        done??;
    }
    let asked = requests().await? - before;
    let mut took = race.took.lock().map_err(|_| "poisoned")?.clone();
    took.sort_unstable();
    let mut tokens = race.tokens.lock().map_err(|_| "poisoned")?.clone();
    let grants = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    let at = |permille: usize| Duration::from_nanos(took[(took.len() - 1) * permille / 1_000]);
    println!(
        "{} takeovers among {candidates} candidates: p50 {:?}, p99 {:?}, slowest {:?}",
        took.len(),
        at(500),
        at(990),
        at(1_000)
    );
    println!(
        "{grants} grants, {} tokens, {} overlaps; {asked} requests, {:.2} per takeover",
        tokens.len(),
        race.overlaps.load(Ordering::SeqCst),
        asked as f64 / grants as f64
    );
    Ok(())
}
