//! D1 to D12: disks that fail, lose, tear, fill up, stall, hang, or come back as they were before.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use super::{Fault, Stage, Who};
use crate::node::{Crash, SNAPSHOT_DIR, SimNode};
use crate::observe::Observation;

/// How many bytes a disk has left when it is about to be full.
const ALMOST_FULL: u64 = 2_048;
/// How much longer a disk stalls than until its power is lost: no sync ends in that moment.
const HELD_UP: Duration = Duration::from_millis(10);
/// How old the copy is that all disks are set back to.
const COPY_AGE: Duration = Duration::from_secs(2);

impl Stage {
    pub(super) async fn disks(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::SyncFails(who) => {
                let node = self.node(who);
                let failing = node.index();
                self.recorder.see(Observation::DiskFails { node: failing });
                node.machine().disk().fail_next_sync();
                sleep(lasts).await;
                self.ended(&node).await;
            }
            Fault::PowerLoss(who) => self.crash(&self.node(who), Crash::Power, lasts).await,
            Fault::PowerLossAll { behind } => {
                for node in self.nodes() {
                    node.machine().disk().stall(behind + HELD_UP);
                }
                sleep(behind).await;
                self.crash_all(Crash::Power, lasts).await;
            }
            Fault::TornWrites(who) => self.crash(&self.node(who), Crash::Torn, lasts).await,
            Fault::DiskFull(who) => {
                let node = self.node(who);
                node.machine().disk().limit(Some(ALMOST_FULL));
                sleep(lasts).await;
                node.machine().disk().limit(None);
                self.ended(&node).await;
            }
            Fault::DiskStalls(who) => {
                let node = self.node(who);
                node.machine().disk().stall(lasts);
                sleep(lasts).await;
            }
            Fault::Wipe(_) | Fault::EmptiedLog(_) if !self.can_lose_a_disk() => {}
            Fault::Wipe(who) => {
                let node = self.node(who);
                node.wipe();
                sleep(lasts).await;
                self.start_again(&node).await;
            }
            Fault::CrashInRecovery(who) => {
                let node = self.node(who);
                node.crash(Crash::Torn);
                sleep(lasts).await;
                // The second crash comes while it reads what the first one has left.
                tokio::join!(self.start_again(&node), async {
                    sleep(Duration::from_micros(200)).await;
                    node.crash(Crash::Power);
                });
                self.start_again(&node).await;
            }
            Fault::EmptiedLog(who) => self.empty_log(who, lasts).await,
            Fault::LeaderDiskHangs => self.hang(lasts).await,
            Fault::NoRoomForSnapshots => self.no_room_for_snapshots(lasts).await,
            Fault::RollBackAll => self.roll_back_all(lasts).await,
            Fault::Restore { age } => self.restore(age, lasts).await,
            Fault::Recover(who) => self.recover(who, lasts).await,
            _ => {}
        }
    }

    /// A node that emptied the folder of the log learns so, and empties the rest of the disk, too.
    async fn empty_log(&self, who: Who, lasts: Duration) {
        let node = self.node(who);
        // Without a seat it has promised nothing.
        if self.id_of(&node).is_none() {
            return;
        }
        self.bereave(&node);
        let starts = node.start().await;
        match starts {
            Ok(()) => {
                let node = node.index();
                self.recorder.see(Observation::StartedWithoutLog { node });
            }
            Err(why) if why.contains("is missing or empty") => self.took("D10"),
            Err(_) => {}
        }
        sleep(lasts).await;
        self.wipe_the_bereft();
        self.start_again(&node).await;
    }

    async fn hang(&self, lasts: Duration) {
        let leader = self.node(Who::Leader);
        let node = leader.index();
        leader.machine().disk().stall(lasts);
        self.recorder.see(Observation::DiskHangs { node });
        sleep(lasts).await;
        if self.world.leader().is_some_and(|now| now != node) {
            self.took("D11");
        }
        self.recorder.see(Observation::DiskGoesOn { node });
    }

    /// Entries are written until one of the nodes has tried to take a snapshot.
    async fn no_room_for_snapshots(&self, lasts: Duration) {
        let until = self.world.now() + lasts;
        let folder = Path::new(SNAPSHOT_DIR);
        let nodes = self.nodes();
        let failed = || {
            let failed = nodes.iter().filter_map(|node| {
                let handle = node.handle()?;
                Some(node.machine().visit(|| handle.metrics()).snapshots_failed)
            });
            failed.sum::<u64>()
        };
        for node in &nodes {
            node.machine().disk().close(folder, true);
        }
        while self.world.now() < until && failed() == 0 {
            self.write_entry().await;
        }
        if failed() > 0 {
            self.took("D12");
        }
        sleep(until.saturating_sub(self.world.now())).await;
        for node in &nodes {
            node.machine().disk().close(folder, false);
        }
    }

    /// A node whose disk failed has ended on its own; one that has not is ended, so that nothing is
    /// left planted.
    async fn ended(&self, node: &SimNode) {
        if node.is_running() {
            node.crash(Crash::Kill);
        }
        self.start_again(node).await;
    }

    /// Everything is as it was, also who there is: a disk of a later time among older ones would
    /// hold entries of a log that the others have never seen.
    async fn roll_back_all(&self, lasts: Duration) {
        let copies: Vec<(SimNode, usize)> = self
            .nodes()
            .into_iter()
            .map(|node| {
                let copy = node.machine().disk().keep_copy();
                (node, copy)
            })
            .collect();
        sleep(COPY_AGE + lasts).await;
        self.recorder.see(Observation::RolledBack);
        let nodes: Vec<SimNode> = copies.iter().map(|(node, _)| node.clone()).collect();
        self.retire_all_but(&nodes);
        for (node, copy) in copies {
            node.roll_back(copy);
        }
        for node in &nodes {
            self.start_again(node).await;
        }
    }
}
