//! N1 to N10: the network.

use std::time::Duration;

use tokio::time::sleep;

use super::{Fault, Stage, Who};
use crate::machine::MachineId;
use crate::net::Weather;

/// Directed links.
pub(super) type Links = Vec<(MachineId, MachineId)>;

impl Stage {
    pub(super) async fn network(&self, fault: Fault, lasts: Duration) {
        match fault {
            Fault::Flap { who, period } => self.flap(who, period, lasts).await,
            Fault::BadWeather { .. } => self.bad_weather(&fault, lasts).await,
            Fault::Resets { every } => self.resets(every, lasts).await,
            other => {
                let links = self.links(&other);
                self.cut(&links);
                sleep(lasts).await;
                self.mend(&links);
            }
        }
    }

    pub(super) fn cut(&self, links: &Links) {
        let net = self.world.net();
        links.iter().for_each(|(from, to)| net.cut(*from, *to));
    }

    pub(super) fn mend(&self, links: &Links) {
        let net = self.world.net();
        links.iter().for_each(|(from, to)| net.heal(*from, *to));
    }

    /// The links that a cut of this kind cuts.
    pub(super) fn links(&self, fault: &Fault) -> Links {
        let nodes = self.machines();
        let of = |who: Who| self.node(who).machine().id();
        let all: Vec<MachineId> = self.world.machines().iter().map(|one| one.id()).collect();
        match *fault {
            Fault::Split { from } => {
                let minority = minority_from(&nodes, of(from));
                between(&nodes, |one, other| minority(one) != minority(other))
            }
            Fault::Isolate(who) => {
                let who = of(who);
                between(&nodes, |one, other| {
                    nodes[one] == who || nodes[other] == who
                })
            }
            Fault::Deaf(who) => {
                let who = of(who);
                between(&nodes, |_, to| nodes[to] == who)
            }
            Fault::Mute(who) => {
                let who = of(who);
                between(&nodes, |from, _| nodes[from] == who)
            }
            Fault::Bridge { hub } => {
                let hub = of(hub);
                let half = |at: usize| at.is_multiple_of(2);
                let apart = |one: usize, other: usize| {
                    half(one) != half(other) && nodes[one] != hub && nodes[other] != hub
                };
                between(&nodes, apart)
            }
            Fault::Ring => {
                let count = nodes.len();
                let near = count / 4 + 1;
                between(&nodes, |one, other| {
                    let apart = (one + count - other) % count;
                    apart.min(count - apart) > near || (count == 3 && one + other == 1)
                })
            }
            // Nothing gets through, and no end is notified: what is open stays open.
            Fault::HalfOpen(who) => {
                let who = of(who);
                let to = all.iter().filter(|one| **one != who);
                to.flat_map(|one| [(who, *one), (*one, who)]).collect()
            }
            Fault::CutClient { client } => {
                let client = self.client(client).machine().id();
                nodes
                    .iter()
                    .flat_map(|node| [(client, *node), (*node, client)])
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    async fn flap(&self, who: Who, period: Duration, lasts: Duration) {
        let links = self.links(&Fault::Isolate(who));
        let until = self.world.now() + lasts;
        while self.world.now() < until {
            self.cut(&links);
            sleep(period).await;
            self.mend(&links);
            sleep(period).await;
        }
    }

    async fn bad_weather(&self, fault: &Fault, lasts: Duration) {
        let Fault::BadWeather {
            delay,
            jitter,
            loss_per_mille,
            double_per_mille,
        } = *fault
        else {
            return;
        };
        let net = self.world.net();
        net.set_default_weather(Weather {
            delay: delay..delay + jitter,
            lost_per_mille: loss_per_mille.into(),
            doubled_per_mille: double_per_mille.into(),
        });
        sleep(lasts).await;
        net.set_default_weather(Weather::default());
    }

    async fn resets(&self, every: Duration, lasts: Duration) {
        let until = self.world.now() + lasts;
        while self.world.now() < until {
            for client in self.clients.iter() {
                client.reset();
            }
            sleep(every).await;
        }
    }
}

/// Whether a place among these machines is in the minority that begins with `first`. Numbers of
/// machines and places differ as soon as a node has been retired.
fn minority_from(machines: &[MachineId], first: MachineId) -> impl Fn(usize) -> bool {
    let count = machines.len();
    let first = machines.iter().position(|one| *one == first);
    let first = first.unwrap_or_default();
    // Two nodes have no minority; then one is split from the other.
    let size = (count.saturating_sub(1) / 2).max(1);
    move |at| (at + count - first) % count < size
}

/// The links among these machines that `cuts` says.
fn between(machines: &[MachineId], cuts: impl Fn(usize, usize) -> bool) -> Links {
    let mut links = Links::new();
    for (from, one) in machines.iter().enumerate() {
        for (to, other) in machines.iter().enumerate() {
            if from != to && cuts(from, to) {
                links.push((*one, *other));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_is_found_also_when_nodes_have_been_retired() {
        // n0 and n2 are gone, n5 and n6 have come.
        let machines = [1, 3, 4, 5, 6].map(MachineId);
        let minority = minority_from(&machines, MachineId(6));
        let in_it: Vec<bool> = (0..machines.len()).map(minority).collect();
        assert_eq!(in_it, [true, false, false, false, true]);
    }
}
