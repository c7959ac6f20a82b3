//! `ringfence dev`: a cluster on this machine, to play with.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_core::Mode;
use serde_json::{Value, json};

use super::nodes::{Nodes, Plan, Ports};
use super::output::{Output, Table};
use super::{Failure, Global, parse, signals};

/// The client port of the first node that other commands assume.
pub(crate) const PORT: u16 = 7420;

/// Run a cluster on this machine, to play with, until Ctrl-C
///
/// Each node is a process of its own that can be stopped or killed by hand. Node i serves clients
/// on port PORT + 10 (i - 1), other nodes one port above, and health and metrics two above. Its
/// tokens are small numbers that begin again with each new cluster: never put it before a store
/// that lasts.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence dev
  ringfence dev --nodes 5 --port 7500 --data-dir /tmp/ringfence   # kept at the end
  ringfence dev --access enforced")]
pub(crate) struct Dev {
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// The first node's client port
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Keep the nodes' data here, also after the end [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How much rights bind in a new cluster: off, permissive or enforced; with enforced, the
    /// command that gives the first right is printed
    #[arg(long, default_value = "off", value_name = "MODE", value_parser = parse::mode)]
    access: Mode,
}

impl Dev {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let output = Output::new(global);
        let port = self.port;
        let plan = Plan {
            count: self.nodes,
            ports: Ports::From(self.port),
            data_dir: self.data_dir,
            trial: true,
            access: self.access,
        };
        let mut nodes = Nodes::start(&plan)?;
        let served = tokio::select! {
            served = serve(&mut nodes, port, output) => served,
            _ = signals::stop() => Ok(()),
        };
        output.remark("stopping");
        nodes.stop().await;
        served.map(|()| ExitCode::SUCCESS)
    }
}

/// Waits until the nodes are ready, then tells of each one that ends.
async fn serve(nodes: &mut Nodes, port: u16, output: Output) -> Result<(), Failure> {
    let leader = nodes.ready().await?;
    output.result(&object(nodes, leader), text(nodes, leader, port))?;
    loop {
        let (place, ended) = nodes.one_ended().await;
        let node = &nodes.all()[place];
        let left = nodes
            .all()
            .iter()
            .filter(|node| node.pid().is_some())
            .count();
        let object = json!({ "kind": "ENDED", "name": node.name, "how": ended.to_string() });
        let text = format!(
            "node {} {ended}; {left} of {} are left. Start it again in another terminal:\n  \
             {} {}",
            node.name,
            nodes.all().len(),
            program(),
            nodes.arguments(place).join(" "),
        );
        output.result(&object, text)?;
    }
}

fn object(nodes: &Nodes, leader: usize) -> Value {
    let described = nodes.all().iter().map(|node| {
        json!({
            "name": node.name,
            "pid": node.pid(),
            "client": node.client.to_string(),
            "peer": node.peer.to_string(),
            "http": node.http.to_string(),
            "log": node.log.display().to_string(),
        })
    });
    let described: Vec<Value> = described.collect();
    json!({
        "kind": "READY",
        "endpoints": nodes.endpoints(),
        "leader": nodes.all()[leader].name,
        "nodes": described,
        "access": nodes.access().as_str(),
        "grant": first_right(nodes),
    })
}

fn text(nodes: &Nodes, leader: usize, port: u16) -> String {
    let mut table = Table::new(&["NODE", "CLIENTS", "HEALTH AND METRICS", "PID"]);
    for node in nodes.all() {
        table.row(vec![
            node.name.clone(),
            node.client.to_string(),
            format!("http://{}/metrics", node.http),
            node.pid().map(|pid| pid.to_string()).unwrap_or_default(),
        ]);
    }
    let (root, temporary) = nodes.root();
    let kept = if temporary {
        "removed at the end"
    } else {
        "kept"
    };
    let program = program();
    let endpoints = match port {
        PORT => String::new(),
        _ => format!(
            "  export RINGFENCE_ENDPOINTS={}\n",
            nodes.endpoints().join(",")
        ),
    };
    let rights = match first_right(nodes) {
        Some(grant) => format!(
            "\n\nRights bind: what no rule allows is refused. To let every client take and read \
             every lease:\n  {grant}"
        ),
        None => String::new(),
    };
    let leader = &nodes.all()[leader];
    let pid = leader.pid().unwrap_or_default();
    format!(
        "ready\n\n{table}\ndata and logs: {} ({kept}){rights}\n\nTry in another terminal:\n{endpoints}  \
         {program} lock jobs/nightly -- sh -c 'echo token $RINGFENCE_TOKEN; sleep 10'\n  \
         {program} lease watch\n  \
         kill -9 {pid}    # {}, the leader; then: {program} cluster status\n\n\
         Ctrl-C stops all nodes.",
        root.display(),
        leader.name,
    )
}

/// The command line that gives clients a first right, if they need one.
fn first_right(nodes: &Nodes) -> Option<String> {
    (nodes.access() == Mode::Enforced).then(|| {
        let words = std::iter::once(program()).chain(nodes.grant("*"));
        let quoted: Vec<String> = words.map(|word| parse::quote(&word)).collect();
        quoted.join(" ")
    })
}

/// How this program was called.
fn program() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "ringfence".into())
}
