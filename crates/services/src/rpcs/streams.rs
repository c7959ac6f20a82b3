//! What lasts longer than a call, and ends with the right to it.

use prost::Message;
use ringfence_core::{AccessChange, Verb};
use ringfence_proto::v1;
use ringfence_proto::v1::Reason;

use super::world::{Coming, Told, World, rule, who};
use crate::alone::within;
use crate::caller::{Identified, since_epoch};

/// Reads on until the stream ends, which it does soon.
async fn end(mut coming: Coming) -> Told {
    let ended = async {
        loop {
            let told = coming.next().await;
            if told.refusal.is_some() {
                return told;
            }
        }
    };
    within("end of the stream", ended).await
}

fn watch(rpc: &str) -> Vec<u8> {
    let prefix = "team/".to_owned();
    match rpc {
        "Leases/Watch" => v1::WatchRequest { prefix, from: None }.encode_to_vec(),
        _ => v1::WatchFloorsRequest { prefix }.encode_to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_its_right_does_and_tells_nothing_that_came_behind() {
    let world = World::new().await;
    let (alice, carol) = (who("alice"), who("carol"));
    world.allow(&rule("carol", Verb::Acquire, "team/*")).await;
    let session = world.open(&carol).await;
    for rpc in ["Leases/Watch", "Leases/WatchFloors"] {
        let right = rule("alice", Verb::Observe, "team/*");
        world.allow(&right).await;
        let (told, mut coming) = world.begin(rpc, &watch(rpc), &alice).await;
        assert_eq!(told.refusal, None);
        // Another change of rights leaves it.
        world.allow(&rule("bob", Verb::Observe, "team/*")).await;
        world.remove(&right).await;
        let hidden = format!("team/{}", world.number());
        world.take(&carol, &session, &hidden).await;
        let read = async {
            loop {
                let told = coming.next().await;
                if told.refusal.is_some() {
                    return told;
                }
                let text = String::from_utf8_lossy(&told.data).into_owned();
                assert!(!text.contains(&hidden), "it tells of {hidden}");
            }
        };
        let told = within("end of the watch", read).await;
        assert!(told.is_denied(), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_at_a_change_of_rights_though_nothing_else_is_written() {
    let world = World::new().await;
    let alice = who("alice");
    let right = rule("alice", Verb::Observe, "team/*");
    world.allow(&right).await;
    let (_, coming) = world
        .begin("Leases/Watch", &watch("Leases/Watch"), &alice)
        .await;
    world.remove(&right).await;
    assert!(end(coming).await.is_denied());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_ends_with_its_credential_and_keeps_its_place() {
    let world = World::new().await;
    let (alice, carol) = (who("alice"), who("carol"));
    for name in ["alice", "carol"] {
        world.allow(&rule(name, Verb::Acquire, "team/*")).await;
    }
    let holder = world.open(&carol).await;
    let token = world.take(&carol, &holder, "team/lease").await;
    let session = world.open(&alice).await;
    let passing = Identified {
        expires_unix: Some(since_epoch().as_secs() + 1),
        ..who("alice")
    };
    let acquire = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..world.acquire(&session, "team/lease")
    }
    .encode_to_vec();
    let told = world.call("Leases/Acquire", &acquire, &passing).await;
    // It is in the queue, so it is no "not done".
    assert_eq!(told.reason(), Some(Reason::OutcomeUnknown), "{told:?}");
    let refusal = told.refusal.unwrap();
    assert_eq!(refusal.metadata["barred"], "UNAUTHENTICATED");
    assert!(refusal.message.contains("the credential has expired"));

    let release = v1::ReleaseRequest {
        session: Some(holder),
        number: world.number(),
        lowest: 1,
        name: "team/lease".to_owned(),
        token,
        close_session: false,
    }
    .encode_to_vec();
    let released = world.call("Leases/Release", &release, &carol).await;
    assert_eq!(released.refusal, None);
    let repeated = world.call("Leases/Acquire", &acquire, &alice).await;
    assert!(repeated.message::<v1::AcquireResponse>().grant.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_watches_end_with_a_ban_and_with_their_credential() {
    let world = World::new().await;
    world.allow(&rule("alice", Verb::Observe, "team/*")).await;
    let now = since_epoch().as_secs();
    let alice = who("alice");
    let passing = Identified {
        expires_unix: Some(now + 2),
        ..who("alice")
    };
    let message = |rpc: &str| match rpc {
        "Connection/Stream" => v1::ClientMessage::default().encode_to_vec(),
        "Sessions/KeepAlive" => v1::KeepAliveRequest::default().encode_to_vec(),
        rpc => watch(rpc),
    };
    let lasting = ["Connection/Stream", "Sessions/KeepAlive", "Leases/Watch"];
    let mut begun = Vec::new();
    for rpc in lasting {
        for caller in [&alice, &passing] {
            let (told, coming) = world.begin(rpc, &message(rpc), caller).await;
            assert_eq!(told.refusal, None, "{rpc}");
            begun.push((rpc, caller, coming));
        }
    }
    let (by_time, by_ban): (Vec<_>, Vec<_>) = begun
        .into_iter()
        .partition(|(_, caller, _)| caller.expires_unix.is_some());
    for (rpc, _, coming) in by_time {
        let told = end(coming).await;
        assert_eq!(
            told.reason(),
            Some(Reason::Unauthenticated),
            "{rpc}: {told:?}"
        );
    }
    world
        .change(vec![AccessChange::Ban(alice.principal.clone())])
        .await;
    for (rpc, _, coming) in by_ban {
        let told = end(coming).await;
        assert!(told.is_denied(), "{rpc}: {told:?}");
    }
}
