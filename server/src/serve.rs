//! `ringfence serve`: from the command line to a running node.

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};
use tracing::error;

use crate::app;
use crate::config::{Config, LogFormat, ServeArgs};
use crate::limits::RUNTIME_STOP_MAX;

/// The command line, the environment or the file is wrong.
const EXIT_USAGE: u8 = 2;
/// The node could not start, or ended by itself.
const EXIT_FAILED: u8 = 1;

/// Runs a node until it is told to stop.
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    let config = match Config::load(args) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    log_to_stderr(&config);
    let runtime = match runtime(config.worker_threads) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start threads: {error}");
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let log_format = config.log_format;
    let ended = runtime.block_on(app::run(config));
    runtime.shutdown_timeout(RUNTIME_STOP_MAX);
    let Err(error) = ended else {
        return ExitCode::SUCCESS;
    };
    match log_format {
        LogFormat::Text => eprintln!("error: {error}"),
        LogFormat::Json => error!("{error}"),
    }
    ExitCode::from(EXIT_FAILED)
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
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().init(),
    }
}
