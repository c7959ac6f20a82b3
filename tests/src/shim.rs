//! A library between one process and libc: a wall clock that a test steps, and a name that it resolves.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// A library to be preloaded (`LD_PRELOAD`). The wall clock of the process shows the seconds in the file
/// `TEST_CLOCK_OFFSET` (eight bytes, as the machine has them) more than the true time, and the name
/// `ringfence.test` has the address in the file `TEST_ADDRESS`. It is made in this directory, which
/// outlives the test.
///
/// # Panics
/// If there is no C compiler, which the workspace needs anyway, or the directory cannot be written.
#[must_use]
pub fn shim(directory: &str) -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let library = Path::new(directory).join("shim.so");
        // Made under another name first: another process may be using it.
        let fresh = library.with_extension(format!("{}", std::process::id()));
        let mut compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o"])
            .arg(&fresh)
            .arg("-ldl")
            .stdin(Stdio::piped())
            .spawn()
            .expect("a C compiler");
        let mut source = compiler.stdin.take().expect("it was asked for");
        let text = include_bytes!("shim.c");
        source.write_all(text).expect("the compiler reads");
        drop(source);
        assert!(
            compiler.wait().expect("it is a child").success(),
            "the library is compiled"
        );
        std::fs::rename(&fresh, &library).expect("the directory can be written");
        library
    })
}

/// A wall clock that a test steps.
#[derive(Debug)]
pub struct Wall {
    _folder: TempDir,
    file: PathBuf,
}

impl Wall {
    /// One that shows so many seconds more than the true time.
    ///
    /// # Panics
    /// If no temporary file can be made.
    #[must_use]
    pub fn off_by(seconds: i64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("offset");
        let wall = Self {
            _folder: folder,
            file,
        };
        wall.step_to(seconds);
        wall
    }

    /// Steps it, for all processes that have it. They map the file, so it is written in place.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn step_to(&self, seconds: i64) {
        let mut options = std::fs::File::options();
        let file = options.write(true).create(true).truncate(false);
        let file = file.open(&self.file).expect("a file");
        let written = file.write_all_at(&seconds.to_ne_bytes(), 0);
        written.expect("the file can be written");
    }

    /// The environment of a process that has it; see [`shim`] for the directory.
    #[must_use]
    pub fn environment(&self, directory: &str) -> [(&'static str, &Path); 2] {
        [
            ("LD_PRELOAD", shim(directory)),
            ("TEST_CLOCK_OFFSET", self.file.as_path()),
        ]
    }
}
