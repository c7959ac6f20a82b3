//! P1 to P4: processes that die, stand still, or starve.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Fault, Stage, Who};
use crate::node::{Crash, SimNode};
use crate::workload::session;

/// The slices in which a starving node runs, and those in which it does not.
const SLICES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(45));

impl Stage {
    pub(super) async fn process(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::Kill(who) => self.crash(&self.node(who), Crash::Kill, lasts).await,
            Fault::KillAll => self.crash_all(Crash::Kill, lasts).await,
            Fault::KillLoop { every } => {
                let until = self.world.now() + 2 * lasts;
                while self.world.now() < until {
                    let node = self.node(Who::Behind(1));
                    self.crash(&node, Crash::Kill, every / 4).await;
                    sleep(every).await;
                }
            }
            Fault::Pause(who) => pause(&self.node(who), lasts).await,
            Fault::Starve(who) => {
                let node = self.node(who);
                let until = self.world.now() + lasts;
                while self.world.now() < until {
                    pause(&node, SLICES.1).await;
                    sleep(SLICES.0).await;
                }
            }
            Fault::PauseClient { client } => {
                let client = self.client(client);
                client.pause(false);
                sleep(2 * lasts).await;
                client.resume();
            }
            Fault::KillClient { client } => {
                let client = self.client(client);
                client.kill();
                sleep(lasts).await;
                session::begin(client, &self.work);
            }
            _ => {}
        }
    }

    /// Kills all nodes at once, and starts them one by one.
    pub(super) async fn crash_all(&self, how: Crash, lasts: Duration) {
        for node in self.nodes() {
            node.crash(how);
        }
        sleep(lasts / 4).await;
        let mut starting = JoinSet::new();
        for node in self.nodes() {
            let stage = self.clone();
            starting.spawn(async move { stage.start_again(&node).await });
        }
        while starting.join_next().await.is_some() {}
    }
}

pub(super) async fn pause(node: &SimNode, lasts: Duration) {
    node.machine().pause();
    sleep(lasts).await;
    node.machine().resume();
}
