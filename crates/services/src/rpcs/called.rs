//! Each RPC, called by those who may and those who may not.

use prost::Message;
use ringfence_core::{AccessChange, ClusterToken, Mode, Principal, Verb};
use ringfence_proto::v1;
use ringfence_proto::v1::Reason;

use super::world::{Told, World, rule, who};
use super::{Needs, RPCS};
use crate::caller::Identified;

/// What an RPC is asked about.
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    /// For requests of a session.
    pub(super) session: &'a v1::SessionHandle,
    /// For reads of sessions, and to be evicted.
    pub(super) other: u64,
}

/// A request about this target. Each has another number.
pub(super) fn request(world: &World, rpc: &str, target: &Target<'_>) -> Vec<u8> {
    let (session, name) = (Some(target.session.clone()), target.name.to_owned());
    let prefix = match name.rfind('/') {
        Some(at) => name[..=at].to_owned(),
        None => String::new(),
    };
    let number = world.number();
    let lowest = number;
    let id = number.to_be_bytes().repeat(2);
    match rpc {
        "Leases/Acquire" => world.acquire(target.session, &name).encode_to_vec(),
        "Leases/Cancel" => v1::CancelRequest {
            session,
            number,
            lowest,
            target: number.saturating_sub(1).max(1),
        }
        .encode_to_vec(),
        "Leases/Release" => v1::ReleaseRequest {
            session,
            number,
            lowest,
            name,
            token: 1,
            close_session: false,
        }
        .encode_to_vec(),
        "Leases/Transfer" => v1::TransferRequest {
            session,
            number,
            lowest,
            name,
            token: held(world, target.name),
            to_session: 0,
        }
        .encode_to_vec(),
        "Leases/Revoke" => v1::RevokeRequest {
            name,
            token: held(world, target.name),
            ..Default::default()
        }
        .encode_to_vec(),
        "Leases/Get" => v1::GetRequest {
            name,
            ..Default::default()
        }
        .encode_to_vec(),
        "Leases/List" => v1::ListRequest {
            prefix,
            ..Default::default()
        }
        .encode_to_vec(),
        "Leases/Check" => v1::CheckRequest {
            name,
            token: 1,
            ..Default::default()
        }
        .encode_to_vec(),
        "Leases/Watch" => v1::WatchRequest { prefix, from: None }.encode_to_vec(),
        "Leases/WatchFloors" => v1::WatchFloorsRequest { prefix }.encode_to_vec(),
        "Leases/History" => v1::HistoryRequest {
            name,
            ..Default::default()
        }
        .encode_to_vec(),
        "Sessions/Open" => v1::OpenRequest {
            id: id.clone().into(),
            secret: id.into(),
            identity: "holder".to_owned(),
            ..Default::default()
        }
        .encode_to_vec(),
        "Sessions/KeepAlive" => v1::KeepAliveRequest {
            id: 1,
            ..Default::default()
        }
        .encode_to_vec(),
        "Sessions/Close" => v1::CloseRequest { session }.encode_to_vec(),
        "Sessions/Evict" => v1::EvictRequest {
            session: target.other,
            ..Default::default()
        }
        .encode_to_vec(),
        "Sessions/Get" => v1::GetSessionRequest {
            session: target.other,
            read: None,
        }
        .encode_to_vec(),
        "Sessions/List" => v1::ListSessionsRequest::default().encode_to_vec(),
        "Connection/Stream" => v1::ClientMessage::default().encode_to_vec(),
        "Cluster/Status" => v1::StatusRequest {}.encode_to_vec(),
        "Cluster/ListMembers" => v1::ListMembersRequest {}.encode_to_vec(),
        // Refused for what they say, unless their caller is refused before.
        "Cluster/AddMember" => v1::AddMemberRequest::default().encode_to_vec(),
        "Cluster/PromoteMember" => v1::PromoteMemberRequest::default().encode_to_vec(),
        "Cluster/RemoveMember" => v1::RemoveMemberRequest::default().encode_to_vec(),
        "Cluster/TransferLeader" => v1::TransferLeaderRequest { node_id: 77 }.encode_to_vec(),
        "Cluster/Configure" => v1::ConfigureRequest {
            change: Some(v1::SettingsChange::default()),
            ..Default::default()
        }
        .encode_to_vec(),
        "Cluster/Backup" => v1::BackupRequest {}.encode_to_vec(),
        "Access/GetAccess" => v1::GetAccessRequest {}.encode_to_vec(),
        "Access/ChangeAccess" => {
            let (cluster, based_on) = world.alone.node.read(|machine| {
                let cluster = machine.cluster().expect("it is formed");
                (cluster, machine.access().set_at())
            });
            v1::ChangeAccessRequest {
                cluster_id: cluster.as_bytes().to_vec().into(),
                based_on,
                changes: vec![v1::AccessChange {
                    change: Some(v1::access_change::Change::Unban("token:x".into())),
                }],
            }
            .encode_to_vec()
        }
        "Access/TestAccess" => v1::TestAccessRequest {
            principal: "token:somebody".into(),
            verb: v1::Verb::Admin.into(),
            names: String::new(),
        }
        .encode_to_vec(),
        "Access/WhoAmI" => v1::WhoAmIRequest {}.encode_to_vec(),
        "Access/ListActs" => v1::ListActsRequest::default().encode_to_vec(),
        _ => panic!("{rpc} is called with nothing"),
    }
}

