//! `bench cycle`: acquire and release in open sessions, a unary call each.

use ringfence_core::LeaseName;
use serde_json::{Map, json};

use super::etcd;
use super::load::Measured;
use super::load::{Client, Load};
use super::numbers::count;
use super::raw::{RawSession, TTL_MS};
use super::report::Sheet;
use super::target::Target;
use crate::cli::Failure;

/// Measures, and compares with etcd if it is there.
pub(super) async fn run(target: &Target, load: Load) -> Result<(), Failure> {
    let measured = measure(target, load).await?;
    let series = ["acquire", "acquire+release"];
    let mut more = Map::new();
    let compared = match compare(target, load).await? {
        None => "not compared with etcd: that needs nodes of our own here, and an etcd on PATH"
            .to_owned(),
        Some(theirs) => {
            let ratio = measured.per_second() / theirs.per_second();
            more.insert("etcd_per_second".into(), json!(theirs.per_second().round()));
            more.insert("etcd_ratio".into(), json!(ratio));
            format!(
                "etcd: {} cycles/s on this machine; Ringfence does {ratio:.2} times as many",
                count(theirs.per_second() as u64)
            )
        }
    };
    more.entry("etcd_ratio").or_insert(serde_json::Value::Null);
    let text = format!(
        "
{compared}"
    );
    let sheet = Sheet {
        object: more,
        text,
        ..Sheet::new("cycle", "cycles", &series)
    };
    sheet.print(&measured, &target.describe(), &load)
}

/// A comparison is one only if both run on this machine.
async fn compare(target: &Target, load: Load) -> Result<Option<Measured>, Failure> {
    match target.nodes {
        Some(_) => etcd::cycle(load).await,
        None => Ok(None),
    }
}

async fn measure(target: &Target, load: Load) -> Result<Measured, Failure> {
    let channels = target.leader_channels(load.clients).await?;
    load.drive(2, |mut client: Client| {
        let channel = channels[client.number as usize % channels.len()].clone();
        let name = name("cycle", client.number);
        async move {
            let mut session = RawSession::open(channel, TTL_MS).await?;
            client.ready().await;
            while !client.is_over() {
                let began = client.now();
                let token = session.acquire(&name).await?;
                client.took(0, began, 0);
                session.release(&name, token).await?;
                client.took(1, began, 1);
            }
            Ok(client)
        }
    })
    .await
}

/// A lease name of its own for each client and run.
pub(super) fn name(work: &str, client: u32) -> String {
    let name = format!("bench/{work}/{:08x}/{client}", rand::random::<u32>());
    debug_assert!(LeaseName::parse(&name).is_ok());
    name
}
