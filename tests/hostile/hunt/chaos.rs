//! What happens to the nodes meanwhile: they are killed, stopped, restarted, one, or all of them, and the
//! leader moves.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{StatusRequest, TransferLeaderRequest};
use ringfence_tests::{Cluster, Journal, Signal};
use tokio::time::{sleep, timeout};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use super::figures::Figures;
use crate::measure::memory;

/// How often it is looked whether each node runs, and what it takes.
const LOOK: Duration = Duration::from_millis(200);
/// How long a leader may take to answer that it hands leadership over.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a node may take to catch up when it was started again: an election, a few seconds of a node
/// that its peers waited for, and a busy machine.
const BACK_MAX: Duration = Duration::from_secs(60);

/// Makes faults, one at a time, and looks at the nodes between them.
pub(super) struct Chaos<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) random: StdRng,
    pub(super) figures: &'a Figures,
    /// The credential of an operator.
    pub(super) operator: MetadataValue<Ascii>,
    /// The most that each node took, in bytes.
    pub(super) peaks: [u64; 3],
    /// Which nodes are not stopped, and were not killed.
    up: [bool; 3],
}

impl<'a> Chaos<'a> {
    /// Nothing has happened yet.
    pub(super) fn new(
        cluster: &'a mut Cluster,
        random: StdRng,
        figures: &'a Figures,
        operator: &str,
    ) -> Self {
        Self {
            cluster,
            random,
            figures,
            operator: format!("Bearer {operator}").parse().unwrap(),
            peaks: [0; 3],
            up: [true; 3],
        }
    }

    /// Makes faults until this time; at the end all nodes run.
    pub(super) async fn disturb(&mut self, until: Duration) {
        while Journal::now() < until {
            let pause = self.random.random_range(1_500..5_000);
            self.look_for(Duration::from_millis(pause)).await;
            self.fault().await;
            self.until_all_are_back().await;
        }
        self.look_for(Duration::from_secs(1)).await;
    }

    async fn fault(&mut self) {
        let leader = self.cluster.leader().await;
        let any = self.random.random_range(0..3);
        let follower = leader.map_or(any, |leader| (leader + 1 + any % 2) % 3);
        match self.random.random_range(0..18) {
            0..=2 => self.kill(&[leader.unwrap_or(any)], "leader killed").await,
            3..=4 => self.kill(&[follower], "follower killed").await,
            5..=6 => self.stop(&[leader.unwrap_or(any)], "leader stopped").await,
            7..=8 => self.stop(&[follower], "follower stopped").await,
            9..=12 => self.hand_over(leader).await,
            13 => self.kill(&[0, 1, 2], "all killed").await,
            14 => self.stop(&[0, 1, 2], "all stopped").await,
            _ => self.restart(any).await,
        }
    }

    /// SIGKILL, and a start on the same directory.
    async fn kill(&mut self, nodes: &[usize], fault: &str) {
        for &at in nodes {
            self.up[at] = false;
            self.cluster.signal(at, Signal::Kill);
        }
        self.figures.count("faults", fault);
        let pause = self.random.random_range(200..3_000);
        self.look_for(Duration::from_millis(pause)).await;
        for &at in nodes {
            self.cluster.spawn(at);
            self.up[at] = true;
        }
    }

    /// SIGSTOP, and SIGCONT a few seconds later.
    async fn stop(&mut self, nodes: &[usize], fault: &str) {
        for &at in nodes {
            self.cluster.signal(at, Signal::Stop);
        }
        self.figures.count("faults", fault);
        let pause = self.random.random_range(500..6_000);
        self.look_for(Duration::from_millis(pause)).await;
        for &at in nodes {
            self.cluster.signal(at, Signal::Continue);
        }
    }

    /// SIGTERM, and a start on the same directory.
    async fn restart(&mut self, at: usize) {
        self.up[at] = false;
        self.cluster.signal(at, Signal::Terminate);
        self.figures.count("faults", "node restarted");
        match self.cluster.wait_exit(at, Duration::from_secs(20)).await {
            Some(0) => {}
            other => self
                .figures
                .found(&format!("n{} was stopped, and {other:?}", at + 1)),
        }
        if self.cluster.pid(at).is_none() {
            self.cluster.spawn(at);
        }
        self.up[at] = true;
    }

    async fn hand_over(&mut self, leader: Option<usize>) {
        let Some(leader) = leader else { return };
        let to = (leader + 1 + self.random.random_range(0..2)) % 3;
        let channel = self.cluster.caller().channel(leader);
        let mut request = Request::new(TransferLeaderRequest {
            node_id: to as u64 + 1,
        });
        let metadata = request.metadata_mut();
        metadata.insert("authorization", self.operator.clone());
        let moved = timeout(
            PATIENCE,
            ClusterClient::new(channel).transfer_leader(request),
        )
        .await;
        let moved = moved.is_ok_and(|moved| moved.is_ok());
        let fault = if moved {
            "leader moved"
        } else {
            "leader not moved"
        };
        self.figures.count("faults", fault);
    }

    /// Waits until each node has applied what one of them has now: it is let in by the others, and by
    /// strangers at their ports it is not kept out.
    async fn until_all_are_back(&mut self) {
        let (begun, mut newest) = (Journal::now(), None);
        loop {
            let mut applied = Vec::new();
            for at in 0..3 {
                applied.push(self.applied(at).await);
            }
            // None is ahead of the cluster, and at the beginning some may not answer.
            let known = applied.iter().flatten().max().copied();
            newest = newest.or(known);
            if newest.is_some() && applied.iter().all(|applied| *applied >= newest) {
                let slow = Journal::now() - begun > Duration::from_secs(10);
                let came = if slow { "back late" } else { "back" };
                return self.figures.count("nodes after a fault", came);
            }
            if Journal::now() - begun > BACK_MAX {
                let found = format!("not all nodes are back in {BACK_MAX:?}: {applied:?}");
                return self.figures.found(&found);
            }
            self.look_for(LOOK).await;
        }
    }

    async fn applied(&self, at: usize) -> Option<u64> {
        let mut client = ClusterClient::new(self.cluster.caller().channel(at));
        let status = timeout(PATIENCE, client.status(StatusRequest {})).await;
        Some(status.ok()?.ok()?.into_inner().applied_index)
    }

    /// Lets time pass. A node that ends without a signal is a finding.
    pub(super) async fn look_for(&mut self, time: Duration) {
        let until = Journal::now() + time;
        loop {
            for at in 0..3 {
                if !self.up[at] {
                    continue;
                }
                if let Some(code) = self.cluster.wait_exit(at, Duration::ZERO).await {
                    let log = self.cluster.log(at);
                    let lines: Vec<&str> = log.lines().rev().take(5).collect();
                    let found = format!("n{} has ended with {code}: {lines:?}", at + 1);
                    self.figures.found(&found);
                    self.cluster.spawn(at);
                }
                if let Some(pid) = self.cluster.pid(at) {
                    self.peaks[at] = self.peaks[at].max(memory(pid));
                }
            }
            let left = until.saturating_sub(Journal::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(LOOK)).await;
        }
    }
}
