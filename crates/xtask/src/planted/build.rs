//! Building the test programs of the layers, all with one call, from the patched sources.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::layers::{Layer, Target};
use crate::cargo::cargo;
use crate::patches::Patched;

/// The package that switches bugs on.
const PLANTED: &str = "ringfence-planted";

/// A test program.
#[derive(Debug)]
pub(super) struct Program {
    /// The file.
    pub(super) executable: PathBuf,
    /// The folder of its package, where cargo would run it.
    pub(super) folder: PathBuf,
    package: String,
    target: String,
    is_library: bool,
}

/// The test programs. The simulation is built only when a bug gets as far: it takes longest.
pub(super) struct Built<'a> {
    root: &'a Path,
    tests: Vec<Program>,
    simulation: OnceCell<Vec<Program>>,
}

impl<'a> Built<'a> {
    /// Builds the programs of these layers.
    ///
    /// # Errors
    /// A sentence, if cargo cannot be run or fails.
    pub(super) fn new(root: &'a Path, layers: &[&Layer]) -> Result<Self, String> {
        let mut packages: Vec<_> = Vec::new();
        let mut arguments = vec!["test", "--no-run"];
        // Only the programs of the layers: others of these packages want more to be built.
        for layer in layers {
            match layer.target {
                Target::Library if arguments.contains(&"--lib") => {}
                Target::Library => arguments.push("--lib"),
                Target::Binary if arguments.contains(&"--bins") => {}
                Target::Binary => arguments.push("--bins"),
                Target::Test(name) => arguments.extend(["--test", name]),
                Target::Simulation => continue,
            }
            packages.push(layer.package);
        }
        let tests = match packages.is_empty() {
            true => Vec::new(),
            false => build(root, &arguments, packages)?,
        };
        Ok(Self {
            root,
            tests,
            simulation: OnceCell::new(),
        })
    }

    fn simulation(&self, layer: &Layer) -> Result<&[Program], String> {
        if let Some(built) = self.simulation.get() {
            return Ok(built);
        }
        println!("== building the simulation");
        let arguments = ["build", "--bins", "--profile", "planted"];
        let built = build(self.root, &arguments, vec![layer.package])?;
        Ok(self.simulation.get_or_init(|| built))
    }

    /// The program of a layer.
    ///
    /// # Errors
    /// A sentence, if the layer names a program that there is not, or it cannot be built.
    pub(super) fn program(&self, layer: &Layer) -> Result<&Program, String> {
        let programs = match layer.target {
            Target::Simulation => self.simulation(layer)?,
            Target::Library | Target::Binary | Target::Test(_) => &self.tests,
        };
        let found = programs.iter().find(|program| {
            program.package == layer.package
                && match layer.target {
                    Target::Library => program.is_library,
                    // A test in `tests` may have the name of a package, but not of its own.
                    Target::Binary => !program.is_library && program.target == layer.package,
                    Target::Test(name) => !program.is_library && program.target == name,
                    Target::Simulation => !program.is_library,
                }
        });
        found.ok_or_else(|| {
            format!(
                "layer {} names no test program of {}: see crates/xtask/src/planted/layers.rs",
                layer.name, layer.package
            )
        })
    }
}

/// Builds with bugs to switch on, and returns what was built.
fn build(root: &Path, arguments: &[&str], mut packages: Vec<&str>) -> Result<Vec<Program>, String> {
    packages.push(PLANTED);
    packages.sort_unstable();
    packages.dedup();
    let mut cargo = cargo();
    cargo.args(arguments);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    // Its dependencies take the feature along, whichever crate depends on them.
    cargo.args(["--features", "ringfence-planted/planted"]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    let cargo = cargo.current_dir(root).stderr(Stdio::inherit());
    let patched = Patched::new(root)?;
    let output = cargo
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    patched.take_out()?;
    if !output.status.success() {
        return Err("with planted bugs it does not compile".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(program).collect())
}

/// The test program that a line of cargo's messages is about, if it is about one.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?)
        .parent()?
        .to_owned();
    let target = &message["target"];
    let is_library = target["kind"].as_array()?.iter().any(|kind| kind == "lib");
    let target = target["name"].as_str()?.to_owned();
    // The library of a package has its name, with other dashes.
    let package = match is_library {
        true => target.replace('_', "-"),
        false => name_of(message["package_id"].as_str()?)?,
    };
    Some(Program {
        executable,
        folder,
        package,
        target,
        is_library,
    })
}

/// The name in a package id: behind the `#` if it stands there, else the last folder's package.
fn name_of(id: &str) -> Option<String> {
    let (path, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => path.rsplit('/').next().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_known_by_its_package_and_name() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/core#ringfence-core@0.1.0","manifest_path":"/w/crates/core/Cargo.toml","target":{"kind":["test"],"name":"model"},"executable":"/t/model-1"}"#;
        let found = program(line).expect("a test program");
        assert_eq!(
            (found.package.as_str(), found.target.as_str()),
            ("ringfence-core", "model")
        );
        assert_eq!(found.folder, Path::new("/w/crates/core"));
    }

    #[test]
    fn what_is_no_program_is_passed_over() {
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(program("warning: something").is_none());
    }
}
