//! The layers of tests, from the fastest to the slowest.

/// A test program, and the crates whose bugs it may notice.
#[derive(Debug)]
pub(super) struct Layer {
    /// As the table calls it.
    pub(super) name: &'static str,
    /// The package that has it.
    pub(super) package: &'static str,
    /// Which of its programs.
    pub(super) target: Target,
    /// Only its tests with this in their names; all if it is empty.
    pub(super) filter: &'static str,
    /// The crates, as bugs name their homes.
    pub(super) homes: &'static [&'static str],
    /// Seeds of its chance, tried in turn; one alone for a program without chance.
    pub(super) seeds: &'static [u64],
    /// Whether it belongs to the quick half.
    pub(super) quick: bool,
}

/// A test program of a package.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The unit tests of the library.
    Library,
    /// The unit tests of the binary that has the package's name.
    Binary,
    /// A file or folder in `tests`.
    Test(&'static str),
    /// The simulation of whole clusters, one seed at a time.
    Simulation,
}

const NO_CHANCE: &[u64] = &[1];
const SEEDS: &[u64] = &[1, 2, 3];
/// A seed has some of the faults only, and not every bug shows under every fault.
const CLUSTER_SEEDS: &[u64] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
];

/// All of them, in the order in which they are tried.
pub(super) const LAYERS: &[Layer] = &[
    Layer {
        name: "scenarios",
        package: "ringfence-core",
        target: Target::Test("scenarios"),
        filter: "",
        homes: &["core"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "model",
        package: "ringfence-core",
        target: Target::Test("model"),
        filter: "",
        homes: &["core"],
        seeds: SEEDS,
        quick: true,
    },
    Layer {
        name: "objects",
        package: "ringfence-core",
        target: Target::Test("objects"),
        filter: "",
        homes: &["core"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "objects of sessions",
        package: "ringfence-core",
        target: Target::Test("objects_native"),
        filter: "",
        homes: &["core"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "objects at random",
        package: "ringfence-core",
        target: Target::Test("objects_random"),
        filter: "",
        homes: &["core"],
        seeds: SEEDS,
        quick: true,
    },
    Layer {
        name: "backups",
        package: "ringfence-core",
        target: Target::Test("backup_believers"),
        filter: "",
        homes: &["core"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "formats",
        package: "ringfence-proto",
        target: Target::Test("formats"),
        filter: "",
        homes: &["proto"],
        seeds: SEEDS,
        quick: true,
    },
    Layer {
        name: "crashes",
        package: "ringfence-wal",
        target: Target::Test("crashes"),
        filter: "",
        homes: &["wal"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "refusals",
        package: "ringfence-wal",
        target: Target::Test("refusals"),
        filter: "",
        homes: &["wal"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "purged files",
        package: "ringfence-wal",
        target: Target::Test("purged_files"),
        filter: "",
        homes: &["wal"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "fences",
        package: "ringfence-guard",
        target: Target::Library,
        filter: "",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "memory",
        package: "ringfence-guard",
        target: Target::Test("suite"),
        filter: "memory",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "sqlite",
        package: "ringfence-guard",
        target: Target::Test("suite"),
        filter: "sqlite",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "door",
        package: "ringfence-guard",
        target: Target::Test("layers"),
        filter: "",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "follower",
        package: "ringfence-guard",
        target: Target::Test("follow"),
        filter: "",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "hostile",
        package: "ringfence-guard",
        target: Target::Test("hostile"),
        filter: "has_committed_nothing",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "mysql",
        package: "ringfence-guard",
        target: Target::Test("stores"),
        filter: "dropped_query",
        homes: &["guard"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "kubernetes",
        package: "ringfence-kube",
        target: Target::Library,
        filter: "",
        homes: &["kube"],
        seeds: NO_CHANCE,
        quick: false,
    },
    Layer {
        name: "driver",
        package: "ringfence-raft",
        target: Target::Library,
        filter: "",
        homes: &["raft"],
        seeds: NO_CHANCE,
        quick: false,
    },
    Layer {
        name: "nodes",
        package: "ringfence-raft",
        target: Target::Test("cluster"),
        filter: "",
        homes: &["raft"],
        seeds: NO_CHANCE,
        quick: false,
    },
    Layer {
        name: "belief",
        package: "ringfence-client",
        target: Target::Library,
        filter: "",
        homes: &["client"],
        seeds: SEEDS,
        quick: false,
    },
    Layer {
        name: "client",
        package: "ringfence-client",
        target: Target::Test("it"),
        filter: "",
        homes: &["client"],
        seeds: NO_CHANCE,
        quick: false,
    },
    Layer {
        name: "outbox",
        package: "ringfence-services",
        target: Target::Library,
        filter: "outbox::tests",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "keep-alives",
        package: "ringfence-services",
        target: Target::Library,
        filter: "keep_alive::tests",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "unknown sessions",
        package: "ringfence-services",
        target: Target::Library,
        filter: "unknown::tests",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "frames",
        package: "ringfence-services",
        target: Target::Library,
        filter: "connection::",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "lists",
        package: "ringfence-services",
        target: Target::Library,
        filter: "list::tests",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "rights of calls",
        package: "ringfence-services",
        target: Target::Library,
        filter: "rpcs::",
        homes: &["services"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "remarks",
        package: "ringfence",
        target: Target::Binary,
        filter: "cli::stderr",
        homes: &["server"],
        seeds: NO_CHANCE,
        quick: true,
    },
    Layer {
        name: "simulation",
        package: "ringfence-sim",
        target: Target::Simulation,
        filter: "",
        homes: &[
            "core", "proto", "wal", "guard", "raft", "client", "services",
        ],
        seeds: CLUSTER_SEEDS,
        quick: false,
    },
];
