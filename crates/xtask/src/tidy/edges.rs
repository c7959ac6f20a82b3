//! Who may name whom: the arrows of `crates/ARCHITECTURE.md` as a table.

use super::Violation;
use super::source::{Dependency, Kind, Package};

/// For each crate the crates of this workspace that it may name. A crate without a row is refused,
/// so the author of one decides here what it stands on.
const EDGES: &[(&str, &[&str])] = &[
    (PLANTED, &[]),
    ("ringfence-core", &[]),
    ("ringfence-wal", &[]),
    ("ringfence-proto", &["ringfence-core"]),
    ("ringfence-guard", &["ringfence-core"]),
    ("ringfence-access", &["ringfence-core"]),
    ("ringfence-tls", &[]),
    (
        "ringfence-client",
        &["ringfence-core", "ringfence-proto", "ringfence-tls"],
    ),
    ("ringfence-history", &["ringfence-core", "ringfence-proto"]),
    (
        "ringfence-raft",
        &[
            "ringfence-core",
            "ringfence-history",
            "ringfence-proto",
            "ringfence-tls",
            "ringfence-wal",
        ],
    ),
    (
        "ringfence-services",
        &[
            "ringfence-access",
            "ringfence-core",
            "ringfence-proto",
            "ringfence-raft",
        ],
    ),
    (
        "ringfence-rest",
        &[
            "ringfence-core",
            "ringfence-proto",
            "ringfence-raft",
            "ringfence-services",
        ],
    ),
    ("ringfence-lease-api", &[]),
    ("ringfence-proxy", &["ringfence-core", "ringfence-guard"]),
    ("ringfence-model", &["ringfence-core"]),
    (
        "ringfence-check",
        &["ringfence-core", "ringfence-model", "ringfence-proto"],
    ),
    (
        "ringfence-testkit",
        &["ringfence-core", "ringfence-model", "ringfence-proto"],
    ),
    (
        TEST_CLUSTER,
        &[
            "ringfence-client",
            "ringfence-core",
            "ringfence-guard",
            "ringfence-proto",
        ],
    ),
    (
        "ringfence-chaos",
        &[
            "ringfence-check",
            "ringfence-client",
            "ringfence-core",
            "ringfence-guard",
        ],
    ),
    ("ringfence-kube", &["ringfence-client", "ringfence-core"]),
    (
        "ringfence",
        &[
            "ringfence-access",
            "ringfence-chaos",
            "ringfence-check",
            "ringfence-client",
            "ringfence-core",
            "ringfence-guard",
            "ringfence-kube",
            "ringfence-lease-api",
            "ringfence-proto",
            "ringfence-proxy",
            "ringfence-raft",
            "ringfence-rest",
            "ringfence-services",
            "ringfence-tls",
        ],
    ),
    (TESTS, &["*"]),
    (INSTRUCTIONS, &["*"]),
    (KUBERNETES, &["*"]),
    (SIM, &["*"]),
    (CONTROLLER, &["ringfence-client", "ringfence-kube"]),
    ("xtask", &[]),
];

/// The package of tests with real processes; it may name anything.
const TESTS: &str = "ringfence-tests";

/// The package of tests with a real Kubernetes; it may name anything.
const KUBERNETES: &str = "ringfence-kubernetes";

/// What counts instructions; it may name anything, and no crate may name it.
const INSTRUCTIONS: &str = "ringfence-instructions";

/// The simulation of a whole cluster; it may name anything, and no crate may name it.
const SIM: &str = "ringfence-sim";

/// The example of a controller whose writes are fenced.
const CONTROLLER: &str = "ringfence-fenced-controller";

/// Bugs to switch on. Anybody may name it: it is empty, but for the builds that plant them.
const PLANTED: &str = "ringfence-planted";

/// Test helpers: named as a dev-dependency, so that they never ship.
const TESTKIT: &str = "ringfence-testkit";

/// The same for users of the client. It simulates what surrounds one.
const TEST_CLUSTER: &str = "ringfence-test-cluster";

/// The feature of a crate with its simulated disks, networks and random numbers.
const SIMULATION: &str = "sim";

/// The state machine: depends on nothing from outside.
const CORE: &str = "ringfence-core";

