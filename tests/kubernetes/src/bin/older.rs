//! Builds the API servers of older versions of Kubernetes unless they are there, and prints the version that
//! chooses each of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ringfence_kubernetes::build_older() {
        Ok(built) => {
            for (version, _) in built {
                println!("{version}");
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no older Kubernetes: {why}");
            ExitCode::FAILURE
        }
    }
}
