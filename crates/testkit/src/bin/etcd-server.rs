//! Builds the etcd that tests start unless it is there, and prints where it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ringfence_testkit::etcd::build() {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no etcd: {why}");
            ExitCode::FAILURE
        }
    }
}
