//! `ringfence bench …`: what a cluster does in a second, and how long it takes.
//!
//! Figures hold on a quiet machine only: nodes, load and whatever else runs share its cores.

mod check;
mod cycle;
mod etcd;
mod failover;
mod full;
mod keepalive;
mod load;
mod lock;
mod memory;
mod numbers;
mod raw;
mod report;
mod target;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::output::Output;
use super::{Failure, Global, signals};
use load::Load;
use target::Target;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Acquire and release in open sessions, a unary call each
    Cycle,
    /// Open a session and acquire, release and close: two unary calls
    Full,
    /// Acquire and release through the client crate
    Lock,
    /// Linearizable checks of a token, a unary call each
    Check,
    /// Streams that keep many sessions alive
    Keepalive,
    /// Time to the first grant after the leader was killed with SIGKILL
    Failover,
    /// Memory of a node per session with a lease
    Memory,
}

/// Measure a cluster
///
/// Without --endpoints three nodes are started on this machine, in a temporary directory and with
/// fsync on. `failover` and `memory` look at the nodes' processes, so they always start their own.
#[derive(Args, Debug)]
#[command(after_help = r"Examples:
  ringfence bench cycle --clients 1
  ringfence bench failover --seconds 60")]
pub(crate) struct Bench {
    /// What is measured
    #[arg(value_enum)]
    work: Work,
    /// How many clients work at once [default: 64; lock and keepalive 256, failover 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: Option<u32>,
    /// For how long; `failover` kills as many leaders as fit
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// `keepalive`: sessions per stream; `memory`: sessions altogether [default: 64; 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: Option<u32>,
}

impl Bench {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let output = Output::new(global);
        let own = matches!(self.work, Work::Failover | Work::Memory);
        let mut target = tokio::select! {
            target = Target::reach(global, own) => target?,
            signal = signals::stop() => return Err(signals::interrupted(signal)),
        };
        let done = tokio::select! {
            done = self.measure(&mut target, output) => done,
            signal = signals::stop() => Err(signals::interrupted(signal)),
        };
        target.leave().await;
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn measure(&self, target: &mut Target, output: Output) -> Result<(), Failure> {
        let clients = self.clients.unwrap_or(match self.work {
            Work::Lock | Work::Keepalive => 256,
            Work::Failover => 1,
            Work::Cycle | Work::Full | Work::Check | Work::Memory => 64,
        });
        let load = Load {
            clients,
            lasting: Duration::from_secs(self.seconds),
            output,
        };
        match self.work {
            Work::Cycle => cycle::run(target, load).await,
            Work::Full => full::run(target, load).await,
            Work::Lock => lock::run(target, load).await,
            Work::Check => check::run(target, load).await,
            Work::Keepalive => keepalive::run(target, load, self.sessions.unwrap_or(64)).await,
            Work::Failover => failover::run(target, load).await,
            Work::Memory => memory::run(target, load, self.sessions.unwrap_or(100_000)).await,
        }
    }
}
