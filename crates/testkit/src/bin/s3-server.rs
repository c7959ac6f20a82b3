//! Builds the server of S3 that tests start unless it is there, and prints where it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ringfence_testkit::s3::build() {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("no S3: {why}");
            ExitCode::FAILURE
        }
    }
}
