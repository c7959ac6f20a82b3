//! Faults that are made of packets.

use std::time::Duration;

use super::{Begun, Effect, Running, inserted, resolve};
use crate::cluster::node_name;
use crate::net::{Imposed, Link, Rule};
use crate::schedule::{Direction, Fault, Shape, Victim};
use crate::stage::Stage;

const NO_SWITCH: &str = "there is no switch on this machine";

/// Rules that the switch follows until the fault ends.
struct Packets(Imposed);

impl Running for Packets {
    fn heal(&mut self, stage: &mut Stage) -> Option<Effect> {
        let fabric = stage.fabric.as_ref()?;
        let counters = fabric.lift(self.0);
        let note = match (counters.had_effect(), counters.seen) {
            (true, _) => String::new(),
            (false, 0) => "no packet went this way".to_owned(),
            (false, _) => "every packet passed as without it".to_owned(),
        };
        Some(Effect {
            took_effect: counters.had_effect(),
            counters: counters.named(),
            note,
        })
    }
}

fn impose(
    stage: &Stage,
    links: Vec<(Link, Rule)>,
    what: String,
    nodes: Vec<usize>,
    clients: Vec<u32>,
) -> Result<Begun, String> {
    let fabric = stage.fabric.as_ref().ok_or(NO_SWITCH)?;
    Ok(Begun {
        running: Box::new(Packets(fabric.impose(links))),
        what,
        nodes,
        clients,
    })
}

/// Both directions between each of these and each of those.
fn cut_between(these: &[usize], those: &[usize]) -> Vec<(Link, Rule)> {
    let mut links = Vec::new();
    for (one, other) in these
        .iter()
        .flat_map(|one| those.iter().map(move |other| (*one, *other)))
    {
        if one != other {
            links.push(((one, other), Rule::CUT));
            links.push(((other, one), Rule::CUT));
        }
    }
    links
}

fn names(places: &[usize]) -> String {
    let names: Vec<String> = places.iter().map(|place| node_name(*place)).collect();
    names.join(", ")
}

/// The pairs of nodes that a partition of this shape separates.
fn separated(shape: Shape, order: &[usize]) -> Vec<(usize, usize)> {
    let (few, rest) = sides(order);
    let across = |these: &[usize], those: &[usize]| -> Vec<(usize, usize)> {
        let pairs = these.iter();
        let pairs = pairs.flat_map(|one| those.iter().map(move |other| (*one, *other)));
        pairs.collect()
    };
    match shape {
        Shape::Sides => across(few, rest),
        Shape::Bridge => across(few, &rest[..rest.len() - 1]),
        Shape::Ring => {
            // A node and its neighbours within this distance are a majority.
            let reach = (order.len() / 2).div_ceil(2);
            let mut pairs = Vec::new();
            for (here, one) in order.iter().enumerate() {
                for (there, other) in order.iter().enumerate().skip(here + 1) {
                    let apart = (there - here).min(order.len() - (there - here));
                    if apart > reach {
                        pairs.push((*one, *other));
                    }
                }
            }
            pairs
        }
    }
}

/// The largest minority, and all others.
fn sides(order: &[usize]) -> (&[usize], &[usize]) {
    order.split_at(((order.len() - 1) / 2).max(1))
}

pub(super) fn partition(
    stage: &Stage,
    shape: Shape,
    order: &[usize],
    clients_too: bool,
) -> Result<Begun, String> {
    let (few, rest) = sides(order);
    let mut links = Vec::new();
    for (one, other) in separated(shape, order) {
        links.extend(cut_between(&[one], &[other]));
    }
    let what = match shape {
        Shape::Sides if clients_too => {
            for number in 1..=stage.plan.clients {
                let away = if number % 2 == 0 { rest } else { few };
                links.extend(cut_between(&[stage.client_port(number)], away));
            }
            format!(
                "{} cut off from {}; every other client is on the smaller side",
                names(few),
                names(rest)
            )
        }
        Shape::Sides => format!("{} cut off from {}", names(few), names(rest)),
        Shape::Bridge => {
            let (many, hub) = rest.split_at(rest.len() - 1);
            format!(
                "{} and {} reach each other through {} only",
                names(few),
                names(many),
                names(hub)
            )
        }
        Shape::Ring => format!(
            "each of the ring {} reaches its neighbours only",
            names(order)
        ),
    };
    impose(stage, links, what, order.to_vec(), Vec::new())
}

/// The ports of every party that a node may lose touch with.
fn others(stage: &Stage, place: usize, clients_too: bool) -> Vec<usize> {
    let nodes = (0..stage.plan.nodes as usize).filter(|other| *other != place);
    let clients = (1..=stage.plan.clients).map(|number| stage.client_port(number));
    let clients = clients.filter(|_| clients_too);
    nodes.chain(clients).collect()
}

fn directed(port: usize, others: &[usize], direction: Direction) -> Vec<(Link, Rule)> {
    let mut links = Vec::new();
    for other in others {
        if direction != Direction::In {
            links.push(((port, *other), Rule::CUT));
        }
        if direction != Direction::Out {
            links.push(((*other, port), Rule::CUT));
        }
    }
    links
}

