//! Electors of three crates from crates.io as they are: only the address and the credential are
//! Ringfence's, by `KUBECONFIG`.
//!
//! ```text
//! ringfence-kubers CRATE LEASE HOLDER SECONDS
//! ```
//!
//! The lease is one of the namespace of the configuration. Lines on stdout say what the elector
//! believes: `leading`, `following`, `lost`, and `leader NAME` where the crate knows the name. On
//! SIGTERM it ends as the documents of its crate show, and prints `released` where that has released.

mod kube_leader_election;
mod kube_lease_manager;
mod kubert;
mod report;

use std::error::Error;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whatever a crate answers in place of a result.
type Fault = Box<dyn Error + Send + Sync>;

/// What one elector is started with.
struct Candidate {
    /// The name of the lease.
    lease: String,
    /// The identity that it elects.
    holder: String,
    /// The duration of the lease, of which the crates renew after one or two thirds.
    seconds: u64,
    /// The end of the process.
    stop: Signal,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            report::fault(&*fault);
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [of, lease, holder, seconds] = arguments.as_slice() else {
        return Err("usage: ringfence-kubers CRATE LEASE HOLDER SECONDS".into());
    };
    let candidate = Candidate {
        lease: lease.clone(),
        holder: holder.clone(),
        seconds: seconds.parse()?,
        stop: signal(SignalKind::terminate())?,
    };
    match of.as_str() {
        "kube-leader-election" => kube_leader_election::elect(candidate).await,
        "kube-lease-manager" => kube_lease_manager::elect(candidate).await,
        "kubert" => kubert::elect(candidate).await,
        other => Err(format!("no crate is called {other}").into()),
    }
}
