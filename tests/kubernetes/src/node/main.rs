//! `cargo xtask test-node`: a real node of Kubernetes on this machine, and Ringfence deployed on it
//! as people deploy it.
//!
//! Everything of it lives in namespaces of its own and in one folder, so that it ends as a whole and
//! leaves nothing behind; what the machine has before and after is compared.
//!
//! ```text
//!  outside:  lock, look, folder ──> unshare ──> inside:  mounts, bridge
//!            look again, compare  <──────────            containerd, kubelet, API server, DNS
//!                                                        the chapters of the story
//! ```

mod cli;
mod clocked;
mod cluster;
mod containers;
mod inside;
mod kubectl;
mod load;
mod machine;
mod operator;
mod outside;
mod plane;
mod program;
mod say;
mod story;
mod volumes;
mod writing;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match cli::parse(&words) {
        Ok(cli::Mode::Outside(request)) => outside::run(&request),
        Ok(cli::Mode::Inside(site)) => inside::run(&site),
        Ok(cli::Mode::Hold { endpoint, lease }) => load::hold(&endpoint, &lease),
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}
