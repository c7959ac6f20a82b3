//! `ringfence chaos`: partitions, kills and full disks, real clients meanwhile, and a verdict.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_chaos::record::{Report, Verdict};
use ringfence_chaos::workload::{ClientOptions, run_client};
use ringfence_chaos::{Ground, Kind, Plan, RunError, Say, Target, plan, sweep};
use serde_json::json;

use super::output::Output;
use super::stderr::aside;
use super::tls::TlsArgs;
use super::{Failure, Global, counted, exit};

/// How often the line that shows how things stand is printed where it cannot be overwritten.
const LINES_PER_PRINT: u32 = 50;

/// Disturb a cluster, and say whether it kept its promises: 0 valid, 1 invalid, 2 unknown
///
/// Starts nodes and clients as processes of this machine, each in a network of its own that this
/// command joins packet by packet; partitions it, kills and pauses nodes and clients, takes their
/// disks away, and checks everything that the clients saw. Clients that ignore the loss of their
/// lease are part of it: how many of their stale writes the guards refused is reported, and what
/// the same writes did to a store without a guard. A seed fixes the schedule of faults, not what
/// comes of them. Nothing is left behind but the report.
///
/// Linux only. Root is not needed where the kernel grants user namespaces; what else is missing is
/// said.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence chaos
  ringfence chaos --nodes 5 --clients 8 --duration 60s --seed 42 --faults partition,kill,pause
  ringfence chaos --schedule report/schedule.json          # the same faults again
  ringfence chaos --target 10.0.0.1:7420,10.0.0.2:7420 --hook ./cut.sh --faults partition
                                        # calls `./cut.sh begin partition`, `./cut.sh heal partition`")]
pub(crate) struct Chaos {
    /// How many nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(span(plan::NODES)))]
    nodes: u32,
    /// How many clients
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(span(plan::CLIENTS)))]
    clients: u32,
    /// A program that takes the place of one of the clients, and speaks as `ringfence chaos-client`
    /// does; repeat it for more of them
    #[arg(long = "client", value_name = "CMD")]
    foreign: Vec<String>,
    /// How long the clients work
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = super::duration::parse)]
    duration: Duration,
    /// Fixes the schedule of faults [default: a random one, which is shown]
    #[arg(long)]
    seed: Option<u64>,
    /// Kinds of faults: partition, oneway, isolate, kill, pause, disk, slow, membership; or none
    /// [default: all that this machine can make]
    #[arg(long, value_delimiter = ',', value_name = "KIND,…")]
    faults: Vec<String>,
    /// Where history, faults, report and page go; files of an earlier run are replaced
    #[arg(long, value_name = "DIR", default_value = "ringfence-chaos")]
    report: PathBuf,
    /// Replay the schedule in this file, with its nodes, clients, duration and seed
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Let faults overlap and leave no majority; then only safety is judged while they last
    #[arg(long)]
    break_quorum: bool,
    /// Do not offer each write to a store without a guard, too
    #[arg(long)]
    no_control: bool,
    /// Work on a cluster that is there already, at these client addresses
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    target: Vec<String>,
    /// A shell command that disturbs the target: called with `begin KIND` and `heal KIND`
    #[arg(long, value_name = "CMD", requires = "target")]
    hook: Option<String>,
    /// Admit every token at one of the guards, to see whether the run notices
    #[arg(long, hide = true)]
    planted_open_guard: bool,
}

fn span(range: std::ops::RangeInclusive<u32>) -> std::ops::RangeInclusive<i64> {
    i64::from(*range.start())..=i64::from(*range.end())
}

