//! `cargo xtask`: see `cargo xtask --help`.

use std::process::ExitCode;

use xtask::cli::{Command, parse};

fn main() -> ExitCode {
    let root = xtask::workspace_root();
    match parse(std::env::args().skip(1)) {
        Ok(Command::Kubernetes) => xtask::servers::kubernetes(&root),
        Ok(Command::OlderKubernetes(request)) => xtask::older::run(&request, &root),
        Ok(Command::Etcd) => xtask::servers::etcd(&root),
        Ok(Command::S3) => xtask::servers::s3(&root),
        Ok(Command::Arm64) => xtask::arm64::run(&root),
        Ok(Command::Targets) => xtask::targets::run(&root),
        Ok(Command::TestNode { chart, built }) => xtask::node::run(&root, chart, built),
        Ok(Command::Bench(request)) => xtask::bench::run(&request, &root),
        Ok(Command::Upgrade) => xtask::upgrade::run(&root),
        Ok(Command::Sim { words }) => xtask::sim::run(&words, &root),
        Ok(Command::Planted(request)) => xtask::planted::run(request, &root),
        Ok(command) => xtask::steps::run(&command, &root),
        Err(error) => error.exit(),
    }
}
