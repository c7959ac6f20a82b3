//! Builds the API servers of older versions of Kubernetes, of those that are named or all, unless they are
//! there, and prints the version that chooses each of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    match ringfence_kubernetes::build_older(&names) {
        Ok(built) => {
            for version in built {
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
