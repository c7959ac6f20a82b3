//! R3 and R4: the cluster is lost as a whole, or its majority is, and it goes on from a backup.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_core::Frozen;
use ringfence_raft::{Backup, Restore, recovered_state, write_backup};
use tokio::time::sleep;

use super::{Stage, Who};
use crate::node::{Crash, DATA_DIR, SimNode};
use crate::observe::Observation;

/// How often it is looked whether the restored cluster has granted.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Stage {
    /// Takes a backup, goes on for `age`, then loses all disks. The first members are started on empty
    /// ones after `lasts`, to restore the backup. Clients live on, and believe for as long as they may.
    ///
    /// It came about once the restored cluster has granted a lease.
    pub(super) async fn restore(&self, age: Duration, lasts: Duration) {
        // Nothing is lost before there is a backup.
        let Some(backup) = self.backup().await else {
            return;
        };
        sleep(age).await;
        self.power_off();
        self.restore_all(&backup, lasts).await;
        self.see_a_grant("R3").await;
    }

    /// All disks but one are lost. The one that is left is recovered, and its node's name comes back as a
    /// first member of the restored cluster, on an empty disk like the others.
    ///
    /// It came about once the restored cluster has granted a lease.
    pub(super) async fn recover(&self, who: Who, lasts: Duration) {
        let survivor = self.node(who);
        let Some(node) = survivor.handle() else {
            return;
        };
        let Some(cluster) = survivor.machine().visit(|| node.status()).cluster else {
            return;
        };
        drop(node);
        self.power_off();
        let files = Arc::new(survivor.machine().disk().files().of_process());
        let state = match recovered_state(files, Path::new(DATA_DIR), cluster) {
            Ok(state) => state,
            Err(why) => {
                // It lagged so far that nothing can go on from it. All nodes start as they were.
                self.world.trace(format_args!("not recovered: {why}"));
                for node in self.nodes() {
                    self.start_again(&node).await;
                }
                return;
            }
        };
        let Some(backup) = read_back(&state) else {
            return;
        };
        self.restore_all(&backup, lasts).await;
        self.see_a_grant("R4").await;
    }

    fn power_off(&self) {
        for node in self.world.nodes() {
            node.crash(Crash::Power);
        }
    }

    async fn restore_all(&self, backup: &Arc<Backup>, lasts: Duration) {
        let mut first = self.world.nodes();
        first.retain(SimNode::is_first);
        self.recorder.see(Observation::Restored);
        self.retire_all_but(&first);
        for node in &first {
            node.wipe();
            node.is_to_restore(Restore {
                backup: backup.clone(),
                rules: None,
                mode: None,
                drill: false,
            });
        }
        sleep(lasts).await;
        for node in &first {
            self.start_again(node).await;
        }
    }

    /// Everything that is acknowledged now, as the leader's state has it.
    async fn backup(&self) -> Option<Arc<Backup>> {
        let leader = self.node(Who::Leader);
        let node = leader.handle()?;
        let asking = async move { node.backup().await };
        let state = leader.machine().spawn(asking).await.ok()?.ok()?;
        read_back(&state)
    }

    /// Waits until the restored cluster has granted a token, if it ever does.
    async fn see_a_grant(&self, row: &'static str) {
        let mut at_first = None;
        loop {
            sleep(LOOK_EVERY).await;
            let leader = self.node(Who::Leader);
            let Some(node) = leader.handle() else {
                continue;
            };
            let last = leader.machine().visit(|| {
                node.read(|machine| machine.is_formed().then(|| machine.summary().last_token))
            });
            let Some(last) = last else { continue };
            if last > *at_first.get_or_insert(last) {
                return self.took(row);
            }
        }
    }
}

/// The backup of a state, as a file would hold it; `None` if its cluster is still being restored.
fn read_back(state: &Frozen) -> Option<Arc<Backup>> {
    let mut bytes = Vec::new();
    write_backup(state, &mut bytes).ok()?;
    let backup = Backup::read_from(Path::new("cluster.backup"), bytes.as_slice());
    Some(Arc::new(backup.expect("what was written is read")))
}
