//! The client side of the binary: one file per subcommand.
//!
//! Commands talk to a cluster through the client crate and print either short text for people or,
//! with `--json`, one object (one per line for streams). What they may answer is fixed: results on
//! stdout, everything else on stderr, and the exit codes of [`exit`].

mod access;
mod audit;
mod backup;
mod bench;
mod chaos;
mod check;
mod check_history;
mod cluster;
mod completions;
mod context;
mod debug;
mod demo;
mod dev;
mod doctor;
pub(crate) mod exit;
mod failure;
mod guard;
mod handles;
mod kube;
mod lease;
mod lock;
mod log;
mod man;
mod nodes;
mod output;
mod own_node;
mod parse;
mod recover;
mod session;
mod signals;
mod stderr;
mod tether;
mod tls;
mod top;
mod usage;
mod view;
mod visible;
mod waiting;
mod watchdog;

use crate::duration;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ringfence_core::ClusterId;

use context::Context;
pub(crate) use exit::HELP as EXIT_CODES_HELP;
use failure::Failure;
pub(crate) use stderr::complain;
pub(crate) use usage::{parse as parse_command_line, refuse};
pub(crate) use view::{counted, wall};

/// The client addresses of a cluster started by `ringfence dev`.
const DEV_ENDPOINTS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"];

/// Options that every client-side command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Client addresses of the nodes, separated by commas, or unix:DATA_DIR/admin.sock on the
    /// machine of a node [default: the `dev` cluster, 127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440]
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_ENDPOINTS",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        help_heading = "Global options"
    )]
    endpoints: Vec<String>,
    #[command(flatten)]
    tls: tls::TlsArgs,
    /// Print JSON: one object, or one per line for streams; errors as {"error":{…}} on stderr
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// How long a request may take, not counting what it waits in a queue
    #[arg(
        long,
        global = true,
        default_value = "5s",
        value_name = "DURATION",
        value_parser = duration::parse,
        help_heading = "Global options"
    )]
    timeout: Duration,
    /// The cluster that is meant, as `cluster status` shows its id: another one at these addresses, a
    /// restored one for example, is asked for nothing
    #[arg(
        long,
        global = true,
        env = "RINGFENCE_CLUSTER",
        value_name = "CLUSTER_ID",
        value_parser = parse::cluster_id,
        help_heading = "Global options"
    )]
    cluster: Option<ClusterId>,
}

impl Global {
    /// Whether a cluster was named.
    fn endpoints_given(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// Refuses a user or a password in an address: no call would show it, and messages repeat addresses.
    fn check_endpoints(&self) -> Result<(), Failure> {
        let names_a_user = |endpoint: &String| {
            let host = endpoint
                .split_once("://")
                .and_then(|(_, rest)| rest.split('/').next());
            host.is_some_and(|host| host.contains('@'))
        };
        match self.endpoints.iter().any(names_a_user) {
            true => Err(Failure::usage(
                "--endpoints has an address with a user or a password before `@`, which no node asks for",
            )
            .hint("leave it out; --token-file and --cert say who you are")),
            false => Ok(()),
        }
    }

    /// Where the cluster is asked for: what was given, else the `dev` cluster.
    fn endpoints(&self) -> Vec<String> {
        if self.endpoints.is_empty() {
            return DEV_ENDPOINTS.map(str::to_owned).to_vec();
        }
        self.endpoints.clone()
    }
}

/// Every command but `serve`.
#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    Demo(demo::Demo),
    Dev(dev::Dev),
    Lock(lock::Lock),
    /// Acquire leases, look at them, and end them
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Open sessions, keep them alive, look at them, and end them
    #[command(subcommand)]
    Session(session::SessionCommand),
    Check(check::Check),
    CheckHistory(check_history::CheckHistory),
    /// Look into the log of a node that is stopped
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Say who may do what: rules, bans, cluster tokens and the mode
    #[command(subcommand)]
    Access(access::AccessCommand),
    Audit(audit::Audit),
    Backup(backup::Backup),
    Recover(recover::Recover),
    /// Look at the cluster itself, and change its members and settings
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Write to a store under a fence: a script of SQL in one transaction
    #[command(subcommand)]
    Guard(guard::GuardCommand),
    /// Fence what stands in Kubernetes
    #[command(subcommand)]
    Kube(kube::KubeCommand),
    Top(top::Top),
    Doctor(doctor::Doctor),
    /// Gather what explains a problem
    #[command(subcommand)]
    Debug(debug::DebugCommand),
    Bench(bench::Bench),
    Chaos(chaos::Chaos),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true)]
    Tethered(tether::Tethered),
    #[command(hide = true)]
    LockWatchdog(watchdog::LockWatchdog),
    #[command(hide = true)]
    ChaosClient(chaos::ChaosClient),
    #[command(hide = true)]
    ChaosSweep(chaos::ChaosSweep),
    #[command(hide = true)]
    DemoStore(demo::DemoStore),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
}

