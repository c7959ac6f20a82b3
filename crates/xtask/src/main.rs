//! `cargo xtask`: see `cargo xtask --help`.

use std::process::ExitCode;

use xtask::cli::Command;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match xtask::cli::parse(&arguments) {
        Ok(Command::Kubernetes) => xtask::kubernetes::run(&xtask::workspace_root()),
        Ok(Command::Targets) => xtask::targets::run(&xtask::workspace_root()),
        Ok(Command::TestNode) => xtask::node::run(&xtask::workspace_root()),
        Ok(Command::Simulate) => xtask::sim::run(&arguments[1..], &xtask::workspace_root()),
        Ok(command) => xtask::steps::run(command, &xtask::workspace_root()),
        Err(message) => {
            eprintln!("{message}\n\n{}", xtask::cli::HELP);
            ExitCode::from(2)
        }
    }
}