/// Crates from outside that only some of ours may name.
const CONFINED: &[Confined] = &[
    Confined {
        prefix: "openraft",
        to: &["ringfence-raft"],
        why: "openraft's types must be exchangeable: only `raft` names them",
    },
    Confined {
        prefix: "tonic",
        to: &[
            "ringfence-proto",
            "ringfence-raft",
            "ringfence-services",
            "ringfence-rest",
            "ringfence-tls",
            "ringfence",
            "ringfence-client",
            // The guard in etcd, behind a feature.
            "ringfence-guard",
            TESTS,
            SIM,
        ],
        why: "gRPC belongs to the edges",
    },
    Confined {
        prefix: "kube",
        to: &["ringfence-kube", KUBERNETES, CONTROLLER],
        why: "nothing needs Kubernetes but what is about it",
    },
    Confined {
        prefix: "k8s-openapi",
        to: &["ringfence-kube", KUBERNETES, CONTROLLER],
        why: "nothing needs Kubernetes but what is about it",
    },
    Confined {
        prefix: "sled",
        to: &["ringfence-history", "ringfence-guard"],
        why: "the log and the state machine never learn of sled",
    },
    Confined {
        prefix: "x509-parser",
        to: &["ringfence-access"],
        why: "which name of a certificate counts is decided in one place",
    },
    Confined {
        prefix: "opentelemetry",
        to: &["ringfence"],
        why: "it is the witness of the server's tests, and part of no program",
    },
    Confined {
        prefix: "hyper-rustls",
        to: &["ringfence"],
        why: "the machine's authorities are trusted for buckets and collectors alone",
    },
    Confined {
        prefix: "tokio-rustls",
        to: &["ringfence-tls"],
        why: "what is trusted is decided in one place",
    },
];

struct Confined {
    /// Every crate whose name begins so.
    prefix: &'static str,
    to: &'static [&'static str],
    why: &'static str,
}

/// Checks every dependency of every package against the tables.
pub(super) fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
            violations.push(Violation::new(
                &package.manifest,
                1,
                format!("`{}` has no row in the table of edges", package.name),
                "add it to EDGES in crates/xtask/src/tidy/edges.rs and to crates/ARCHITECTURE.md",
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let internal = EDGES.iter().any(|(name, _)| *name == dependency.name);
            let fault = if internal {
                internal_fault(package, allowed, &dependency.name, dependency.kind)
            } else {
                external_fault(package, &dependency.name, dependency.kind)
            };
            violations.extend(fault);
            violations.extend(simulated(package, allowed, dependency));
        }
    }
    violations
}

fn internal_fault(
    package: &Package,
    allowed: &[&str],
    dependency: &str,
    kind: Kind,
) -> Option<Violation> {
    let anything = allowed.contains(&"*") || dependency == PLANTED;
    if dependency == TESTKIT || dependency == TEST_CLUSTER {
        let fine = kind == Kind::Dev || anything;
        return (!fine).then(|| {
            Violation::new(
                &package.manifest,
                1,
                format!("`{}` would ship `{dependency}`", package.name),
                "move it to [dev-dependencies]",
            )
        });
    }
    // A crate names itself to build its own tests with optional features on.
    let itself = kind == Kind::Dev && dependency == package.name;
    (!anything && !itself && !allowed.contains(&dependency)).then(|| {
        Violation::new(
            &package.manifest,
            1,
            format!("`{}` must not depend on `{dependency}`", package.name),
            "each crate names only what stands to its left in crates/ARCHITECTURE.md",
        )
    })
}

/// What a program ships has no simulated disks, networks or random numbers in it.
fn simulated(package: &Package, allowed: &[&str], dependency: &Dependency) -> Option<Violation> {
    let turned_on = dependency.features.iter().any(|name| name == SIMULATION);
    let for_tests = package.name == TEST_CLUSTER || allowed.contains(&"*");
    let ships = dependency.kind != Kind::Dev && !for_tests;
    (turned_on && ships).then(|| {
        Violation::new(
            &package.manifest,
            1,
            format!(
                "`{}` would ship the simulation of `{}`",
                package.name, dependency.name
            ),
            "turn its feature `sim` on in [dev-dependencies]",
        )
    })
}