impl Chaos {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let output = Output::new(global);
        let plan = self.plan(&global.tls)?;
        let ground = match plan.target {
            // The user's script and the cluster are in the user's own network.
            Some(_) => Ground::untouched(),
            None => Ground::take(),
        };
        output.note(format!(
            "seed {}, report in {}",
            plan.seed,
            plan.report.display()
        ));
        let mut screen = Screen::new(global.json);
        let run = ringfence_chaos::run(&plan, &ground, &mut |said| screen.show(said));
        screen.clear();
        let report = run.map_err(|error| failed(&error))?;
        let code = ExitCode::from(report.verdict.exit_code());
        output.verdict(&object(&report, &plan), text(&report, &plan), code)
    }

    fn plan(self, tls: &TlsArgs) -> Result<Plan, Failure> {
        let usage = |error: &dyn std::error::Error| Failure::usage(error.to_string());
        let named = !self.faults.is_empty();
        let faults = match self.faults.as_slice() {
            [] if !self.target.is_empty() && self.hook.is_none() => Vec::new(),
            [] => Kind::ALL.to_vec(),
            [none] if none == "none" => Vec::new(),
            words => {
                let mut kinds = Vec::new();
                for word in words {
                    let kind: Kind = word.parse().map_err(|error| usage(&error))?;
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
                kinds
            }
        };
        if !self.target.is_empty() && !faults.is_empty() && self.hook.is_none() {
            return Err(Failure::usage("faults of a target need a script")
                .hint("name one with --hook, or leave --faults out"));
        }
        if self.foreign.len() > self.clients as usize {
            return Err(Failure::usage(format!(
                "got {} programs of --client, expected at most --clients {}",
                self.foreign.len(),
                self.clients
            )));
        }
        let program = std::env::current_exe().map_err(|cause| {
            let message = format!("cannot find this program's own file: {cause}");
            Failure::new(exit::UNAVAILABLE, "FAULT", message)
        })?;
        Ok(Plan {
            program,
            nodes: self.nodes,
            clients: self.clients,
            foreign: self.foreign,
            duration: self.duration,
            seed: self.seed.unwrap_or_else(rand::random),
            faults,
            named,
            report: self.report,
            schedule: self.schedule,
            break_quorum: self.break_quorum,
            control: !self.no_control,
            target: match self.target.is_empty() {
                true => None,
                false => Some(Target {
                    endpoints: self.target,
                    hook: self.hook,
                    tls: tls.client().map_err(Failure::usage)?,
                    environment: tls.environment(),
                }),
            },
            open_guard: self.planted_open_guard,
        })
    }
}

/// No verdict came about, which is neither a pass nor a failure of the cluster.
fn failed(error: &RunError) -> Failure {
    let code = Verdict::Unknown.exit_code();
    match error {
        RunError::Schedule(_) => Failure::usage(error.to_string()),
        RunError::LinuxOnly => Failure::new(code, "UNAVAILABLE", error.to_string())
            .hint("run it on Linux or in a container; `demo` and `dev` work here"),
        RunError::NoFaults { .. } => Failure::new(code, "UNAVAILABLE", error.to_string())
            .hint("run it as root, or allow user namespaces; kill and pause need neither"),
        RunError::Setup { .. } => Failure::new(code, "FAULT", error.to_string()),
        RunError::NotReached { .. } => Failure::new(code, "UNAVAILABLE", error.to_string())
            .hint("look at it with `ringfence cluster status --endpoints` and these addresses"),
        RunError::NotFormed { .. } => Failure::new(code, "UNAVAILABLE", error.to_string())
            .hint("the nodes' logs, in the report's folder `nodes`, say why"),
    }
}

/// What people see while the run goes on: on a terminal one line that changes.
struct Screen {
    silent: bool,
    terminal: bool,
    shown: bool,
    lines: u32,
}

impl Screen {
    fn new(silent: bool) -> Self {
        Self {
            silent,
            terminal: std::io::stderr().is_terminal(),
            shown: false,
            lines: 0,
        }
    }

    fn show(&mut self, said: Say) {
        if self.silent {
            return;
        }
        match said {
            Say::Line(line) => {
                self.clear();
                aside(line);
            }
            Say::Now(line) if self.terminal => {
                self.clear();
                write!(std::io::stderr(), "{line}").ok();
                self.shown = true;
            }
            Say::Now(line) => {
                if self.lines.is_multiple_of(LINES_PER_PRINT) {
                    aside(line);
                }
                self.lines += 1;
            }
        }
    }

