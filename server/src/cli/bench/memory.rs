//! `bench memory`: how much a node grows per session that holds a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_proto::v1::leases_client::LeasesClient;
use serde_json::{Map, Value, json};

use super::full::acquire;
use super::load::{Client, Load};
use super::numbers::count;
use super::report::Sheet;
use super::target::Target;
use crate::cli::nodes::Node;
use crate::cli::output::Table;
use crate::cli::{Failure, exit};

/// The sessions must outlive the measurement; the longest TTL that is allowed unless configured.
const TTL_MS: u64 = 300_000;

/// Measures with so many sessions, each with one lease.
pub(super) async fn run(target: &Target, load: Load, sessions: u32) -> Result<(), Failure> {
    let before = resident(target)?;
    let channels = target.leader_channels(load.clients).await?;
    let left = Arc::new(AtomicU32::new(sessions));
    let everlasting = Load {
        lasting: std::time::Duration::from_secs(3_600),
        ..load
    };
    let measured = everlasting
        .drive(1, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            let left = Arc::clone(&left);
            async move {
                let mut leases = LeasesClient::new(channel);
                let take = |left: u32| left.checked_sub(1);
                client.ready().await;
                // Only the count matters: nothing else is read because of it.
                while let Ok(left) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                    let began = client.now();
                    acquire(&mut leases, &format!("bench/memory/{left}"), TTL_MS).await?;
                    client.took(0, began, 1);
                }
                Ok(client)
            }
        })
        .await?;
    let after = resident(target)?;

    let mut table = Table::new(&["NODE", "BEFORE", "AFTER", "PER SESSION+LEASE"]);
    let mut objects: Vec<Value> = Vec::new();
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let each = after.saturating_sub(*before) / u64::from(sessions);
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        table.row(vec![
            name.clone(),
            mebibytes(*before),
            mebibytes(*after),
            format!("{each} B"),
        ]);
        objects.push(json!({ "name": name, "before": before, "after": after, "bytes_each": each }));
    }
    let mut more = Map::new();
    more.insert("sessions".into(), sessions.into());
    more.insert("nodes".into(), objects.into());
    let text = format!(
        "\n{table}{} sessions with a lease each",
        count(sessions.into())
    );
    let series = ["open+acquire"];
    let sheet = Sheet {
        object: more,
        text,
        ..Sheet::new("memory", "sessions", &series)
    };
    sheet.print(&measured, &target.describe(), &load)
}

/// The resident memory of each node's process, in bytes.
fn resident(target: &Target) -> Result<Vec<(String, u64)>, Failure> {
    let nodes = target.nodes.as_ref();
    let nodes = nodes.ok_or_else(|| Failure::usage("memory needs nodes of its own"))?;
    nodes
        .all()
        .iter()
        .map(|node| Ok((node.name.clone(), resident_bytes(node)?)))
        .collect()
}

fn resident_bytes(node: &Node) -> Result<u64, Failure> {
    let path = format!("/proc/{}/status", node.pid().unwrap_or_default());
    let status = std::fs::read_to_string(&path).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
    kibibytes
        .map(|kibibytes: u64| kibibytes * 1024)
        .ok_or_else(|| {
            let message = format!("cannot read the memory of node {} from {path}", node.name);
            Failure::new(exit::UNAVAILABLE, "FAULT", message).hint("this measurement needs Linux")
        })
}
