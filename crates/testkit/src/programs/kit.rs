//! Programs that are built of a Go module of ours, once for each of its states.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use super::notice::tell;

/// What makes the same binary of the same sources everywhere, and a small one.
const FLAGS: [&str; 3] = ["-trimpath", "-mod=readonly", "-buildvcs=false"];

/// Programs that are built together.
#[derive(Clone, Copy, Debug)]
pub struct Kit {
    /// What people call them.
    pub what: &'static str,
    /// The version that they report.
    pub version: &'static str,
    /// What the name of their folder in the cache begins with.
    pub prefix: &'static str,
    /// The folder of the module: an absolute path.
    pub module: &'static str,
    /// The files of the module that a build depends on.
    pub files: &'static [&'static str],
    /// Each package, and the program that it becomes. The first program is there once all are.
    pub packages: &'static [(&'static str, &'static str)],
    /// The variable that the version is linked into.
    pub stamp: &'static str,
    /// Other names of the first program.
    pub links: &'static [&'static str],
    /// How long a build takes on two cores, in minutes.
    pub minutes: u32,
}

impl Kit {
    /// The folder that an earlier build left in `cache`.
    ///
    /// # Errors
    /// What is missing to find it.
    pub fn left(&self, go: &Path, cache: &Path) -> Result<Option<PathBuf>, String> {
        let folder = self.folder(go, cache)?;
        Ok(self.is_whole(&folder).then_some(folder))
    }

    /// The folder with the programs, which are built unless they are there.
    ///
    /// # Errors
    /// What is missing, or which step of the build failed.
    pub fn built(&self, go: &Path, cache: &Path) -> Result<PathBuf, String> {
        let folder = self.folder(go, cache)?;
        let made = |error: io::Error| format!("cannot write to {}: {error}", cache.display());
        fs::create_dir_all(cache).map_err(made)?;

        // Several programs may come at once; one of them builds, and the others wait for it.
        let lock = File::create(cache.join(format!("{}lock", self.prefix))).map_err(made)?;
        lock.lock().map_err(made)?;
        if self.is_whole(&folder) {
            return Ok(folder);
        }
        tell(&format!(
            "building {} {} once, for about {} minutes on two cores, into {}",
            self.what,
            self.version,
            self.minutes,
            folder.display()
        ));
        let half = cache.join(format!("{}half-{}", self.prefix, process::id()));
        fs::remove_dir_all(&half).ok();
        fs::create_dir_all(&half).map_err(made)?;
        for (package, program) in self.packages {
            self.go_build(go, package, &half.join(program))?;
        }
        for link in self.links {
            symlink(self.packages[0].1, half.join(link)).map_err(made)?;
        }
        fs::rename(&half, &folder).map_err(made)?;
        Ok(folder)
    }

    /// The folder of a module of others that the programs are made of, at the version of theirs.
    ///
    /// # Errors
    /// What `go` says of it.
    pub fn source(&self, go: &Path, module: &str) -> Result<PathBuf, String> {
        let run = |arguments: &[&str]| {
            let output = Command::new(go)
                .args(arguments)
                .current_dir(self.module())
                .env_remove("GOFLAGS")
                .stdin(Stdio::null())
                .output();
            let output = output.map_err(|error| format!("{}: {error}", go.display()))?;
            match output.status.success() {
                true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
                false => Err(format!(
                    "`go {}`: {}",
                    arguments.join(" "),
                    String::from_utf8_lossy(&output.stderr).trim()
                )),
            }
        };
        run(&["mod", "download", module])?;
        run(&["list", "-m", "-f", "{{.Dir}}", module]).map(PathBuf::from)
    }

    fn is_whole(&self, folder: &Path) -> bool {
        folder.join(self.packages[0].1).is_file()
    }

    fn module(&self) -> PathBuf {
        PathBuf::from(self.module)
    }

    /// Where the programs of the present state of the module are, or would be.
    fn folder(&self, go: &Path, cache: &Path) -> Result<PathBuf, String> {
        let (prefix, version) = (self.prefix, self.version);
        Ok(cache.join(format!("{prefix}{version}-{:016x}", self.state(go)?)))
    }

    /// Changes with everything that the programs are made of.
    fn state(&self, go: &Path) -> Result<u64, String> {
        let mut state = DefaultHasher::new();
        for file in self.files {
            let path = self.module().join(file);
            let content =
                fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            content.hash(&mut state);
        }
        let version = Command::new(go).arg("version").output();
        let version = version.map_err(|error| format!("{} version: {error}", go.display()))?;
        version.stdout.hash(&mut state);
        (FLAGS, self.links).hash(&mut state);
        Ok(state.finish())
    }

    fn go_build(&self, go: &Path, package: &str, program: &Path) -> Result<(), String> {
        let stamp = format!("-s -w -X {}={}", self.stamp, self.version);
        let status = Command::new(go)
            .arg("build")
            .args(FLAGS)
            .args(["-ldflags", &stamp, "-o"])
            .arg(program)
            .arg(package)
            .current_dir(self.module())
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS")
            .stdin(Stdio::null())
            // Cargo reads our stdout.
            .stdout(Stdio::null())
            .status();
        let status = status.map_err(|error| format!("{} build: {error}", go.display()))?;
        let failed = || {
            format!(
                "`go build {package}` in {} failed ({status}), see above",
                self.module().display()
            )
        };
        status.success().then_some(()).ok_or_else(failed)
    }
}
