//! A holder with a network of its own, whose packets are lost on their way. Making one needs root;
//! without it the proxies of `cutting` have to do, and this says so.

use std::process::Command;
use std::time::Duration;

use ringfence_client::{BootClock, Clock};
use ringfence_tests::{Cluster, Journal, Options};

use crate::proxy::Proxy;
use crate::support::{TTL, Worker, within};

/// A link-layer address that nobody has: what is sent there is lost without a word.
const NOBODY: &str = "02:00:00:00:00:01";

/// A network of two: this process, and whoever runs in the namespace.
struct Namespace {
    name: String,
    near: String,
    far: String,
    near_address: String,
    far_address: String,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    /// What the namespace sends.
    up: bool,
    /// What is sent to it.
    down: bool,
}

fn ip(args: &str) -> bool {
    let status = Command::new("ip").args(args.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

impl Namespace {
    /// `None` if this process may not make one.
    fn make() -> Option<Self> {
        let id = std::process::id();
        let subnet = format!("10.{}.{}", 200 + id / 256 % 50, id % 256);
        let made = Self {
            name: format!("rf{id}"),
            near: format!("rfa{id}"),
            far: format!("rfb{id}"),
            near_address: format!("{subnet}.1"),
            far_address: format!("{subnet}.2"),
        };
        if !rustix::process::geteuid().is_root() || !ip(&format!("netns add {}", made.name)) {
            return None;
        }
        let Self {
            name,
            near,
            far,
            near_address,
            far_address,
        } = &made;
        for step in [
            format!("link add {near} type veth peer name {far} netns {name}"),
            format!("addr add {near_address}/30 dev {near}"),
            format!("link set {near} up"),
            format!("-n {name} addr add {far_address}/30 dev {far}"),
            format!("-n {name} link set {far} up"),
        ] {
            assert!(ip(&step), "ip {step}");
        }
        Some(made)
    }

    /// Sends nowhere what goes these ways.
    fn cut(&self, lost: Lost) {
        self.each_way(lost, |neighbour| {
            format!("neigh replace {neighbour} lladdr {NOBODY} nud permanent")
        });
    }

    /// The true addresses are asked for again.
    fn mend(&self, lost: Lost) {
        self.each_way(lost, |neighbour| format!("neigh del {neighbour}"));
    }

    fn each_way(&self, lost: Lost, step: impl Fn(&str) -> String) {
        if lost.up {
            let step = step(&format!("{} dev {}", self.near_address, self.far));
            let inside = format!("-n {} {step}", self.name);
            assert!(ip(&inside), "ip {inside}");
        }
        if lost.down {
            let step = step(&format!("{} dev {}", self.far_address, self.near));
            assert!(ip(&step), "ip {step}");
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The pair of devices goes with it.
        ip(&format!("netns del {}", self.name));
    }
}

#[tokio::test]
async fn pain_03_a_holder_whose_packets_are_lost_stops_before_the_next_one_starts() {
    let Some(namespace) = Namespace::make() else {
        eprintln!("NOT SHOWN with network namespaces, which need root and iproute2");
        return;
    };
    let proxy = Proxy::at(&format!("{}:0", namespace.near_address)).await;
    let options = Options {
        nodes: 1,
        advertise_client: vec![proxy.address().into()],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    proxy.point_to(&cluster.endpoints()[0]);
    let (caller, ttl) = (cluster.caller(), TTL.as_millis().to_string());
    let bob = caller.open("bob", Duration::from_secs(300)).await.unwrap();
    let endpoints = [proxy.address().to_owned()];

    for (up, down) in [(true, false), (false, true), (true, true)] {
        let lost = Lost { up, down };
        let alice = Worker::start_in(&namespace.name, &endpoints, &["hold", "db", &ttl]);
        alice.work_after(BootClock.now() + TTL).await;
        namespace.cut(lost);
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
        namespace.mend(lost);
        let number = bob.number();
        caller
            .release(&bob, number, "db", grant.token)
            .await
            .unwrap();
    }
}