/// Runs `command` and says how the process ends.
pub(crate) fn run(command: ClientCommand, global: &Global) -> ExitCode {
    let checked = global
        .check_endpoints()
        .and_then(|()| global.tls.check_paths());
    if let Err(failure) = checked {
        return failure.report(global.json);
    }
    let done = match command {
        // Becomes another program: no thread of this one may be in its way.
        ClientCommand::Tethered(command) => command.run(),
        ClientCommand::LockWatchdog(command) => command.run(),
        // Enters namespaces, which only a process of one thread may.
        ClientCommand::Chaos(command) => command.run(global),
        ClientCommand::ChaosClient(command) => command.run(global),
        ClientCommand::ChaosSweep(command) => command.run(),
        ClientCommand::Completions(command) => command.run(),
        ClientCommand::Man(command) => command.run(),
        ClientCommand::CheckHistory(command) => command.run(global),
        ClientCommand::Log(command) => command.run(),
        ClientCommand::Recover(command) => command.run(global),
        ClientCommand::Guard(command) => command.run(global),
        ClientCommand::DemoStore(command) => command.run(),
        command => runtime().and_then(|runtime| {
            let done = runtime.block_on(run_connected(command, global));
            // What may still be under way must not keep the process.
            runtime.shutdown_background();
            done
        }),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(global.json),
    }
}

/// The commands wait on the main thread, where child processes are started: their tether is to
/// the thread, and this one lasts.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.map_err(|cause| {
        Failure::new(
            exit::UNAVAILABLE,
            "FAULT",
            format!("cannot start threads: {cause}"),
        )
    })
}

async fn run_connected(command: ClientCommand, global: &Global) -> Result<ExitCode, Failure> {
    match command {
        ClientCommand::Bench(command) => command.run(global).await,
        ClientCommand::Top(command) => command.run(global).await,
        ClientCommand::Doctor(command) => command.run(global).await,
        ClientCommand::Debug(command) => command.run(global).await,
        ClientCommand::Chaos(command) => command.run(global),
        ClientCommand::ChaosClient(command) => command.run(global),
        ClientCommand::ChaosSweep(command) => command.run(),
        ClientCommand::Demo(command) => command.run(global).await,
        ClientCommand::DemoWorker(command) => command.run(global).await,
        ClientCommand::Dev(command) => command.run(global).await,
        ClientCommand::Kube(command) => command.run(global).await,
        ClientCommand::Lock(command) => command.run(global).await,
        ClientCommand::Cluster(command) => command.run(global).await,
        ClientCommand::Access(command) => command.run(global).await,
        ClientCommand::Backup(command) => command.run(global).await,
        ClientCommand::Audit(command) => command.run(&Context::connect(global).await?).await,
        ClientCommand::Lease(command) => command.run(&Context::connect(global).await?).await,
        ClientCommand::Session(command) => command.run(&Context::connect(global).await?).await,
        ClientCommand::Check(command) => command.run(&Context::connect(global).await?).await,
        ClientCommand::Completions(command) => command.run(),
        ClientCommand::Man(command) => command.run(),
        ClientCommand::CheckHistory(command) => command.run(global),
        ClientCommand::Log(command) => command.run(),
        ClientCommand::Recover(command) => command.run(global),
        ClientCommand::Guard(command) => command.run(global),
        ClientCommand::DemoStore(command) => command.run(),
        ClientCommand::Tethered(command) => command.run(),
        ClientCommand::LockWatchdog(command) => command.run(),
    }
}
