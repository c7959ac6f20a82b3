//! C1 to C3: clocks that jump, run at other rates, and machines that are suspended.

use std::time::Duration;

use tokio::time::sleep;

use super::process::pause;
use super::{Fault, Stage};

impl Stage {
    pub(super) async fn clocks(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::WallJump { who, millis } => {
                let node = self.node(who);
                node.machine().step_wall_clock(millis);
                sleep(lasts).await;
                node.machine().step_wall_clock(-millis);
            }
            Fault::NodeRate { who, ppm } => {
                let node = self.node(who);
                node.machine().set_clock_rate(ppm.into());
                sleep(lasts).await;
                node.machine().set_clock_rate(0);
            }
            Fault::ClientRate { client, ppm } => {
                let client = self.client(client);
                client.set_clock_rate(ppm.into());
                sleep(lasts).await;
                client.set_clock_rate(0);
            }
            // The engine's boot clocks run on; what stands still is everything else.
            Fault::Suspend(who) => pause(&self.node(who), lasts).await,
            Fault::SuspendClient { client } => {
                let client = self.client(client);
                client.pause(true);
                sleep(2 * lasts).await;
                client.resume();
            }
            _ => {}
        }
    }
}
