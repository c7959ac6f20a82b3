//! Faults and the roles of nodes: what was done to the cluster, and what it became.

use ringfence_check::history::Fault;

use super::data::{Data, FaultRow, RoleRow};
use super::frame::{Frame, client_name};
use super::gather::role_word;
use super::thin;
use super::timeline::Timeline;
use crate::record::FaultRecord;

/// Fills in the nodes, their roles, and the faults.
pub(super) fn settle(
    timeline: &mut Timeline,
    frame: &Frame,
    data: &mut Data,
    said: &mut Vec<String>,
) {
    for fault in &timeline.faults {
        for node in &fault.nodes {
            timeline.gather.nodes.number(node);
        }
    }
    let roles = roles(timeline, frame);
    data.roles = thin::evenly(roles, thin::FAULTS_MAX, "spans of roles", said);
    // In the order of their names, not in the order of their first sight.
    let names = timeline.gather.nodes.all();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|number| natural(&names[*number]));
    let mut place = vec![0; names.len()];
    for (nth, number) in order.iter().enumerate() {
        place[*number] = nth;
    }
    for role in &mut data.roles {
        role.0 = place[role.0];
    }
    data.nodes = order.iter().map(|number| names[*number].clone()).collect();

    let faults = if timeline.faults.is_empty() {
        let seen = &timeline.gather.faults;
        seen.iter().map(|it| of_history(it, frame, data)).collect()
    } else {
        let made = timeline.faults.iter();
        made.filter_map(|it| of_maker(it, frame, data)).collect()
    };
    data.faults = thin::evenly(faults, thin::FAULTS_MAX, "faults", said);
    data.faults.sort_by_key(|fault| fault.from);
}

/// Names with numbers in them in the order of the numbers: n2 before n10.
fn natural(name: &str) -> (String, u64, String) {
    let word: String = name.chars().take_while(|it| !it.is_ascii_digit()).collect();
    let digits: String = name.chars().skip_while(|it| !it.is_ascii_digit()).collect();
    (word, digits.parse().unwrap_or(0), name.to_owned())
}

fn roles(timeline: &Timeline, frame: &Frame) -> Vec<RoleRow> {
    let nodes = &timeline.gather.nodes;
    let mut rows: Vec<RoleRow> = Vec::new();
    let mut sights = timeline.gather.sights.clone();
    sights.sort_by_key(|seen| seen.t);
    for (nth, seen) in sights.iter().enumerate() {
        let next = sights[nth + 1..].iter().find(|it| it.node == seen.node);
        let Some(node) = nodes.find(&seen.node) else {
            continue;
        };
        let role = role_word(seen.state).to_owned();
        let until = frame.until(next.map(|it| it.t));
        rows.push((node, frame.at(seen.t), until, role, seen.term.unwrap_or(0)));
    }
    rows
}

/// One or two words for a kind of fault, as they stand in a lane.
fn label(kind: &str) -> &str {
    match kind {
        "kill" => "killed",
        "pause" => "paused",
        "oneway" => "cut one way",
        "isolate" => "cut off",
        "disk" => "disk fails",
        "slow" => "slow network",
        other => other,
    }
}

fn of_maker(fault: &FaultRecord, frame: &Frame, data: &Data) -> Option<FaultRow> {
    let effective = fault.effective?;
    let mut counted: Vec<String> = fault
        .counters
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !fault.note.is_empty() {
        counted.insert(0, fault.note.clone());
    }
    if !fault.took_effect {
        counted.insert(0, "no effect was seen".to_owned());
    }
    Some(FaultRow {
        kind: fault.kind.clone(),
        label: label(&fault.kind).to_owned(),
        from: frame.at(effective.begin_ns),
        to: frame.until(Some(effective.end_ns)),
        nodes: numbers(&fault.nodes, &data.nodes),
        clients: numbers(&fault.clients, &data.clients),
        text: thin::text(&fault.what),
        effect: thin::text(&counted.join("; ")),
    })
}

/// A fault of a history names one target: a node, a client, or a link between two.
fn of_history(fault: &Fault, frame: &Frame, data: &Data) -> FaultRow {
    let apart = |it: char| !(it.is_alphanumeric() || it == '-' || it == '_' || it == '.');
    let mut named: Vec<String> = fault.target.split(apart).map(str::to_owned).collect();
    // `client 3` is client c3.
    let client = |pair: &[String]| {
        let number = pair[1].parse().ok().filter(|_| pair[0] == "client")?;
        Some(client_name(number))
    };
    let spoken: Vec<String> = named.windows(2).filter_map(client).collect();
    named.extend(spoken);
    FaultRow {
        kind: fault.kind.clone(),
        label: label(&fault.kind).to_owned(),
        from: frame.at(fault.begin),
        to: frame.until(fault.end),
        nodes: numbers(&named, &data.nodes),
        clients: numbers(&named, &data.clients),
        text: thin::text(&fault.detail),
        effect: match fault.effects {
            0 => "no effect was seen".to_owned(),
            count => format!("seen {count} times"),
        },
    }
}

fn numbers(wanted: &[String], names: &[String]) -> Vec<usize> {
    let mut numbers: Vec<usize> = wanted
        .iter()
        .filter_map(|name| names.iter().position(|it| it == name))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_in_the_order_of_their_numbers() {
        let mut names = ["n10", "n2", "spare", "n1"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["n1", "n2", "n10", "spare"]);
    }
}
