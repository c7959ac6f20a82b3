//! A periodic job that runs in one process at a time, however many are deployed.
//!
//! Start a cluster (`ringfence dev`), then this in several terminals:
//! `cargo run -p ringfence-client --example cron_singleton`. It ends after 20 s, or the seconds
//! given as its argument, or at Ctrl-C.
//!
//! A job that hangs gives no heartbeat, so its process loses the lease and another one goes on.

mod common;

use std::error::Error;
use std::time::Duration;

use ringfence_client::{Elector, Leading, Successor};

const PERIOD: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = common::connect().await?;
    let campaign = Elector::new(&client).campaign("examples/cron");

    let handle = campaign.handle();
    let end = common::the_end();
    tokio::spawn(async move {
        end.await;
        handle.leave(Successor::Next);
    });

    campaign.run(run_jobs).await?;
    Ok(())
}

/// The work of a term. An error ends it: another process tries, and this one again after a pause.
async fn run_jobs(leading: Leading) -> Result<(), std::io::Error> {
    let heartbeat = leading.heartbeat(3 * PERIOD);
    // The first tick is now: a takeover runs the job once more rather than once less.
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        heartbeat.beat();
        job(&leading).await?;
    }
}

async fn job(leading: &Leading) -> Result<(), std::io::Error> {
    println!("the job runs, show the store {}", leading.fence());
    Ok(())
}
