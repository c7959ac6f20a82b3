//! The `ringfence` binary: the server and everything a person does with it on a command line.
//!
//! This crate decides nothing about leases: it parses, wires and prints. Decisions come from
//! `ringfence_core`; the way to them is `ringfence_raft`.
#![cfg_attr(
    not(feature = "otel"),
    allow(
        dead_code,
        reason = "settings and limits of the exporter have no reader then"
    )
)]

mod acts;
mod admin_socket;
mod app;
mod audit_log;
mod authorities;
mod backups;
mod bucket;
mod certificates;
mod cli;
mod client_connection;
mod config;
mod descriptors;
mod duration;
mod forming;
mod hangup;
mod health;
mod http;
mod identify;
mod kube;
mod leading;
mod lease_api;
mod leave;
mod limits;
mod metrics;
mod node_config;
mod notify;
mod otlp;
mod own_files;
mod pods;
mod ports;
mod progress;
mod reach;
mod restoring;
mod rule_file;
mod serve;
mod served;
mod signals;
mod tcp_probes;
mod unshown;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Takes an eighth off the cost of a request, compared with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Leases whose fencing tokens stop stale leaders
#[derive(Parser, Debug)]
#[command(name = "ringfence", version, after_help = cli::EXIT_CODES_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: cli::Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a node of a cluster
    Serve(Box<config::ServeArgs>),
    #[command(flatten)]
    Client(cli::ClientCommand),
}

fn main() -> ExitCode {
    let Cli { global, command } = match cli::parse_command_line() {
        Ok(cli) => cli,
        Err(error) => return cli::refuse(error),
    };
    match command {
        Command::Serve(args) => serve::run(*args),
        Command::Client(command) => cli::run(command, &global),
    }
}
