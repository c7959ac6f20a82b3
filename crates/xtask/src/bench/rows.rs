//! What is measured, and beside what.

/// A comparison.
#[derive(Debug)]
pub(super) struct Row {
    /// For `--row` and for programs.
    pub(super) name: &'static str,
    /// What both do, for people.
    pub(super) work: &'static str,
    /// The words behind `ringfence bench`.
    pub(super) ours: &'static [&'static str],
    /// The same for etcd.
    pub(super) theirs: &'static [&'static str],
    pub(super) figure: Figure,
}

/// Which figure of a measurement is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// How much was done in a second: more is better.
    Rate,
    /// The median duration of this series: less is better.
    Median(&'static str),
}

/// All comparisons. What etcd does is what its own recipes do, without a lock's watch.
pub(super) const ROWS: [Row; 6] = [
    Row {
        name: "acquire-1",
        work: "acquire in an open session, 1 caller: p50",
        ours: &["cycle", "--clients", "1"],
        theirs: &["cycle", "--clients", "1"],
        figure: Figure::Median("acquire"),
    },
    Row {
        name: "cycle-64",
        work: "acquire and release, 64 callers, one call each",
        ours: &["cycle", "--clients", "64"],
        theirs: &["cycle", "--clients", "64"],
        figure: Figure::Rate,
    },
    Row {
        name: "lock-256",
        work: "the same, 256 callers, through the client crate",
        ours: &["lock", "--clients", "256"],
        theirs: &["cycle", "--clients", "256"],
        figure: Figure::Rate,
    },
    Row {
        name: "full-64",
        work: "open and acquire, then release and close, 64 callers",
        ours: &["full", "--clients", "64"],
        theirs: &["full", "--clients", "64"],
        figure: Figure::Rate,
    },
    Row {
        name: "check-64",
        work: "linearizable check of a token, 64 callers, beside a linearizable read",
        ours: &["check", "--clients", "64"],
        theirs: &["check", "--clients", "64"],
        figure: Figure::Rate,
    },
    Row {
        name: "keepalive-256",
        work: "keep-alives of 64 sessions on each of 256 streams",
        ours: &["keepalive", "--clients", "256", "--sessions", "64"],
        theirs: &["keepalive", "--clients", "256", "--sessions", "64"],
        figure: Figure::Rate,
    },
];