/// The token that a lease is held with; some token if it is not.
fn held(world: &World, name: &str) -> u64 {
    let name = ringfence_core::LeaseName::parse(name).unwrap();
    let lease = world.alone.node.read(|machine| machine.get(&name));
    let holder = lease.and_then(|lease| lease.holder);
    holder.map_or(1, |granted| granted.token.get())
}

/// Whether this answers a caller that is allowed to ask.
fn succeeds(rpc: &str, told: &Told) -> bool {
    match rpc {
        "Leases/Release" => told.reason() == Some(Reason::StaleToken),
        "Leases/Transfer" => told.reason() == Some(Reason::NotWaiting),
        "Cluster/AddMember" | "Cluster/PromoteMember" | "Cluster/RemoveMember" => {
            told.reason() == Some(Reason::InvalidArgument)
        }
        "Cluster/TransferLeader" => !told.is_denied() && told.refusal.is_some(),
        _ => told.refusal.is_none(),
    }
}

/// The rules of which each is enough.
fn enough(needs: Needs) -> Vec<ringfence_core::Rule> {
    let alice = |verb, names| rule("alice", verb, names);
    match needs {
        Needs::Admission | Needs::OwnSession => Vec::new(),
        Needs::Lease(verb) | Needs::SomeLease(verb) => {
            vec![alice(verb, "team/*"), alice(verb, "*")]
        }
        Needs::ToRead | Needs::ToReadAll => {
            vec![alice(Verb::Observe, "team/*"), alice(Verb::Acquire, "*")]
        }
        Needs::Sessions => vec![alice(Verb::Observe, "*")],
        Needs::Cluster(verb) => vec![alice(verb, "")],
    }
}

/// The rules that together are not.
fn too_little(needs: Needs) -> Vec<ringfence_core::Rule> {
    let mallory = |verb, names| rule("mallory", verb, names);
    let mut rules: Vec<_> = Verb::ALL
        .into_iter()
        .map(|verb| mallory(verb, "team"))
        .collect();
    match needs {
        Needs::Lease(needed) | Needs::SomeLease(needed) => rules.retain(|rule| rule.verb != needed),
        Needs::Cluster(needed) => rules.retain(|rule| rule.verb != needed),
        Needs::ToReadAll => rules.push(mallory(Verb::Observe, "hidden/held")),
        Needs::Sessions => rules.push(mallory(Verb::Observe, "hidden/*")),
        Needs::Admission | Needs::OwnSession | Needs::ToRead => {}
    }
    rules
}

