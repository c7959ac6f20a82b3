//! Bad requests: each is refused with what was offered and what is allowed, and changes nothing.

use ringfence_core::LEVEL_OBJECTS;
use ringfence_proto::v1::{self, Reason};
use tonic::{Code, Status};

use crate::api::{Api, acquire_request, open_request, refusal};
use crate::process::single;

#[tokio::test]
async fn a_held_lease_is_refused_with_its_holder() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    let grant = api.acquire(&alice, 1, "db").await.unwrap();

    let refused = api.acquire(&bob, 1, "db").await.unwrap_err();

    assert_eq!(refused.code(), Code::FailedPrecondition);
    let refused = refusal(&refused);
    assert_eq!(refused.reason, Reason::Held);
    assert_eq!(refused.metadata["identity"], "alice");
    assert_eq!(refused.metadata["token"], grant.token.to_string());
    assert_eq!(refused.metadata["mine"], "false");
}

#[tokio::test]
async fn bad_fields_are_named_with_what_was_offered_and_what_is_allowed() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;

    for name in ["", "/db", "db//x", "db/..", "d b", &"x".repeat(256)] {
        let refused = api.acquire(&alice, 1, name).await.unwrap_err();
        assert_field(&refused, "name");
    }
    for token in [0, 1 << 63, u64::MAX] {
        let request = v1::CheckRequest {
            name: "db".to_owned(),
            token,
            read: None,
        };
        assert_field(&api.leases.check(request).await.unwrap_err(), "token");
    }
    let headless = v1::AcquireRequest {
        session: None,
        ..acquire_request(&alice, 1, "db")
    };
    assert_field(&api.leases.acquire(headless).await.unwrap_err(), "session");
    let too_long = v1::AcquireRequest {
        wait_ms: Some(25 * 3_600_000),
        ..acquire_request(&alice, 1, "db")
    };
    assert_field(&api.leases.acquire(too_long).await.unwrap_err(), "wait_ms");
    for ttl_ms in [0, 1, 10 * 365 * 24 * 3_600_000, u64::MAX] {
        let request = v1::OpenRequest {
            ttl_ms: Some(ttl_ms),
            ..open_request("carol")
        };
        assert_field(&api.sessions.open(request).await.unwrap_err(), "ttl_ms");
    }
    // Nothing of all this left a trace under the request number.
    api.acquire(&alice, 1, "db").await.unwrap();
}

#[tokio::test]
async fn a_change_of_one_setting_leaves_the_others_and_undoes_nobodys() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let before = api.status().await;
    let change = |based_on, change| v1::ConfigureRequest {
        settings: None,
        based_on,
        change: Some(change),
    };
    let waiters = v1::SettingsChange {
        lease_waiters_max: Some(7),
        ..Default::default()
    };
    let answer = api.cluster.configure(change(0, waiters)).await.unwrap();
    let set_at = answer.into_inner().settings_index;

    let after = api.status().await;
    let expected = v1::Settings {
        lease_waiters_max: 7,
        ..before.settings.unwrap()
    };
    assert_eq!(
        (after.settings_index, after.settings),
        (set_at, Some(expected))
    );
    let stale = api
        .cluster
        .configure(change(before.settings_index, waiters));
    let refused = refusal(&stale.await.unwrap_err());
    assert_eq!(refused.reason, Reason::StaleSettings);
    let zero = v1::SettingsChange {
        ttl_max_ms: Some(0),
        ..Default::default()
    };
    let refused = api
        .cluster
        .configure(change(set_at, zero))
        .await
        .unwrap_err();
    assert_field(&refused, "settings.ttl_max_ms");
    let both = v1::ConfigureRequest {
        settings: after.settings,
        ..change(set_at, waiters)
    };
    let refused = api.cluster.configure(both).await.unwrap_err();
    assert_field(&refused, "change");
}

#[tokio::test]
async fn settings_of_a_client_without_the_factor_of_the_lease_endpoint_leave_it_alone() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let mut before = api.status().await;
    while before.level < LEVEL_OBJECTS {
        tokio::task::yield_now().await;
        before = api.status().await;
    }
    let set = v1::Settings {
        lease_api_factor_per_mille: 1_700,
        ..before.settings.unwrap()
    };
    let all = |based_on, settings| v1::ConfigureRequest {
        settings: Some(settings),
        based_on,
        change: None,
    };
    let answer = api.cluster.configure(all(before.settings_index, set));
    let set_at = answer.await.unwrap().into_inner().settings_index;
    let of_older = v1::Settings {
        lease_waiters_max: 7,
        lease_api_factor_per_mille: 0,
        ..set
    };
    api.cluster.configure(all(set_at, of_older)).await.unwrap();

    let after = api.status().await;
    let expected = v1::Settings {
        lease_waiters_max: 7,
        ..set
    };
    assert_eq!(after.settings, Some(expected));
    // Where it is said, it has to be in range.
    let zero = v1::ConfigureRequest {
        settings: None,
        based_on: 0,
        change: Some(v1::SettingsChange {
            lease_api_factor_per_mille: Some(0),
            ..Default::default()
        }),
    };
    let refused = api.cluster.configure(zero).await.unwrap_err();
    assert_field(&refused, "settings.lease_api_factor_per_mille");
}