fn external_fault(package: &Package, dependency: &str, kind: Kind) -> Option<Violation> {
    if package.name == CORE && kind != Kind::Dev {
        return Some(Violation::new(
            &package.manifest,
            1,
            format!("`{CORE}` depends on `{dependency}`"),
            "the state machine stands on `alloc` alone; pass the result in as data",
        ));
    }
    let confined = CONFINED
        .iter()
        .find(|confined| dependency.starts_with(confined.prefix))?;
    (!confined.to.contains(&package.name.as_str())).then(|| {
        Violation::new(
            &package.manifest,
            1,
            format!("`{}` names `{dependency}`: {}", package.name, confined.why),
            format!("go through one of: {}", confined.to.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::fixtures::package;
    use super::*;

    fn faults(name: &str, normal: &[&str]) -> Vec<String> {
        check(&[package("crates/any", name, normal)])
            .into_iter()
            .map(|violation| violation.wrong)
            .collect()
    }

    #[test]
    fn the_arrows_of_the_architecture_are_allowed() {
        for (name, allowed) in EDGES {
            let concrete: Vec<&str> = allowed.iter().copied().filter(|to| *to != "*").collect();
            assert_eq!(faults(name, &concrete), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn an_arrow_against_the_order_is_refused() {
        assert_eq!(faults("ringfence-core", &["ringfence-proto"]).len(), 1);
        assert_eq!(faults("ringfence-wal", &["ringfence-core"]).len(), 1);
        assert_eq!(faults("ringfence-client", &["ringfence-raft"]).len(), 1);
        assert_eq!(faults("ringfence", &["ringfence-wal"]).len(), 1);
        assert_eq!(faults("ringfence-services", &["ringfence-tls"]).len(), 1);
        assert_eq!(faults("xtask", &["ringfence-core"]).len(), 1);
    }

    #[test]
    fn only_raft_names_openraft() {
        assert_eq!(
            faults("ringfence-raft", &["openraft", "openraft-rt-tokio"]).len(),
            0
        );
        assert_eq!(faults("ringfence", &["openraft"]).len(), 1);
        assert_eq!(faults("ringfence-tests", &["openraft-rt-tokio"]).len(), 1);
    }

    #[test]
    fn only_the_edges_name_tonic() {
        assert_eq!(faults("ringfence-client", &["tonic"]).len(), 0);
        assert_eq!(faults("ringfence-tests", &["tonic"]).len(), 0);
        assert_eq!(faults("ringfence-history", &["tonic"]).len(), 1);
        assert_eq!(faults("ringfence-testkit", &["tonic-health"]).len(), 1);
    }

    #[test]
    fn core_stands_on_nothing() {
        assert_eq!(faults("ringfence-core", &["bytes"]).len(), 1);

        let mut core = package("crates/core", "ringfence-core", &[]);
        core.dependencies.push(Dependency {
            name: "proptest".to_owned(),
            kind: Kind::Dev,
            requirement: "*".to_owned(),
            features: Vec::new(),
        });
        assert_eq!(check(&[core]), Vec::new());
    }

    #[test]
    fn the_testkit_never_ships() {
        assert_eq!(faults("ringfence-raft", &["ringfence-testkit"]).len(), 1);
        assert_eq!(faults("ringfence-tests", &["ringfence-testkit"]).len(), 0);
        assert_eq!(faults("ringfence-kube", &[TEST_CLUSTER]).len(), 1);

        let mut raft = package("crates/raft", "ringfence-raft", &[]);
        raft.dependencies.push(Dependency {
            name: "ringfence-testkit".to_owned(),
            kind: Kind::Dev,
            requirement: "*".to_owned(),
            features: Vec::new(),
        });
        assert_eq!(check(&[raft]), Vec::new());
    }

    #[test]
    fn no_simulation_ships() {
        let with_sim = |name: &str, kind| {
            let mut package = package("crates/any", name, &[]);
            package.dependencies.push(Dependency {
                name: "ringfence-wal".to_owned(),
                kind,
                requirement: "*".to_owned(),
                features: vec![SIMULATION.to_owned()],
            });
            check(&[package]).len()
        };
        assert_eq!(with_sim("ringfence-raft", Kind::Normal), 1);
        assert_eq!(with_sim("ringfence-raft", Kind::Dev), 0);
        assert_eq!(with_sim(SIM, Kind::Normal), 0);
    }

    #[test]
    fn a_crate_may_test_itself_with_its_features_on() {
        let mut guard = package("crates/guard", "ringfence-guard", &[]);
        guard.dependencies.push(Dependency {
            name: "ringfence-guard".to_owned(),
            kind: Kind::Dev,
            requirement: "*".to_owned(),
            features: Vec::new(),
        });

        assert_eq!(check(&[guard]), Vec::new());
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        assert_eq!(faults("ringfence-extra", &[]).len(), 1);
    }
}
