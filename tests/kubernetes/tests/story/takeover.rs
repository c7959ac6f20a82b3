//! How long no replica leads, beside client-go in the same run.

use std::path::Path;
use std::time::Duration;

use ringfence_kubernetes::User;
use rustix::process::Signal;

use crate::actor::{Actor, fenced_controller, now};
use crate::go;
use crate::rights::{allow, fence};
use crate::site::Site;

/// The lease duration of both, the standard of client-go.
const LEASE: Duration = Duration::from_secs(15);

/// A machine with ten times as much to do as it can is this much late, and still far from a lease.
const SLACK: Duration = Duration::from_secs(4);

/// From the leader's end to the next one's beginning: after a kill, and after a clean stop.
async fn takeovers(program: &Path, site: &Site, kubeconfig: &Path) -> [Duration; 2] {
    let start = || Actor::start(program, site, kubeconfig, &[("LEASE_SECONDS", "15")]);
    let mut leader = start();
    leader.until(1, "wrote ").await;
    let mut took = [Duration::ZERO; 2];
    for (at, signal) in [Signal::KILL, Signal::TERM].into_iter().enumerate() {
        let next = start();
        // It stands for election once it has learned who leads.
        next.until(1, "leader: ").await;
        let ended = now();
        leader.signal(signal);
        let (began, _) = next.until(1, "leading: ").await;
        took[at] = began.saturating_duration_since(ended);
        next.until(1, "wrote ").await;
        leader = next;
    }
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_7_takeover_after_a_kill_and_after_a_clean_stop_beside_client_go() {
    let Some(site) = Site::start(3).await else {
        return;
    };
    allow(&site).await;
    fence(&site).await;
    let kubeconfig = site.plane.kubeconfig(User::Default, &site.plane.address());
    // A client that no policy fences: client-go's writes carry nothing.
    let unfenced = site.plane.kubeconfig(User::Admin, &site.plane.address());
    let theirs = async {
        match go::elector() {
            Some(program) => Some(takeovers(program, &site, &unfenced).await),
            None => None,
        }
    };
    let ours = takeovers(fenced_controller(), &site, &kubeconfig);
    let (theirs, [killed, stopped]) = tokio::join!(theirs, ours);

    println!(
        "takeover with a lease of {LEASE:?}: after SIGKILL {killed:?}, after SIGTERM {stopped:?}"
    );
    if let Some([killed, stopped]) = theirs {
        println!(
            "client-go in the same run:          after SIGKILL {killed:?}, after SIGTERM {stopped:?}"
        );
    }
    // What is printed is the figure; machines that have other things to do take their time.
    assert!(killed < LEASE + SLACK, "{killed:?}");
    assert!(stopped < SLACK, "{stopped:?}");
}
