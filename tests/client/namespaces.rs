//! A holder with a network of its own, whose packets are lost on their way. Making one needs the
//! right to; without it the proxies of `cutting` have to do, and this says so.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use ringfence_chaos::net::{Fabric, Link, Rule};
use ringfence_client::{BootClock, Clock};
use ringfence_tests::{Cluster, Journal, Options};
use tokio::runtime::Handle;

use crate::proxy::Proxy;
use crate::support::{TTL, Worker, within};

/// Where the cluster is reached.
const NEAR: usize = 0;
/// Where the holder lives.
const FAR: usize = 1;
/// What the holder sends.
const UP: Link = (FAR, NEAR);
/// What is sent to it.
const DOWN: Link = (NEAR, FAR);

#[tokio::test]
async fn pain_03_a_holder_whose_packets_are_lost_stops_before_the_next_one_starts() {
    let fabric = match Fabric::build(2, 0) {
        Ok(fabric) => fabric,
        Err(why) => {
            eprintln!("NOT SHOWN with network namespaces: {why}");
            return;
        }
    };
    let address = SocketAddr::from((fabric.address(NEAR), 0));
    let listening = fabric.within(NEAR, move || TcpListener::bind(address));
    let proxy = Proxy::on(listening.unwrap().unwrap());
    let options = Options {
        nodes: 1,
        advertise_client: vec![proxy.address().into()],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    proxy.point_to(&cluster.endpoints()[0]);
    let caller = cluster.caller();
    let bob = caller.open("bob", Duration::from_secs(300)).await.unwrap();

    for lost in [&[UP][..], &[DOWN], &[UP, DOWN]] {
        let endpoints = [proxy.address().to_owned()];
        let (runtime, ttl) = (Handle::current(), TTL.as_millis().to_string());
        let starting = fabric.within(FAR, move || {
            let _entered = runtime.enter();
            Worker::start(&endpoints, &["hold", "db", &ttl], &[])
        });
        let alice = starting.unwrap();
        alice.work_after(BootClock.now() + TTL).await;
        let cut = fabric.impose(lost.iter().map(|&link| (link, Rule::CUT)));
        let number = bob.number();
        let taking = caller.acquire(&bob, number, "db", Some(TTL * 20));
        let grant = within("the next grant", taking).await.unwrap();
        let granted = Journal::now();
        alice.told("lost ").await;

        let late = alice
            .work()
            .into_iter()
            .rfind(|work| work.at.since_boot() >= granted);
        assert!(late.is_none(), "{late:?} {granted:?}, lost: {lost:?}");
        assert!(alice.work().iter().all(|work| work.token < grant.token));
        assert!(fabric.lift(cut).had_effect(), "nothing was lost: {lost:?}");
        let number = bob.number();
        caller
            .release(&bob, number, "db", grant.token)
            .await
            .unwrap();
    }
}
