//! `ringfence-sim`: what `cargo xtask sim` runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ringfence_sim::campaign::{self, Kind, Options};

/// Simulates whole clusters, each from one seed
#[derive(Parser)]
#[command(
    name = "cargo xtask sim",
    bin_name = "cargo xtask sim",
    after_help = "Exit codes: 0 every promise was kept, 1 one was broken, 2 usage."
)]
struct Arguments {
    /// How many seeds are run
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first one
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    from: u64,
    /// No seed is begun after so many simulated hours
    #[arg(long, value_name = "H")]
    hours: Option<u64>,
    /// How many run at a time [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// An hour each in which less happens, instead of a minute or two
    #[arg(long)]
    long: bool,
    /// Three nodes, ten clients and no faults: what the simulation costs
    #[arg(long)]
    calm: bool,
    /// Keep every trace, as DIR/SEED.trace
    #[arg(long)]
    traces: bool,
    /// Where traces and the list of failed seeds go
    #[arg(long, value_name = "DIR", default_value = "target/sim")]
    into: PathBuf,
    /// This one alone, with its trace
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

impl Arguments {
    fn options(self) -> Options {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            from: self.seed.unwrap_or(self.from),
            seeds: self.seed.map_or(self.seeds, |_| 1),
            hours: self.hours,
            jobs: self.jobs.unwrap_or_else(cores).max(1),
            into: self.into,
            traces: self.traces || self.seed.is_some(),
            kind: match (self.calm, self.long) {
                (false, false) => Kind::Brisk,
                (false, true) => Kind::Long,
                (true, false) => Kind::Calm,
                (true, true) => Kind::CalmLong,
            },
        }
    }
}

fn main() -> ExitCode {
    // On a usage error it prints why, and exits with 2.
    campaign::run(&Arguments::parse().options())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("sim").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(Arguments::options)
    }

    #[test]
    fn a_single_seed_is_run_alone_and_traced() {
        let options = parsed("--seed 8071").unwrap();
        assert_eq!(
            (options.from, options.seeds, options.traces),
            (8_071, 1, true)
        );
    }

    #[test]
    fn a_long_run_is_asked_for_beside_its_seed() {
        let options = parsed("--long --seed 7").unwrap();
        assert_eq!((options.kind, options.from), (Kind::Long, 7));
        assert_eq!(parsed("--seed 7").unwrap().kind, Kind::Brisk);
        assert_eq!(parsed("--calm --seeds 3").unwrap().kind, Kind::Calm);
        for both in ["--calm --long", "--long --calm"] {
            assert_eq!(parsed(both).unwrap().kind, Kind::CalmLong);
        }
    }

    #[test]
    fn what_is_not_understood_is_named_and_exits_with_2() {
        for (line, word) in [
            ("--sed 1", "--sed"),
            ("--seeds many", "many"),
            ("--hours", "--hours"),
        ] {
            let error = parsed(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(parsed("--help").unwrap_err().exit_code(), 0);
    }
}
