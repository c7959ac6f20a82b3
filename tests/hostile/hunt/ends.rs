//! What is asserted when a hunt is over.

use ringfence_check::blackbox::{self, Caps};
use ringfence_check::{Recording, Report, Verdict};
use ringfence_tests::{Cluster, Signal};

use super::bandit::Bandit;
use super::figures::Figures;
use super::log::Dump;
use crate::measure::{NODE_MEMORY_MAX, PATIENCE};

/// The log of a cluster whose clients are done, of all of whose nodes the leader knows the most.
pub(super) async fn at_rest(cluster: &mut Cluster) -> Dump {
    let leader = cluster.wait_for_leader(PATIENCE).await;
    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Terminate);
    }
    for at in 0..cluster.len() {
        let ended = cluster.wait_exit(at, PATIENCE).await;
        assert_eq!(ended, Some(0), "n{}: {}", at + 1, cluster.log(at));
    }
    Dump::of(cluster, leader)
}

impl Dump {
    /// Replays the log, and holds the history of the honest against it and against itself; the entries.
    pub(super) fn replay_all(
        &self,
        bandits: &[Bandit],
        recording: &Recording,
        figures: &Figures,
    ) -> u64 {
        let entries = self.replay(bandits, figures);
        for (by, report) in [
            (
                "what clients saw",
                blackbox::check(recording, Caps::default()),
            ),
            ("the log", self.witnessed(recording)),
        ] {
            judge(by, &report, figures);
        }
        entries
    }
}

fn judge(by: &str, report: &Report, figures: &Figures) {
    println!("by {by}: {}\n{report}", report.verdict());
    if report.verdict() != Verdict::Valid {
        figures.found(&format!("by {by}: {}\n{report}", report.verdict()));
    }
}

/// No node has panicked or taken too much.
pub(super) fn nodes_are_well(cluster: &Cluster, peaks: [u64; 3], figures: &Figures) {
    for (at, peak) in peaks.into_iter().enumerate() {
        if peak > NODE_MEMORY_MAX {
            figures.found(&format!("n{} took {} MiB", at + 1, peak >> 20));
        }
        let log = cluster.log(at);
        // openraft calls it an error that a node stops while it is asked.
        let bad = |line: &&str| line.contains("panicked") || line.contains(" ERROR ringfence");
        for line in log.lines().filter(bad).take(3) {
            figures.found(&format!("n{} has logged: {line}", at + 1));
        }
    }
}