#[tokio::test]
async fn a_factor_of_the_lease_endpoint_that_is_accepted_is_stored() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    // Its level is raised some time after it has formed a cluster.
    loop {
        let request = v1::ConfigureRequest {
            settings: None,
            based_on: 0,
            change: Some(v1::SettingsChange {
                lease_api_factor_per_mille: Some(1_700),
                ..Default::default()
            }),
        };
        match api.cluster.configure(request).await {
            Ok(_) => break,
            Err(refused) => assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}"),
        }
    }
    let settings = api.status().await.settings.unwrap();
    assert_eq!(settings.lease_api_factor_per_mille, 1_700);
}

#[tokio::test]
async fn a_waiter_learns_why_its_session_has_ended() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let (alice, bob) = (api.open("alice").await, api.open("bob").await);
    api.acquire(&alice, 1, "db").await.unwrap();
    let mut leases = api.leases.clone();
    let request = v1::AcquireRequest {
        wait_ms: Some(60_000),
        ..acquire_request(&bob, 1, "db")
    };
    let waiting = tokio::spawn(async move { leases.acquire(request).await });
    while api.get("db").await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    let evict = v1::EvictRequest {
        session: bob.session,
        reason: "drill".to_owned(),
        operator: "olga".to_owned(),
    };
    api.sessions.evict(evict).await.unwrap();

    let refused = refusal(&waiting.await.unwrap().unwrap_err());
    assert_eq!(refused.reason, Reason::SessionExpired);
    assert_eq!(refused.metadata["cause"], "EVICTED");
    assert_eq!(refused.metadata["operator"], "olga");
    let never = v1::EvictRequest {
        session: bob.session + 1_000,
        ..Default::default()
    };
    let refused = refusal(&api.sessions.evict(never).await.unwrap_err());
    assert_eq!(refused.reason, Reason::SessionExpired);
    assert!(!refused.metadata.contains_key("cause"));
}

#[tokio::test]
async fn a_wrong_secret_and_a_reused_number_are_refused() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    api.acquire(&alice, 1, "db").await.unwrap();

    let thief = v1::SessionHandle {
        secret: vec![0; 16].into(),
        ..alice.clone()
    };
    let refused = api.acquire(&thief, 2, "other").await.unwrap_err();
    assert_eq!(refusal(&refused).reason, Reason::WrongSecret);
    assert!(!refused.message().contains("00000000"));

    let refused = api.acquire(&alice, 1, "other").await.unwrap_err();
    assert_eq!(refusal(&refused).reason, Reason::RequestMismatch);
}

#[tokio::test]
async fn text_that_is_not_utf_8_names_its_field() {
    /// A `GetRequest` whose name may be any bytes.
    #[derive(Clone, PartialEq, prost::Message)]
    struct RawGet {
        #[prost(bytes = "vec", tag = "1")]
        name: Vec<u8>,
    }
    let (node, _dir) = single().await;
    let channel = tonic::transport::Channel::from_shared(node.url()).unwrap();
    let mut grpc = tonic::client::Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let request = tonic::Request::new(RawGet {
        name: vec![0xff, 0xfe],
    });
    let path = http::uri::PathAndQuery::from_static("/ringfence.v1.Leases/Get");
    let codec = tonic_prost::ProstCodec::<RawGet, v1::GetResponse>::default();

    let refused = grpc.unary(request, path, codec).await.unwrap_err();

    assert_eq!(refused.code(), Code::InvalidArgument);
    let refused = refusal(&refused);
    assert!(refused.metadata["field"].contains("name"), "{refused:?}");
    assert!(refused.metadata["offered"].contains("UTF-8"), "{refused:?}");
}

#[tokio::test]
async fn a_message_of_5_mib_is_refused_and_the_node_lives() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;

    let large = v1::AcquireRequest {
        data: vec![0; 5 << 20].into(),
        ..acquire_request(&alice, 1, "db")
    };
    let refused = api.leases.acquire(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let refused = refusal(&refused);
    assert_eq!(refused.reason, Reason::Limit);
    assert_eq!(refused.metadata["max"], (1 << 20).to_string());
    assert!(refused.message.contains("5242"), "{refused}");

    api.acquire(&alice, 1, "db").await.unwrap();
}

/// It is an invalid argument, and this field is the culprit.
fn assert_field(status: &Status, field: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let refusal = refusal(status);
    assert_eq!(refusal.reason, Reason::InvalidArgument);
    assert!(refusal.metadata["field"].starts_with(field), "{refusal:?}");
    assert!(refusal.metadata.contains_key("offered"), "{refusal:?}");
    assert!(!refusal.metadata["allowed"].is_empty(), "{refusal:?}");
}
