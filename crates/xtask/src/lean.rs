//! What the client crate brings along: its users build all of it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cargo::cargo;

/// What must not be among the dependencies of a plain build of the client, and why.
const BANNED: &[(&str, &str)] = &[
    (
        "axum",
        "a web framework for servers; leave tonic's `router` and `server` to those",
    ),
    (
        "protox",
        "a compiler; the client is built from the code in `crates/proto/generated`",
    ),
    (
        "tonic-prost-build",
        "a generator; the client is built from the code in `crates/proto/generated`",
    ),
];

/// The most packages that a plain build of the client may take, itself and build dependencies
/// counted, on the platform that this runs on. Raise it only for something that is worth the wait
/// of every user.
const PACKAGES_MAX: usize = 80;

/// Prints how many packages a plain build of the client takes, and says whether that is in order.
pub(crate) fn check(root: &Path) -> bool {
    let arguments = [
        "tree",
        "-p",
        "ringfence-client",
        "-e",
        "normal,build",
        "--prefix",
        "none",
    ];
    let output = cargo().args(arguments).current_dir(root).output();
    let tree = match output {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return false;
        }
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            return false;
        }
    };
    let packages = packages(&String::from_utf8_lossy(&tree));
    println!(
        "ringfence-client: {} packages in a plain build, at most {PACKAGES_MAX}",
        packages.len()
    );
    let faults = faults(&packages);
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    faults.is_empty()
}

/// The packages in a tree, each once.
fn packages(tree: &str) -> BTreeSet<String> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let packages = lines.filter(|line| !line.is_empty());
    packages.map(str::to_owned).collect()
}

fn faults(packages: &BTreeSet<String>) -> Vec<String> {
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let banned = BANNED.iter().filter(|(name, _)| names.contains(name));
    let mut faults: Vec<String> = banned
        .map(|(name, why)| format!("ringfence-client builds `{name}`: {why}"))
        .collect();
    if packages.len() > PACKAGES_MAX {
        faults.push(format!(
            "ringfence-client: {} packages, at most {PACKAGES_MAX} are allowed; \
             `cargo tree -p ringfence-client` shows what brings them",
            packages.len()
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_counts_once_and_what_is_banned_is_named() {
        let tree =
            "ringfence-client v0.1.0 (/w)\ntonic v0.14.9\nbytes v1.12.1\n\nbytes v1.12.1 (*)\n";
        let lean = packages(tree);
        assert_eq!(lean.len(), 3);
        assert_eq!(faults(&lean), Vec::<String>::new());

        let heavy = packages(&format!("{tree}axum v0.8.9\naxum-core v0.5.6\n"));
        let found = faults(&heavy);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`axum`"), "{found:?}");
    }

    #[test]
    fn too_many_packages_are_a_fault() {
        let many = (0..=PACKAGES_MAX).map(|n| format!("p{n} v1.0.0")).collect();
        assert_eq!(faults(&many).len(), 1);
    }
}
