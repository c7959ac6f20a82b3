//! The Go program: client-go's own leader election, built once for each state of its sources.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folders in which Go is looked for beside those of the search path.
const GO_HOMES: [&str; 2] = ["/usr/local/go/bin", "/usr/lib/go/bin"];

/// The program; `None` if there is no Go, which is printed.
pub(crate) fn elector() -> Option<&'static PathBuf> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(build).as_ref()
}

fn build() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(GO_HOMES.map(PathBuf::from));
    let mut programs = places.map(|place| place.join("go"));
    let Some(go) = programs.find(|program| program.is_file()) else {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!ci, "no Go, so client-go's leader election cannot be run");
        println!("NOT TESTED: no Go, so there is no client-go to compare with");
        return None;
    };
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("components");
    let mut state = DefaultHasher::new();
    for file in ["go.mod", "elector/main.go"] {
        fs::read(module.join(file)).unwrap().hash(&mut state);
    }
    // Never beside the folder of the components: that may be one that the caller has named.
    let cache = ringfence_kubernetes::cache().unwrap();
    fs::create_dir_all(&cache).unwrap();
    let program = cache.join(format!("elector-{:016x}", state.finish()));
    let lock = File::create(cache.join("elector-lock")).unwrap();
    lock.lock().unwrap();
    if !program.is_file() {
        let half = cache.join(format!("elector-half-{}", std::process::id()));
        let status = Command::new(go)
            .args([
                "build",
                "-trimpath",
                "-mod=readonly",
                "-buildvcs=false",
                "-o",
            ])
            .arg(&half)
            .arg("./elector")
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS")
            .status();
        assert!(status.unwrap().success(), "the Go program does not build");
        fs::rename(half, &program).unwrap();
    }
    Some(program)
}