/// Asks by the call, and by the stream if it has such a frame; both are answered alike.
async fn ask(world: &World, rpc: &str, target: &Target<'_>, who: &Identified) -> Told {
    let told = world.call(rpc, &request(world, rpc, target), who).await;
    if rpc != "Sessions/Close" || told.refusal.is_some() {
        let asked = request(world, rpc, target);
        if let Some(framed) = world.frame(rpc, &asked, who).await {
            assert_eq!(framed.is_denied(), told.is_denied(), "{rpc}: {framed:?}");
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rpc_is_answered_to_who_may_ask_and_to_nobody_else() {
    let world = World::new().await;
    let (alice, mallory, carol) = (who("alice"), who("mallory"), who("carol"));
    let all = rule("carol", Verb::Acquire, "*");
    world.allow(&all).await;
    let other = world.open(&carol).await;
    world.take(&carol, &other, "hidden/held").await;
    let hers = world.open(&mallory).await;

    for (rpc, needs) in RPCS {
        // Each RPC has its own session and lease, and may end them.
        let session = world.open(&alice).await;
        let taker = rule("alice", Verb::Acquire, "team/*");
        let may = enough(needs);
        for right in may.iter().map(Some).chain(may.is_empty().then_some(None)) {
            let name = format!("team/{}", world.number());
            let held = match rpc {
                "Leases/Acquire" => None,
                _ => {
                    world.allow(&taker).await;
                    let holder = world.open(&alice).await;
                    world.take(&alice, &holder, &name).await;
                    world.remove(&taker).await;
                    Some(holder)
                }
            };
            let own = Target {
                name: &name,
                session: held.as_ref().unwrap_or(&session),
                other: held.as_ref().map_or(1, |held| held.session),
            };
            let hidden = Target {
                name: "hidden/held",
                session: match needs {
                    Needs::OwnSession => &other,
                    _ => &hers,
                },
                other: other.session,
            };
            let absent = Target {
                name: "hidden/absent",
                session: hidden.session,
                other: 999_999,
            };

            if let Some(right) = right {
                // Sessions can be read by whose they are.
                let her = Target {
                    other: other.session,
                    ..own
                };
                let asked = match needs {
                    Needs::Sessions => &her,
                    _ => &own,
                };
                let told = ask(&world, rpc, asked, &alice).await;
                assert!(told.is_denied(), "{rpc} without {right}: {told:?}");
                world.allow(right).await;
            }
            let told = world.call(rpc, &request(&world, rpc, &own), &alice).await;
            assert!(succeeds(rpc, &told), "{rpc} with {right:?}: {told:?}");
            if let Some(right) = right {
                world.remove(right).await;
                let asked = match needs {
                    Needs::Sessions => &hidden,
                    _ => &own,
                };
                let told = ask(&world, rpc, asked, &alice).await;
                assert!(told.is_denied(), "{rpc} when {right} is gone: {told:?}");
            }

            let rules = too_little(needs);
            for rule in &rules {
                world.allow(rule).await;
            }
            let told = ask(&world, rpc, &hidden, &mallory).await;
            // Who hands over what it does not hold is refused for that, whatever its rights.
            let foreign = rpc == "Leases/Transfer" && told.reason() == Some(Reason::NotHolder);
            let refused = needs != Needs::Admission && !foreign;
            assert_eq!(told.is_denied(), refused, "{rpc}: {told:?}");
            if refused && needs != Needs::OwnSession {
                let not_there = ask(&world, rpc, &absent, &mallory).await;
                let text = |told: &Told, name| format!("{:?}", told.refusal).replace(name, "NAME");
                assert_eq!(
                    text(&told, "hidden/held"),
                    text(&not_there, "hidden/absent"),
                    "{rpc}"
                );
            }
            for rule in &rules {
                world.remove(rule).await;
            }

            let banned = vec![AccessChange::Ban(mallory.principal.clone())];
            world.change(banned).await;
            let before = world.alone.node.read(|machine| machine.index());
            let told = ask(&world, rpc, &hidden, &mallory).await;
            assert!(told.is_denied(), "{rpc} of a banned one: {told:?}");
            let after = world.alone.node.read(|machine| machine.index());
            // Time alone may have been logged.
            assert!(after <= before + 1, "{rpc} of a banned one is logged");
            let pardoned = vec![AccessChange::Unban(mallory.principal.clone())];
            world.change(pardoned).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_proves_nothing_and_nothing_is_refused_while_rights_do_not_bind() {
    let world = World::new().await;
    let principal = Principal::parse("token:ci").unwrap();
    let token = ClusterToken {
        principal: principal.clone(),
        digest: [7; 32],
        expires: None,
    };
    let id = world.change(vec![AccessChange::AddToken(token)]).await;
    let bearer = Identified {
        principal: principal.clone(),
        token: id,
        ..who("nobody")
    };
    let target = |session| Target {
        name: "team/lease",
        session,
        other: 1,
    };
    let session = world.open(&bearer).await;
    world
        .change(vec![AccessChange::RemoveTokens(principal)])
        .await;
    for (rpc, _) in RPCS {
        let asked = request(&world, rpc, &target(&session));
        let told = world.call(rpc, &asked, &bearer).await;
        assert_eq!(told.reason(), Some(Reason::Unauthenticated), "{rpc}");
    }

    world
        .change(vec![AccessChange::SetMode(Mode::Permissive)])
        .await;
    for (rpc, _) in RPCS {
        let asked = request(&world, rpc, &target(&session));
        let told = world.call(rpc, &asked, &bearer).await;
        let refused = [Reason::Unauthenticated, Reason::PermissionDenied];
        assert!(
            !told
                .reason()
                .is_some_and(|reason| refused.contains(&reason)),
            "{rpc}: {told:?}"
        );
    }
}
