//! A worker of the demo: a process that adds to the balance while it holds the lease.
//!
//! It is as naive as most programs: it makes sure of its lease once, then reads, computes and
//! writes, and does not ask again in between. What it does it tells in lines on stdout.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::{LeaseName, SessionOptions};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use super::caller::{Store, Written};
use crate::cli::context::Context;
use crate::cli::{Failure, Global, duration, output, parse};

/// How long a worker stands in the queue.
const WAIT: Duration = Duration::from_secs(30);

/// A worker of `ringfence demo`
#[derive(clap::Args, Debug)]
pub(crate) struct DemoWorker {
    /// Its name
    #[arg(long)]
    name: String,
    /// The lease it works under
    #[arg(long, value_parser = parse::name)]
    lease: LeaseName,
    /// Its session's TTL
    #[arg(long, value_parser = duration::parse)]
    ttl: Duration,
    /// The store's address
    #[arg(long)]
    store: SocketAddr,
    /// What it adds, round by round; the second round begins with a line on stdin
    #[arg(long, value_delimiter = ',')]
    add: Vec<i64>,
    /// How long it computes between its read and its write
    #[arg(long, value_parser = duration::parse)]
    think: Duration,
}

impl DemoWorker {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let context = Context::connect(global).await?;
        let options = SessionOptions {
            ttl: self.ttl,
            identity: self.name,
        };
        let session = context.client.open_session(options).await?;
        let mut store = Store::connect(self.store).await?;
        let mut cues = BufReader::new(tokio::io::stdin()).lines();
        say("ready")?;
        next(&mut cues).await;

        let lease = session
            .acquire(self.lease.as_str())
            .wait(WAIT)
            .send()
            .await?;
        let fence = lease.fence().to_string();
        say(&format!("granted {}", lease.token()))?;
        // Before the first read: from here on the store takes no older holder's write.
        match store.advance(&fence).await? {
            Some(mark) => say(&format!("advanced {mark}"))?,
            None => say("unguarded")?,
        }
        for (round, add) in self.add.iter().enumerate() {
            if round > 0 {
                next(&mut cues).await;
            }
            let balance = store.read().await?;
            say(&format!("read {balance}"))?;
            tokio::time::sleep(self.think).await;
            // The mistake is here: time may have passed, and no code looks at the lease again.
            match store.write(&fence, balance + add).await? {
                Written::Done(amount) => say(&format!("wrote {amount}"))?,
                Written::Stale { offered, mark } => {
                    say(&format!("refused STALE_TOKEN {offered} {mark}"))?;
                    // A guard's refusal is final for the grant.
                    lease.report_stale();
                    break;
                }
            }
        }

        next(&mut cues).await;
        if lease.is_valid() {
            lease.release().await?;
            say("released")?;
        } else {
            say("lost")?;
        }
        session.close().await.ok();
        Ok(ExitCode::SUCCESS)
    }
}

fn say(line: &str) -> Result<(), Failure> {
    output::raw(format!("{line}\n").as_bytes())
}

/// Waits for the next cue.
async fn next(cues: &mut Lines<BufReader<Stdin>>) {
    // Without anybody who gives cues there is nothing to wait for.
    cues.next_line().await.ok();
}
