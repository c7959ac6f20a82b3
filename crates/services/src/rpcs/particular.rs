//! What single RPCs promise beyond the table.

use prost::Message;
use ringfence_core::{AccessChange, Mode, Verb};
use ringfence_proto::v1;
use ringfence_proto::v1::Reason;

use super::world::{World, rule, who};
use crate::alone::within;
use crate::caller::{Identified, ProvenPod};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_is_answered_with_its_grant_when_the_right_is_gone() {
    let world = World::new().await;
    let alice = who("alice");
    let right = rule("alice", Verb::Acquire, "team/*");
    world.allow(&right).await;
    let session = world.open(&alice).await;
    let acquire = world.acquire(&session, "team/lease").encode_to_vec();
    let granted = world.call("Leases/Acquire", &acquire, &alice).await;
    let granted = granted.message::<v1::AcquireResponse>().grant;

    world.remove(&right).await;

    let repeated = world.call("Leases/Acquire", &acquire, &alice).await;
    let repeated = repeated.message::<v1::AcquireResponse>().grant;
    assert_eq!(granted, repeated);
    let framed = world.frame("Leases/Acquire", &acquire, &alice).await;
    assert_eq!(framed.expect("a frame").refusal, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_hidden_name_is_not_in_the_history_and_neither_is_one_that_never_was() {
    let world = World::new().await;
    let (alice, carol) = (who("alice"), who("carol"));
    world.allow(&rule("carol", Verb::Acquire, "*")).await;
    let session = world.open(&carol).await;
    let token = world.take(&carol, &session, "hidden/lease").await;
    let ask = |token| {
        v1::HistoryRequest {
            token,
            ..Default::default()
        }
        .encode_to_vec()
    };
    let written = async {
        loop {
            let told = world.call("Leases/History", &ask(token), &carol).await;
            if !told.message::<v1::HistoryResponse>().records.is_empty() {
                return;
            }
        }
    };
    within("record", written).await;

    let hidden = world.call("Leases/History", &ask(token), &alice).await;
    let absent = world
        .call("Leases/History", &ask(token + 1_000_000), &alice)
        .await;
    let hidden = hidden.message::<v1::HistoryResponse>();
    assert_eq!(hidden, absent.message::<v1::HistoryResponse>());
    assert!(hidden.records.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ones_own_session_may_be_read_and_that_of_another_may_not() {
    let world = World::new().await;
    let (alice, bob) = (who("alice"), who("bob"));
    let session = world.open(&alice).await.session;
    let get = v1::GetSessionRequest {
        session,
        read: None,
    }
    .encode_to_vec();
    assert_eq!(world.call("Sessions/Get", &get, &alice).await.refusal, None);
    assert!(world.call("Sessions/Get", &get, &bob).await.is_denied());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_bound_to_a_pod_by_that_pods_own_credential_alone() {
    let world = World::new().await;
    let pod = |name: &str, uid: &str| ProvenPod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let open = v1::OpenRequest {
        id: vec![1; 16].into(),
        secret: vec![1; 16].into(),
        identity: "holder".to_owned(),
        pod: Some(v1::Pod {
            namespace: "shop".to_owned(),
            name: "worker-0".to_owned(),
            uid: "u1".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
    .encode_to_vec();
    world.allow(&rule("alice", Verb::Acquire, "shop/*")).await;
    let refused = [
        None,
        Some(pod("worker-0", "u2")),
        Some(pod("worker-1", "u1")),
    ];
    for shown in refused {
        let shown = Identified {
            pod: shown,
            ..who("alice")
        };
        let told = world.call("Sessions/Open", &open, &shown).await;
        assert!(told.is_denied(), "{shown:?}: {told:?}");
    }
    let own = Identified {
        pod: Some(pod("worker-0", "u1")),
        ..who("alice")
    };
    let told = world.call("Sessions/Open", &open, &own).await;
    assert_eq!(told.refusal, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_counted_by_verb_and_what_would_be_one_as_well() {
    let world = World::new().await;
    let alice = who("alice");
    let get = v1::GetRequest {
        name: "team/lease".to_owned(),
        ..Default::default()
    }
    .encode_to_vec();
    let counted = |enforced: &str| {
        let mut registry = prometheus_client::registry::Registry::default();
        world.alone.context.metrics().register(&mut registry);
        let mut shown = String::new();
        prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
        assert!(
            !shown.contains("alice") && !shown.contains("team"),
            "{shown}"
        );
        let line = format!("denied_total{{verb=\"observe\",enforced=\"{enforced}\"}} ");
        let found = shown.lines().find_map(|shown| shown.strip_prefix(&line));
        found.map_or(0, |count| count.parse::<u64>().unwrap())
    };

    assert!(world.call("Leases/Get", &get, &alice).await.is_denied());
    assert_eq!((counted("true"), counted("false")), (1, 0));

    let permissive = AccessChange::SetMode(Mode::Permissive);
    world.change(vec![permissive]).await;
    let told = world.call("Leases/Get", &get, &alice).await;
    assert_eq!(told.reason(), Some(Reason::NotFound));
    assert_eq!((counted("true"), counted("false")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_page_of_a_list_needs_the_right_still_whoever_asks() {
    let world = World::new().await;
    let (alice, mallory) = (who("alice"), who("mallory"));
    let right = rule("alice", Verb::Acquire, "team/*");
    world.allow(&right).await;
    let session = world.open(&alice).await;
    for name in ["team/a", "team/b", "team/c"] {
        world.take(&alice, &session, name).await;
    }
    let ask = |page_token: &str| {
        v1::ListRequest {
            prefix: "team/".to_owned(),
            page_size: 1,
            page_token: page_token.to_owned(),
            ..Default::default()
        }
        .encode_to_vec()
    };
    let first = world.call("Leases/List", &ask(""), &alice).await;
    let next = ask(&first.message::<v1::ListResponse>().next_page_token);
    assert_eq!(world.call("Leases/List", &next, &alice).await.refusal, None);
    assert!(world.call("Leases/List", &next, &mallory).await.is_denied());

    world.remove(&right).await;

    assert!(world.call("Leases/List", &next, &alice).await.is_denied());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_alive_by_its_own_principal_and_by_no_other() {
    let world = World::new().await;
    let (alice, mallory) = (who("alice"), who("mallory"));
    let session = world.open(&alice).await;
    let ask = v1::KeepAliveRequest {
        id: 1,
        sessions: vec![session],
        ..Default::default()
    }
    .encode_to_vec();
    let own = world.call("Sessions/KeepAlive", &ask, &alice).await;
    let own = own.message::<v1::KeepAliveResponse>();
    assert_eq!((own.refusal, own.ended), (None, Vec::new()));
    let stolen = world.call("Sessions/KeepAlive", &ask, &mallory).await;
    let stolen = stolen.message::<v1::KeepAliveResponse>();
    assert!(
        stolen.refusal.is_some() || stolen.ended.len() == 1,
        "{stolen:?}"
    );
}
