//! `bench failover`: from the SIGKILL of the leader to the first grant.

use std::time::Duration;

use ringfence_client::{AcquireError, BootClock, CallError, Clock, Session, SessionOptions};

use super::load::Measured;
use super::load::{Load, progress, record, samples};
use super::numbers::show_us;
use super::report::Sheet;
use super::target::Target;
use crate::cli::Failure;

/// At least so many leaders are killed.
const ROUNDS_MIN: u64 = 3;
/// Longer than any change of leader that deserves its name.
const TTL: Duration = Duration::from_secs(60);

/// Measures: one client of the client crate asks again and again.
pub(super) async fn run(target: &mut Target, load: Load) -> Result<(), Failure> {
    let began = BootClock.now();
    let client = target.client().await?;
    let options = SessionOptions {
        ttl: TTL,
        identity: "bench".into(),
    };
    let session = client.open_session(options).await?;
    let mut outages = samples();
    let mut rounds = 0;
    while rounds < ROUNDS_MIN || BootClock.now().saturating_since(began) < load.lasting {
        let nodes = target
            .nodes
            .as_mut()
            .ok_or_else(|| Failure::usage("failover kills nodes, so it needs nodes of its own"))?;
        let leader = nodes.ready().await?;
        let killed = BootClock.now();
        nodes.kill(leader).await;
        grant(&session, rounds).await?;
        let outage = BootClock.now().saturating_since(killed);
        record(&mut outages, outage);
        rounds += 1;
        let shown = show_us(u64::try_from(outage.as_micros()).unwrap_or(u64::MAX));
        progress(&format!("round {rounds}: {shown}"));
        nodes.run(leader)?;
    }
    progress("");
    session.close().await?;

    let elapsed = BootClock.now().saturating_since(began);
    let measured = Measured {
        done: rounds,
        elapsed,
        samples: vec![outages],
    };
    let series = ["first grant"];
    Sheet::new("failover", "leaders killed", &series).print(&measured, &target.describe(), &load)
}

/// Acquires and releases, as often as it takes.
async fn grant(session: &Session, round: u64) -> Result<(), Failure> {
    let name = format!("bench/failover/{round}");
    loop {
        match session.acquire(name.as_str()).send().await {
            Ok(lease) => return Ok(lease.release().await?),
            Err(AcquireError::Call(CallError::Unavailable { .. } | CallError::Unknown { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
}
