//! `ringfence serve`: from the command line to a running node.

use std::process::ExitCode;

use crate::config::{Config, LogFormat, ServeArgs};

/// The command line, the environment or the file is wrong.
const EXIT_USAGE: u8 = 2;

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
    ExitCode::SUCCESS
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
