//! `ringfence bench …`: what a cluster does in a second, and how long it takes.
//!
//! Figures hold on a quiet machine only: nodes, load and whatever else runs share its cores.

mod check;
mod cycle;
mod etcd;
mod failover;
mod full;
mod handover;
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
use report::Sheet;
use target::Target;

/// What `keepalive` renews with a message, unless more or less is asked for.
const SESSIONS_PER_STREAM: u32 = 64;

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
    /// From a release to the grant of the session that waits
    Handover,
    /// Streams that keep many sessions alive
    Keepalive,
    /// Time to the first grant after the leader was killed with SIGKILL
    Failover,
    /// Memory of a node per session with a lease
    Memory,
}

/// Whose nodes do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    /// Nodes of Ringfence
    Ringfence,
    /// Three nodes of the etcd on PATH, with the same clients: cycle, full, check and keepalive
    Etcd,
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
    /// How many clients work at once [default: 64; lock and keepalive 256, failover and handover 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: Option<u32>,
    /// For how long; `failover` kills as many leaders as fit
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// `keepalive`: sessions per stream; `memory`: sessions altogether [default: 64; 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: Option<u32>,
    /// Whose nodes do the work
    #[arg(long, value_enum, value_name = "SERVER", default_value = "ringfence")]
    on: Server,
}

impl Bench {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let output = Output::new(global);
        if self.on == Server::Etcd {
            return tokio::select! {
                done = self.measure_etcd(output) => done.map(|()| ExitCode::SUCCESS),
                signal = signals::stop() => Err(signals::interrupted(signal)),
            };
        }
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

    fn load(&self, output: Output) -> Load {
        let clients = self.clients.unwrap_or(match self.work {
            Work::Lock | Work::Keepalive => 256,
            Work::Failover | Work::Handover => 1,
            Work::Cycle | Work::Full | Work::Check | Work::Memory => 64,
        });
        Load {
            clients,
            lasting: Duration::from_secs(self.seconds),
            output,
        }
    }

    async fn measure_etcd(&self, output: Output) -> Result<(), Failure> {
        let leases = self.sessions.unwrap_or(SESSIONS_PER_STREAM);
        let (work, name, unit, series): (_, _, _, &[&str]) = match self.work {
            Work::Cycle => (
                etcd::Work::Cycle,
                "cycle",
                "cycles",
                &["acquire", "acquire+release"],
            ),
            Work::Full => (
                etcd::Work::Full,
                "full",
                "cycles",
                &["open+acquire", "the whole"],
            ),
            Work::Check => (etcd::Work::Check, "check", "checks", &["check"]),
            Work::Keepalive => (
                etcd::Work::Keepalive { leases },
                "keepalive",
                "keep-alives",
                &["message"],
            ),
            Work::Lock | Work::Handover | Work::Failover | Work::Memory => {
                return Err(Failure::usage(
                    "--on etcd measures cycle, full, check and keepalive only",
                ));
            }
        };
        let load = self.load(output);
        let measured = etcd::measure(work, load).await?;
        Sheet::new(name, unit, series).print(&measured, "3 nodes of etcd on this machine", &load)
    }

    async fn measure(&self, target: &mut Target, output: Output) -> Result<(), Failure> {
        let load = self.load(output);
        match self.work {
            Work::Cycle => cycle::run(target, load).await,
            Work::Full => full::run(target, load).await,
            Work::Lock => lock::run(target, load).await,
            Work::Check => check::run(target, load).await,
            Work::Handover => handover::run(target, load).await,
            Work::Keepalive => {
                let sessions = self.sessions.unwrap_or(SESSIONS_PER_STREAM);
                keepalive::run(target, load, sessions).await
            }
            Work::Failover => failover::run(target, load).await,
            Work::Memory => memory::run(target, load, self.sessions.unwrap_or(100_000)).await,
        }
    }
}
