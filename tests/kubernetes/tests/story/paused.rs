//! A controller is stopped between the look at its lease and its write; another takes over; the first
//! one wakes.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use ringfence_kubernetes::User;
use rustix::process::Signal;

use crate::actor::{Actor, fenced_controller};
use crate::go;
use crate::rights::{allow, entry, fence, maps};
use crate::site::{Site, within};

/// A lease duration that is over soon.
const SHORT: (&str, &str) = ("LEASE_SECONDS", "3");
/// Before which of its writes the first one stops.
const STOP: (&str, &str) = ("STOP_AT", "4");

#[tokio::test(flavor = "multi_thread")]
async fn s3_8_the_api_server_refuses_the_write_of_a_controller_that_was_overtaken_while_it_stood() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    allow(&site).await;
    fence(&site).await;
    let kubeconfig = site.plane.kubeconfig(User::Default, &site.plane.address());
    let start = |env: &[(&str, &str)]| Actor::start(fenced_controller(), &site, &kubeconfig, env);

    let first = start(&[SHORT, STOP]);
    first.until(1, "stopping before patch").await;
    first.until_stopped().await;
    let second = start(&[SHORT]);
    second.until(3, "wrote ").await;
    let before = first.wrote();
    first.signal(Signal::CONT);

    let (_, refused) = first.until(1, "refused by the API server").await;
    println!("the first one, awake: {refused}");
    assert!(refused.contains("stale fence k8s/"), "{refused}");
    assert_eq!(first.wrote(), before, "a stale write got in");
    // It notices, and the other one goes on where it was: nothing was lost.
    first.until(1, "stopped: ").await;
    let so_far = second.wrote().len();
    second.until(so_far + 3, "wrote ").await;
    let wrote = [before, second.wrote()].concat();
    let gaps = wrote.windows(2).any(|pair| pair[1] != pair[0] + 1);
    assert!(!gaps, "{wrote:?}");
    let ledger = maps(&site).await.get("ledger").await.unwrap();
    let token = entry(&ledger, "token").unwrap();
    let (_, leads) = second.until(1, "leading: ").await;
    assert!(leads.ends_with(&format!("#{token}")), "{leads} {token}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_3_and_s3_6_with_client_go_and_no_fence_the_same_write_gets_in() {
    let Some(site) = Site::start(1).await else {
        return;
    };
    let Some(program) = go::elector() else {
        return;
    };
    allow(&site).await;
    let kubeconfig = site.plane.kubeconfig(User::Default, &site.plane.address());
    let start = |env: &[(&str, &str)]| Actor::start(program, &site, &kubeconfig, env);
    let maps = maps(&site).await;

    let first = start(&[SHORT, STOP]);
    first.until(1, "stopping before patch").await;
    first.until_stopped().await;
    let second = start(&[SHORT]);
    second.until(3, "wrote ").await;
    let (old, new) = (first.id().to_string(), second.id().to_string());
    // Its Lease is its own, written as protobuf under the name of its library; the mirror of the
    // same namespace leaves it alone.
    let leases: Api<Lease> = Api::namespaced(site.plane.client(User::Admin).await, &site.namespace);
    let lease = leases.get("client-go").await.unwrap();
    let writers = lease.metadata.managed_fields.unwrap_or_default();
    let writers: BTreeSet<_> = writers.into_iter().filter_map(|w| w.manager).collect();
    assert_eq!(writers, BTreeSet::from(["leader-election".to_owned()]));
    let ledger = maps.get("ledger").await.unwrap();
    let mut newest: u64 = entry(&ledger, "count").unwrap().parse().unwrap();
    let version = ledger.metadata.resource_version.unwrap();
    let params = WatchParams::default();
    let mut changes = maps.watch(&params, &version).await.unwrap().boxed();
    first.signal(Signal::CONT);

    within("the stale write", async {
        while let Some(change) = changes.next().await {
            let WatchEvent::Modified(map) = change.unwrap() else {
                continue;
            };
            let count: u64 = entry(&map, "count").unwrap().parse().unwrap();
            let by = entry(&map, "by").unwrap();
            if by == old {
                println!(
                    "the ledger fell from {newest} to {count}: a write of client-go's old leader"
                );
                assert!(count < newest, "{count} after {newest}");
                return;
            }
            assert_eq!(by, new);
            newest = count;
        }
    })
    .await;
}
