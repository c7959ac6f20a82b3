//! Where things stand: folder names, and the `no_std` line that keeps `core` pure.

use super::source::Package;
use super::{SourceFile, Violation};

/// Packages that are not called `ringfence-` and their folder's name.
const NAMED_OTHERWISE: &[(&str, &str)] = &[("server", "ringfence"), ("crates/xtask", "xtask")];

const CORE_ROOT: &str = "crates/core/src/lib.rs";

/// Checks that folders say what they hold, and that the compiler guards `core`.
pub(super) fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations: Vec<Violation> = packages.iter().filter_map(misnamed).collect();
    if packages
        .iter()
        .any(|package| package.folder() == "crates/core")
    {
        violations.extend(impure_core(files));
    }
    violations
}

fn misnamed(package: &Package) -> Option<Violation> {
    let folder = package.folder();
    let expected = match NAMED_OTHERWISE
        .iter()
        .find(|(special, _)| *special == folder)
    {
        Some((_, name)) => (*name).to_owned(),
        None => format!("ringfence-{}", folder.rsplit('/').next().unwrap_or(folder)),
    };
    (package.name != expected).then(|| {
        Violation::new(
            &package.manifest,
            1,
            format!(
                "the folder `{folder}` holds a package called `{}`",
                package.name
            ),
            format!("call it `{expected}`, or rename the folder: `ls` is the map"),
        )
    })
}

fn impure_core(files: &[SourceFile]) -> Option<Violation> {
    let pure = files
        .iter()
        .find(|file| file.path == CORE_ROOT)
        .is_some_and(|file| file.lines().any(|(_, line)| line.trim() == "#![no_std]"));
    (!pure).then(|| {
        Violation::new(
            CORE_ROOT,
            1,
            "`core` is not `#![no_std]`",
            "add that line: without it the compiler no longer keeps clocks, threads and I/O out",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::{file, package};
    use super::*;

    #[test]
    fn a_folder_is_called_like_its_package() {
        let packages = [
            package("crates/wal", "ringfence-wal", &[]),
            package("client", "ringfence-client", &[]),
            package("tests", "ringfence-tests", &[]),
            package("server", "ringfence", &[]),
            package("crates/xtask", "xtask", &[]),
        ];
        assert_eq!(check(&packages, &[]), Vec::new());

        let strayed = [package("crates/log", "ringfence-wal", &[])];
        assert_eq!(check(&strayed, &[]).len(), 1);
        let unprefixed = [package("crates/wal", "wal", &[])];
        assert_eq!(check(&unprefixed, &[]).len(), 1);
    }

    #[test]
    fn core_without_no_std_is_refused() {
        let core = [package("crates/core", "ringfence-core", &[])];

        let pure = [file(CORE_ROOT, "//! Pure.\n#![no_std]\n")];
        assert_eq!(check(&core, &pure), Vec::new());
        let impure = [file(CORE_ROOT, "//! Under construction.\n")];
        assert_eq!(check(&core, &impure).len(), 1);
        let conditional = [file(CORE_ROOT, "#![cfg_attr(not(test), no_std)]\n")];
        assert_eq!(check(&core, &conditional).len(), 1);
    }
}