fn whom(clients_too: bool) -> &'static str {
    if clients_too {
        "the other nodes and all clients"
    } else {
        "the other nodes"
    }
}

pub(super) fn oneway(
    stage: &Stage,
    victim: Victim,
    direction: Direction,
    clients_too: bool,
) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let links = directed(place, &others(stage, place, clients_too), direction);
    let whom = whom(clients_too);
    let what = match direction {
        Direction::Out => format!("what {} sends to {whom} is lost", inserted(stage, place)),
        Direction::In | Direction::Both => {
            format!("what {whom} send to {} is lost", inserted(stage, place))
        }
    };
    impose(stage, links, what, vec![place], Vec::new())
}

pub(super) fn isolate(stage: &Stage, victim: Victim, clients_too: bool) -> Result<Begun, String> {
    let place = resolve(stage, victim)?;
    let links = cut_between(&[place], &others(stage, place, clients_too));
    let who = inserted(stage, place);
    let what = format!("{who} is cut off from {}", whom(clients_too));
    impose(stage, links, what, vec![place], Vec::new())
}

pub(super) fn cut_client(
    stage: &Stage,
    number: u32,
    direction: Direction,
) -> Result<Begun, String> {
    let nodes: Vec<usize> = (0..=stage.plan.nodes as usize).collect();
    let links = directed(stage.client_port(number), &nodes, direction);
    let what = match direction {
        Direction::Out => format!("what c{number} sends is lost"),
        Direction::In => format!("what is sent to c{number} is lost"),
        Direction::Both => format!("c{number} is cut off from all nodes"),
    };
    impose(stage, links, what, Vec::new(), vec![number])
}

pub(super) fn slow(stage: &Stage, victim: Option<Victim>, fault: &Fault) -> Result<Begun, String> {
    let Fault::Slow {
        delay_ms,
        jitter_ms,
        loss_percent,
        duplicate_percent,
        reorder_percent,
        bytes_per_second,
        ..
    } = fault
    else {
        return Err("it is no fault of this kind".to_owned());
    };
    let share = |percent: u32| f64::from(percent.min(100)) / 100.0;
    let rule = Rule {
        cut: false,
        loss: share(*loss_percent),
        duplicate: share(*duplicate_percent),
        reorder: share(*reorder_percent),
        delay: Duration::from_millis(u64::from(*delay_ms)),
        jitter: Duration::from_millis(u64::from(*jitter_ms)),
        bytes_per_second: *bytes_per_second,
    };
    let nodes: Vec<usize> = (0..stage.plan.nodes as usize).collect();
    let slowed = match victim {
        Some(victim) => vec![resolve(stage, victim)?],
        None => nodes.clone(),
    };
    let mut links = std::collections::BTreeMap::new();
    for place in &slowed {
        for other in others(stage, *place, true) {
            links.insert((*place, other), rule);
            links.insert((other, *place), rule);
        }
    }
    let whose = match victim {
        Some(_) => format!("of {}", inserted(stage, slowed[0])),
        None => "of every node".to_owned(),
    };
    let mut traits = vec![format!("{delay_ms} to {} ms late", delay_ms + jitter_ms)];
    for (percent, fate) in [
        (loss_percent, "lost"),
        (duplicate_percent, "doubled"),
        (reorder_percent, "out of order"),
    ] {
        if *percent > 0 {
            traits.push(format!("{percent} % {fate}"));
        }
    }
    if let Some(rate) = bytes_per_second {
        traits.push(format!("at most {rate} bytes a second"));
    }
    let what = format!("packets {whose} are {}", traits.join(", "));
    impose(stage, links.into_iter().collect(), what, slowed, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many nodes each node reaches, itself included.
    fn reached(shape: Shape, nodes: usize) -> Vec<usize> {
        let order: Vec<usize> = (0..nodes).rev().collect();
        let separated = separated(shape, &order);
        let mut reached = vec![nodes; nodes];
        for (one, other) in separated {
            reached[one] -= 1;
            reached[other] -= 1;
        }
        reached
    }

    #[test]
    fn a_majority_stays_connected_and_somebody_is_cut_off() {
        for nodes in 3..=9 {
            let majority = nodes / 2 + 1;
            let sides = reached(Shape::Sides, nodes);
            let whole = sides.iter().filter(|reached| **reached >= majority);
            assert!(whole.count() >= majority, "{sides:?}");
            assert!(sides.iter().any(|reached| *reached < majority), "{sides:?}");

            let bridge = reached(Shape::Bridge, nodes);
            let hubs = bridge.iter().filter(|reached| **reached == nodes);
            assert_eq!(hubs.count(), 1, "{bridge:?}");
        }
        for nodes in 5..=9 {
            let ring = reached(Shape::Ring, nodes);
            let fits = |reached: &usize| (nodes / 2 + 1..nodes).contains(reached);
            assert!(ring.iter().all(fits), "{nodes}: {ring:?}");
        }
    }
}
