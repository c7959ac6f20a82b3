//! What single RPCs promise beyond the table.

use prost::Message;
use ringfence_core::{AccessChange, Mode, Principal, Verb};
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
async fn a_refused_revoke_names_the_token_in_force_to_who_may_read_the_lease_alone() {
    let world = World::new().await;
    let (bob, carol) = (who("bob"), who("carol"));
    for (name, verb) in [
        ("bob", Verb::Revoke),
        ("carol", Verb::Revoke),
        ("carol", Verb::Acquire),
    ] {
        world.allow(&rule(name, verb, "team/*")).await;
    }
    let session = world.open(&carol).await;
    let token = world.take(&carol, &session, "team/held").await;
    let revoke = |name: &str| {
        v1::RevokeRequest {
            name: name.to_owned(),
            token: token + 1,
            ..Default::default()
        }
        .encode_to_vec()
    };
    let mut told = Vec::new();
    for name in ["team/held", "team/absent"] {
        let refused = world.call("Leases/Revoke", &revoke(name), &bob).await;
        assert_eq!(refused.reason(), Some(Reason::StaleToken));
        let framed = world.frame("Leases/Revoke", &revoke(name), &bob).await;
        for refused in [Some(refused), framed].into_iter().flatten() {
            told.push(format!("{:?}", refused.refusal).replace(name, "NAME"));
        }
    }
    assert!(told.iter().all(|other| *other == told[0]), "{told:#?}");
    let refused = world
        .call("Leases/Revoke", &revoke("team/held"), &carol)
        .await;
    let refusal = refused.refusal.expect("no grant has that token");
    assert_eq!(refusal.metadata["current"], token.to_string());
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

/// What `Access.ListActs` answers to an administrator.
async fn acts(world: &World, ask: v1::ListActsRequest) -> v1::ListActsResponse {
    let (ask, admin) = (ask.encode_to_vec(), who("admin"));
    world.call("Access/ListActs", &ask, &admin).await.message()
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_are_listed_a_page_at_a_time_and_what_is_refused_is_none() {
    let world = World::new().await;
    world.allow(&rule("admin", Verb::Admin, "")).await;
    let ban = v1::AccessChange {
        change: Some(v1::access_change::Change::Ban("token:x".into())),
    };
    let (cluster, based_on) = world.alone.node.read(|machine| {
        let cluster = machine.cluster().unwrap();
        (cluster.as_bytes().to_vec(), machine.access().set_at())
    });
    let change = v1::ChangeAccessRequest {
        cluster_id: cluster.clone().into(),
        based_on,
        changes: vec![ban],
    }
    .encode_to_vec();
    let (alice, admin) = (who("alice"), who("admin"));
    let refused = world.call("Access/ChangeAccess", &change, &alice).await;
    assert!(refused.is_denied());
    let done = world.call("Access/ChangeAccess", &change, &admin).await;
    let done = done.message::<v1::ChangeAccessResponse>();

    let all = acts(&world, v1::ListActsRequest::default()).await;
    let texts: Vec<&str> = all.acts.iter().map(|act| act.act.as_str()).collect();
    let expected = [
        "access: mode enforced",
        "access: grant cert:cn:admin admin",
        "access: ban token:x",
    ];
    assert_eq!(texts, expected);
    let last = all.acts.last().unwrap();
    assert_eq!(
        (last.index, last.principal.as_str(), last.node_id),
        (done.access_index, "cert:cn:admin", 1)
    );
    assert_eq!((all.newest, all.oldest), (last.index, all.acts[0].index));
    assert!(!all.compacted && all.cluster_id == cluster);

    let mut after = 0;
    for act in &all.acts {
        let page = v1::ListActsRequest {
            cluster_id: cluster.clone().into(),
            after,
            limit: 1,
        };
        let page = acts(&world, page).await;
        assert_eq!(page.acts, std::slice::from_ref(act));
        after = act.index;
    }
    let end = v1::ListActsRequest {
        after,
        ..Default::default()
    };
    assert_eq!(acts(&world, end).await.acts, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_of_another_cluster_or_of_the_future_are_refused() {
    let world = World::new().await;
    world.allow(&rule("admin", Verb::Admin, "")).await;
    let other = v1::ListActsRequest {
        cluster_id: vec![7; 16].into(),
        ..Default::default()
    };
    let future = v1::ListActsRequest {
        after: u64::MAX,
        ..Default::default()
    };
    for (ask, reason) in [
        (other, Reason::ClusterChanged),
        (future, Reason::PositionUnknown),
    ] {
        let (ask, admin) = (ask.encode_to_vec(), who("admin"));
        let told = world.call("Access/ListActs", &ask, &admin).await;
        assert_eq!(told.reason(), Some(reason));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_learns_that_acts_have_fallen_out() {
    let world = World::new().await;
    world.allow(&rule("admin", Verb::Admin, "")).await;
    for n in 0..ringfence_core::AUDIT_RECORDS_MAX {
        let name = format!("token:t{n}");
        let ban = AccessChange::Ban(Principal::parse(&name).unwrap());
        world.change(vec![ban]).await;
    }
    let first = acts(&world, v1::ListActsRequest::default()).await;
    assert!(first.compacted);
    assert_eq!((first.acts.len(), first.acts[0].index), (100, first.oldest));
    // A reader that has seen the oldest has missed nothing.
    let second = v1::ListActsRequest {
        after: first.oldest,
        limit: 1_000,
        ..Default::default()
    };
    let second = acts(&world, second).await;
    assert!(!second.compacted && second.acts.len() == 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_learns_who_it_is_and_what_it_may_do_itself_without_a_right() {
    let world = World::new().await;
    let alice = who("alice");
    let whoami = world
        .call(
            "Access/WhoAmI",
            &v1::WhoAmIRequest {}.encode_to_vec(),
            &alice,
        )
        .await;
    assert_eq!(
        whoami.message::<v1::WhoAmIResponse>().principal,
        "cert:cn:alice"
    );
    let right = rule("alice", Verb::Acquire, "team/*");
    let ask = |principal: &str| {
        v1::TestAccessRequest {
            principal: principal.into(),
            verb: v1::Verb::Acquire.into(),
            names: "team/lease".into(),
        }
        .encode_to_vec()
    };
    for allowed in [false, true] {
        if allowed {
            world.allow(&right).await;
        }
        for own in ["", "cert:cn:alice"] {
            let told = world.call("Access/TestAccess", &ask(own), &alice).await;
            assert_eq!(told.message::<v1::TestAccessResponse>().allowed, allowed);
        }
    }
    let other = ask("cert:cn:bob");
    let other = world.call("Access/TestAccess", &other, &alice).await;
    assert!(other.is_denied());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_of_observe_says_what_reads_are_answered() {
    let world = World::new().await;
    let alice = who("alice");
    for (verb, names) in [
        (Verb::Acquire, "team/*"),
        (Verb::Acquire, "deploy/web"),
        (Verb::Observe, "public/*"),
        (Verb::Revoke, "other/*"),
    ] {
        world.allow(&rule("alice", verb, names)).await;
    }
    let mut allowed = Vec::new();
    for names in [
        "team/lease",
        "team/*",
        "deploy/web",
        "deploy/*",
        "public/a",
        "public/*",
        "other/a",
        "*",
    ] {
        let ask = v1::TestAccessRequest {
            principal: String::new(),
            verb: v1::Verb::Observe.into(),
            names: names.into(),
        };
        let told = world
            .call("Access/TestAccess", &ask.encode_to_vec(), &alice)
            .await;
        let tested = told.message::<v1::TestAccessResponse>();
        let read = match names.strip_suffix('*') {
            None => {
                let name = names.to_owned();
                let get = v1::GetRequest { name, read: None }.encode_to_vec();
                world.call("Leases/Get", &get, &alice).await
            }
            Some(prefix) => {
                let prefix = prefix.to_owned();
                let list = v1::ListRequest {
                    prefix,
                    ..Default::default()
                };
                world
                    .call("Leases/List", &list.encode_to_vec(), &alice)
                    .await
            }
        };
        assert_eq!(tested.allowed, !read.is_denied(), "{names}: {read:?}");
        if tested.allowed {
            allowed.push(names);
            // It names the rule that is there, or what would do.
            let rule = tested.rule.expect("a rule");
            assert_ne!(rule.verb(), v1::Verb::Revoke, "{names}");
        }
    }
    let expected = ["team/lease", "team/*", "deploy/web", "public/a", "public/*"];
    assert_eq!(allowed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_read_and_changed_by_administrators_and_a_refused_change_changes_nothing() {
    let world = World::new().await;
    let (admin, alice) = (who("admin"), who("alice"));
    let right = rule("admin", Verb::Admin, "");
    world.allow(&right).await;
    let get = v1::GetAccessRequest {}.encode_to_vec();
    let shown = world.call("Access/GetAccess", &get, &admin).await;
    let shown = shown.message::<v1::GetAccessResponse>();
    let change = |ban: &str, based_on| {
        v1::ChangeAccessRequest {
            cluster_id: shown.cluster_id.clone(),
            based_on,
            changes: vec![v1::AccessChange {
                change: Some(v1::access_change::Change::Ban(ban.into())),
            }],
        }
        .encode_to_vec()
    };
    let refused = change("cert:cn:admin", shown.access_index);
    let refused = world.call("Access/ChangeAccess", &refused, &alice).await;
    assert!(refused.is_denied());
    let done = change("cert:cn:mallory", shown.access_index);
    let done = world.call("Access/ChangeAccess", &done, &admin).await;
    let done = done.message::<v1::ChangeAccessResponse>();
    let stale = change("cert:cn:bob", shown.access_index);
    let stale = world.call("Access/ChangeAccess", &stale, &admin).await;
    assert_eq!(stale.reason(), Some(Reason::StaleAccess));
    let after = world.call("Access/GetAccess", &get, &admin).await;
    let after = after.message::<v1::GetAccessResponse>();
    assert_eq!(after.bans, ["cert:cn:mallory"]);
    assert_eq!(after.access_index, done.access_index);

    world.remove(&right).await;
    for rpc in ["Access/GetAccess", "Access/ListActs"] {
        assert!(world.call(rpc, &get, &admin).await.is_denied(), "{rpc}");
    }
}
