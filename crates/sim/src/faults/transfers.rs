//! M3, M6, M8: nodes that can only be caught up by a snapshot, and snapshots that do not arrive.

use std::path::Path;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Fault, Stage, Who};
use crate::node::{Crash, SNAPSHOT_DIR, SimNode};

/// How long entries are written until a node is left behind. The longest log that a plan has takes
/// some seconds.
const FILLS_WITHIN: Duration = Duration::from_secs(5);
/// Between two entries that are written for no other reason.
const BETWEEN_WRITES: Duration = Duration::from_millis(1);
/// How often it is looked whether a snapshot has begun to arrive: a part of one takes longer.
const LOOK: Duration = Duration::from_micros(500);
/// How long a broken link stays so: both ends have noticed it by then.
const BROKEN_FOR: Duration = Duration::from_secs(5);

impl Stage {
    pub(super) async fn transfers(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::LeftBehind(who) => self.crash(&self.node(who), Crash::Kill, lasts).await,
            Fault::CancelledTransfer { who, kill } => self.cancel_transfer(who, kill, lasts).await,
            Fault::Laggard { during } => self.lag(*during, lasts).await,
            _ => {}
        }
    }

    /// Writes entries until the log that a node lacks is gone from the leader's disk; false if it did
    /// not come to that.
    pub(super) async fn fill_log_until_behind(&self, node: &SimNode) -> bool {
        let behind = timeout(FILLS_WITHIN, async {
            while !self.is_left_behind(node) {
                self.write_entry().await;
            }
        });
        behind.await.is_ok()
    }

    /// Has the leader write an entry that changes nothing.
    pub(super) async fn write_entry(&self) {
        let leader = self.node(Who::Leader).index();
        self.operator.write(leader).await;
        sleep(BETWEEN_WRITES).await;
    }

    fn is_left_behind(&self, node: &SimNode) -> bool {
        let figures = |node: &SimNode| {
            let handle = node.handle()?;
            Some(node.machine().visit(|| handle.metrics()))
        };
        let leader = self.node(Who::Leader);
        let purged = figures(&leader).map_or(0, |figures| figures.purged_index);
        leader.index() != node.index()
            && figures(node).is_some_and(|figures| figures.last_log_index < purged)
    }

    /// A follower, as near to what is meant as there is one.
    fn follower(&self, who: Who) -> (SimNode, Who) {
        let who = match who {
            Who::Leader => Who::Behind(1),
            behind => behind,
        };
        (self.node(who), who)
    }

    async fn cancel_transfer(&self, who: Who, kill: bool, lasts: Duration) {
        let until = self.world.now() + lasts;
        let (node, who) = self.follower(who);
        let links = self.links(&Fault::Isolate(who));
        self.cut(&links);
        let is_behind = self.fill_log_until_behind(&node).await;
        self.mend(&links);
        while is_behind && self.world.now() < until {
            if !is_receiving(&node) {
                sleep(LOOK).await;
                continue;
            }
            self.took("M6");
            if kill {
                let leader = self.node(Who::Leader);
                self.crash(&leader, Crash::Kill, lasts / 4).await;
            } else {
                self.cut(&links);
                sleep(BROKEN_FOR).await;
                self.mend(&links);
            }
            return;
        }
    }

    /// Another fault happens, and in its middle a follower comes back that needs a snapshot.
    async fn lag(&self, during: Fault, lasts: Duration) {
        // Most faults are about the leader, or about who is named in them.
        let (node, who) = self.follower(Who::Behind(2));
        let links = self.links(&Fault::Isolate(who));
        self.cut(&links);
        if self.fill_log_until_behind(&node).await {
            self.took("M8");
        }
        tokio::join!(self.make_beside(during, lasts), async {
            sleep(lasts / 3).await;
            self.mend(&links);
        });
    }
}

/// Whether a snapshot is on its way to a node.
fn is_receiving(node: &SimNode) -> bool {
    let paths = node.machine().disk().files().paths();
    paths.iter().any(|path| {
        path.parent() == Some(Path::new(SNAPSHOT_DIR))
            && path.extension().is_some_and(|its| its == "partial")
            && !path.ends_with("building.partial")
    })
}
