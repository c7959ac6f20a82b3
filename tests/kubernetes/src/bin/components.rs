//! Builds the components of Kubernetes and Helm unless they are there, and prints their folders.

use std::process::ExitCode;

use ringfence_kubernetes::build_helm;

fn main() -> ExitCode {
    match ringfence_kubernetes::build().and_then(|folder| Ok((folder, build_helm()?))) {
        Ok((folder, helm)) => {
            println!("{}\n{}", folder.display(), helm.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no Kubernetes: {why}");
            ExitCode::FAILURE
        }
    }
}
