//! `ringfence serve`: from the command line to a running node.

use std::process::ExitCode;

use ringfence_raft::StartError;
use tokio::runtime::{Builder, Runtime};
use tracing::{error, warn};

use crate::app::{self, AppError};
use crate::cli::{complain, exit};
use crate::config::{Config, LogFormat, ServeArgs};
use crate::hangup;
use crate::limits::RUNTIME_STOP_MAX;
use crate::own_files;

/// The node could not start, or ended on its own, for a reason of its own.
const EXIT_FAILED: u8 = 1;

/// Runs a node until it is asked to stop.
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    own_files::keep();
    // Before all that takes time.
    let hangup = match hangup::catch() {
        Ok(hangup) => hangup,
        Err(error) => {
            complain(format!("error: cannot listen for signals: {error}"));
            return ExitCode::from(exit::SYSTEM);
        }
    };
    let config = match Config::load(args) {
        Ok(config) => config,
        Err(error) => {
            complain(format!("error: {error}"));
            return ExitCode::from(exit::USAGE);
        }
    };
    log_to_stderr(&config);
    warn_of_open_doors(&config);
    own_files::warn_of_others(&config.data_dir);
    let runtime = match runtime(config.worker_threads) {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(format!("error: cannot start threads: {error}"));
            return ExitCode::from(exit::SYSTEM);
        }
    };
    let log_format = config.log_format;
    let ended = runtime.block_on(app::run(config, hangup));
    runtime.shutdown_timeout(RUNTIME_STOP_MAX);
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    match log_format {
        LogFormat::Text => complain(format!("error: {error}")),
        LogFormat::Json => error!("{error}"),
    }
    ExitCode::from(exit_of(&error))
}

fn exit_of(error: &AppError) -> u8 {
    match error {
        AppError::Listen { .. }
        | AppError::Signals(_)
        | AppError::AuditLog(_)
        | AppError::Start(StartError::DataDir { .. } | StartError::Locked { .. }) => exit::SYSTEM,
        AppError::Tls(_)
        | AppError::Credentials(_)
        | AppError::Backups(_)
        | AppError::Restore(_)
        | AppError::Kube(_)
        | AppError::Otlp(_)
        | AppError::Start(_)
        | AppError::Stopped(_)
        | AppError::Server { .. } => EXIT_FAILED,
    }
}

/// Says what is right for a first try on a laptop and for nothing else.
fn warn_of_open_doors(config: &Config) {
    let ports = [
        (
            "--listen-client",
            config.listen_client,
            config.client_tls.is_some(),
        ),
        (
            "--listen-peer",
            config.listen_peer,
            config.peer_tls.is_some(),
        ),
    ];
    for (flag, address, has_tls) in ports {
        if !has_tls && address.ip().is_unspecified() {
            warn!(
                "{flag} {address} listens on ALL interfaces of this machine WITHOUT TLS: anyone who \
                 reaches it controls the cluster; name an address of a trusted network, or set up \
                 TLS"
            );
        }
    }
    if config.data_dir.is_relative() {
        let folder = std::path::absolute(&config.data_dir);
        let folder = folder.unwrap_or_else(|_| config.data_dir.clone());
        warn!(
            "--data-dir {} is in the current directory: {}; a start from elsewhere would be a node \
             without data, so name an absolute path",
            config.data_dir.display(),
            folder.display()
        );
    }
}

/// One runtime for everything; a single worker does without the threads that wake each other.
/// Without tokio's LIFO slot a proposal does not run ahead of those that arrive with it, so that
/// entries gather into batches: half again as many per second.
fn runtime(workers: usize) -> std::io::Result<Runtime> {
    if workers == 1 {
        return Builder::new_current_thread().enable_all().build();
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all();
    #[allow(
        unexpected_cfgs,
        reason = "set in .cargo/config.toml, which rustc does not know"
    )]
    {
        #[cfg(tokio_unstable)]
        builder.disable_lifo_slot();
    }
    builder.build()
}

fn log_to_stderr(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(&config.log);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Otherwise a line that cannot be written any more ends the process.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().init(),
    }
}
