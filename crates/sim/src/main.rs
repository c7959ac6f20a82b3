//! `ringfence-sim`: what `cargo xtask sim` runs.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_sim::campaign::{self, Kind, Options};

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--from SEED] [--hours H] [--jobs N] [--long] [--traces] [--into DIR]
       cargo xtask sim [--long] --seed SEED
       cargo xtask sim --calm [--long] [--seeds N]

  --seeds N    how many seeds are run (100)
  --from SEED  the first one (1)
  --hours H    no seed is begun after so many simulated hours
  --jobs N     how many run at a time (as many as there are cores)
  --long       an hour each in which less happens, instead of a minute or two
  --calm       three nodes, ten clients and no faults: what the simulation costs
  --traces     keep every trace, as DIR/SEED.trace
  --into DIR   where traces and the list of failed seeds go (target/sim)
  --seed SEED  this one alone, with its trace

Exit codes: 0 every promise was kept, 1 one was broken, 2 usage.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(&arguments) {
        Ok(options) => campaign::run(&options),
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        from: 1,
        seeds: 100,
        hours: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        into: PathBuf::from("target/sim"),
        traces: false,
        kind: Kind::Brisk,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--traces" {
            options.traces = true;
            continue;
        }
        if word == "--calm" || word == "--long" {
            options.kind = match (options.kind, word.as_str()) {
                (Kind::Brisk | Kind::Calm, "--calm") => Kind::Calm,
                (Kind::Brisk | Kind::Long, "--long") => Kind::Long,
                _ => Kind::CalmLong,
            };
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("`{word}` wants a value"))?;
        if word == "--into" {
            options.into = PathBuf::from(value);
            continue;
        }
        let number: u64 = value
            .parse()
            .map_err(|_| format!("`{word}` wants a number, not `{value}`"))?;
        match word.as_str() {
            "--seeds" => options.seeds = number,
            "--from" => options.from = number,
            "--hours" => options.hours = Some(number),
            "--jobs" => options.jobs = usize::try_from(number).unwrap_or(1).max(1),
            "--seed" => {
                (options.from, options.seeds) = (number, 1);
                options.traces = true;
            }
            _ => return Err(format!("`{word}` means nothing here")),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
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
    fn what_is_not_understood_is_named() {
        assert!(parsed("--sed 1").is_err_and(|why| why.contains("--sed")));
        assert!(parsed("--seeds many").is_err_and(|why| why.contains("many")));
        assert!(parsed("--hours").is_err_and(|why| why.contains("--hours")));
    }
}