    fn clear(&mut self) {
        if self.shown {
            write!(std::io::stderr(), "\r\x1b[K").ok();
            self.shown = false;
        }
    }
}

fn object(report: &Report, plan: &Plan) -> serde_json::Value {
    json!({
        "verdict": report.verdict.as_str(),
        "reasons": report.reasons,
        "seed": report.seed,
        "violations": report.violations.len(),
        "coverage": report.coverage,
        "guarded": report.guarded,
        "unguarded": report.unguarded,
        "slowest_recovery_ms": report.slowest_recovery_ms,
        "report": plan.report.display().to_string(),
        "reproduce": report.reproduce,
    })
}

fn text(report: &Report, plan: &Plan) -> String {
    let mut lines = vec![String::new()];
    for (store, counts) in &report.guarded {
        lines.push(format!(
            "store {store}, guarded: {} offered, stale: {}, of which {} refused, {} ADMITTED; lost \
             updates: {}",
            counted(counts.attempted, "write"),
            counts.stale_attempted,
            counts.stale_refused,
            counts.stale_admitted,
            counts.lost_updates
        ));
    }
    if let Some(counts) = &report.unguarded {
        lines.push(format!(
            "the same writes without a guard: stale ones admitted: {}, lost updates: {}",
            counts.stale_admitted, counts.lost_updates
        ));
    }
    let coverage = &report.coverage;
    let faults = coverage.effective.iter();
    let faults: Vec<String> = faults
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    lines.push(format!(
        "faults that took effect: {}; changes of the leader: {}, expired sessions: {}, hand-overs: {}; \
         slowest recovery {} ms",
        match faults.is_empty() {
            true => "none".to_owned(),
            false => faults.join(", "),
        },
        coverage.leader_changes,
        coverage.expiries,
        coverage.hand_overs,
        report.slowest_recovery_ms
    ));
    for reason in &report.reasons {
        lines.push(format!("  {reason}"));
    }
    lines.push(format!(
        "VERDICT: {}; look at {}",
        report.verdict.as_str(),
        plan.report.join("timeline.html").display()
    ));
    if report.verdict == Verdict::Invalid {
        lines.push(format!("REPRODUCE: {}", report.reproduce));
    }
    lines.join("\n")
}

/// A client of `ringfence chaos`
#[derive(clap::Args, Debug)]
pub(crate) struct ChaosClient {
    /// Its number
    #[arg(long)]
    number: u32,
    /// Where its dice begin
    #[arg(long)]
    seed: u64,
    /// Client addresses of nodes
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<String>,
    /// Where the databases of the stores are
    #[arg(long)]
    stores: PathBuf,
    /// The socket of the store in memory
    #[arg(long)]
    memory: PathBuf,
    /// What the leases' names begin with
    #[arg(long)]
    prefix: String,
    /// How many leases there are
    #[arg(long)]
    leases: u32,
    /// Whether a store without a guard takes part
    #[arg(long)]
    control: bool,
    /// Whether a guard admits every token
    #[arg(long)]
    open_guard: bool,
}

impl ChaosClient {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let options = ClientOptions {
            tls: global.tls.client().map_err(Failure::usage)?,
            number: self.number,
            seed: self.seed,
            endpoints: self.nodes,
            stores: self.stores,
            memory: self.memory,
            prefix: self.prefix,
            leases: self.leases,
            control: self.control,
            open_guard: self.open_guard,
        };
        let done = run_client(options);
        done.map(|()| ExitCode::SUCCESS)
            .map_err(|cause| Failure::new(exit::UNAVAILABLE, "FAULT", cause.to_string()))
    }
}

/// Removes the scratch directory of `ringfence chaos` once its input has ended
#[derive(clap::Args, Debug)]
pub(crate) struct ChaosSweep {
    /// The directory
    dir: PathBuf,
}

impl ChaosSweep {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let done = sweep(&self.dir, std::io::stdin());
        done.map(|()| ExitCode::SUCCESS)
            .map_err(|cause| Failure::new(exit::UNAVAILABLE, "FAULT", cause.to_string()))
    }
}
