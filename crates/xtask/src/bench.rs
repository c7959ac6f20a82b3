//! `cargo xtask bench`: the same work on three nodes of Ringfence and three of etcd, in turns on this
//! machine, and the ratio of each turn.
//!
//! One figure of a shared machine says little, and two that were taken one behind the other say how they
//! compare. So each round measures both, the next round in the other order, and what is printed is the
//! median of the ratios with the least and the greatest.

mod figures;
mod machine;
mod picture;
mod processes;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};

use self::figures::Compared;
use self::rows::{ROWS, Row};
use crate::cargo::cargo;

/// What is asked for.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How often both are measured, in turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each measurement lasts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Only this row, as often as is wanted; all of them else
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// The profile that Ringfence is built with
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
}

/// Measures, prints the table, and leaves it with the picture and all figures in `target/bench`.
#[must_use]
pub fn run(request: &Request, root: &Path) -> ExitCode {
    match measure(request, root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(request: &Request, root: &Path) -> Result<(), String> {
    let rows = chosen(&request.rows)?;
    let programs = Programs {
        ringfence: build(request, root)?,
        etcd: etcd(root)?,
    };
    let seconds = request.seconds.to_string();
    let mut measured: Vec<Compared> = rows.iter().map(|row| Compared::new(row)).collect();
    for round in 0..request.rounds {
        for (row, compared) in rows.iter().zip(&mut measured) {
            eprintln!("round {} of {}: {}", round + 1, request.rounds, row.name);
            let ours = || programs.run(row.ours, &seconds, false);
            let theirs = || programs.run(row.theirs, &seconds, true);
            // Whatever slows the machine down for a while slows the other one down as often.
            let (ours, theirs) = match round % 2 {
                0 => (ours()?, theirs()?),
                _ => {
                    let theirs = theirs()?;
                    (ours()?, theirs)
                }
            };
            compared.add(ours, theirs)?;
        }
    }
    let folder = root.join("target/bench");
    let written = write(&folder, request, root, &programs, &measured);
    written.map_err(|why| format!("cannot write into {}: {why}", folder.display()))
}

/// The rows of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Row>, String> {
    if names.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    let row = |name: &String| {
        let known = || ROWS.map(|row| row.name).join(", ");
        let found = ROWS.iter().find(|row| row.name == name);
        found.ok_or_else(|| format!("there is no row `{name}`; there are {}", known()))
    };
    names.iter().map(row).collect()
}

struct Programs {
    ringfence: PathBuf,
    /// The folder that has it.
    etcd: PathBuf,
}

impl Programs {
    /// One measurement, as the program prints it.
    fn run(&self, words: &[&str], seconds: &str, on_etcd: bool) -> Result<Value, String> {
        let mut command = Command::new(&self.ringfence);
        command
            .args(["--json", "bench"])
            .args(words)
            .args(["--seconds", seconds])
            .stderr(Stdio::inherit());
        if on_etcd {
            command.args(["--on", "etcd"]);
        }
        // Where etcd is on the path, `bench cycle` measures it a second time.
        let path = match on_etcd {
            true => self.etcd.clone().into_os_string(),
            false => "/nowhere".into(),
        };
        let watched = processes::watched(command.env("PATH", path));
        let (output, profile) =
            watched.map_err(|why| format!("cannot start {command:?}: {why}"))?;
        if !output.status.success() {
            return Err(format!("{command:?} ended with {}", output.status));
        }
        let mut printed: Value = serde_json::from_slice(&output.stdout)
            .map_err(|why| format!("{command:?} printed no JSON: {why}"))?;
        printed["processes"] = profile.object();
        Ok(printed)
    }
}

fn build(request: &Request, root: &Path) -> Result<PathBuf, String> {
    let mut build = cargo();
    build
        .args(["build", "--package", "ringfence", "--bin", "ringfence"])
        .args(["--profile", &request.profile])
        .current_dir(root);
    let status = build.status();
    let status = status.map_err(|why| format!("cannot start cargo: {why}"))?;
    if !status.success() {
        return Err("Ringfence was not built".to_owned());
    }
    let folder = match &*request.profile {
        "dev" => "debug",
        profile => profile,
    };
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(root.join(target).join(folder).join("ringfence"))
}

/// The folder of the etcd that Kubernetes' tests use, which is built if it is not there.
fn etcd(root: &Path) -> Result<PathBuf, String> {
    let mut build = cargo();
    build
        .args(["run", "--quiet", "--package", "ringfence-kubernetes"])
        .args(["--bin", "components"])
        .stderr(Stdio::inherit())
        .current_dir(root);
    let output = build.output();
    let output = output.map_err(|why| format!("cannot start cargo: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let folder = text.lines().next().map(PathBuf::from);
    let folder = folder.filter(|folder| output.status.success() && folder.join("etcd").is_file());
    folder.ok_or_else(|| "there is no etcd; `cargo xtask kubernetes` builds one".to_owned())
}

fn write(
    folder: &Path,
    request: &Request,
    root: &Path,
    programs: &Programs,
    measured: &[Compared],
) -> std::io::Result<()> {
    let machine = machine::described(root, &programs.etcd);
    let table = figures::table(measured, &machine, request.rounds, request.seconds);
    let rows: Vec<Value> = measured.iter().map(Compared::object).collect();
    let all = json!({
        "machine": machine,
        "profile": request.profile,
        "rounds": request.rounds,
        "seconds": request.seconds,
        "rows": rows,
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("results.json"), format!("{all:#}\n"))?;
    fs::write(folder.join("table.md"), &table)?;
    fs::write(folder.join("ratios.svg"), picture::ratios(measured))?;
    println!("{table}\nall figures and the picture: {}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_there_is_none_of_is_named_with_those_that_there_are() {
        assert_eq!(chosen(&[]).unwrap().len(), ROWS.len());
        let one = chosen(&["check-64".to_owned()]).unwrap();
        assert_eq!(one[0].name, "check-64");
        let refused = chosen(&["checks".to_owned()]).unwrap_err();
        assert!(
            refused.contains("`checks`") && refused.contains("check-64"),
            "{refused}"
        );
    }
}
