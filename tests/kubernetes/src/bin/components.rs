//! Builds the components of Kubernetes unless they are there, and prints their folder.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ringfence_kubernetes::build() {
        Ok(folder) => {
            println!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no Kubernetes: {why}");
            ExitCode::FAILURE
        }
    }
}
