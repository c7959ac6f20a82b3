//! The judge, shown answers that no cluster may give.

use bytes::Bytes;
use prost::Message;
use ringfence_proto::Refusal;
use ringfence_proto::v1::{self, Reason};

use super::bandit::Bandit;
use super::calls::Answer;
use super::judge::Asked;
use super::known::{HIDDEN, Known, Stolen, UNSEEN};

fn handle(session: u64) -> v1::SessionHandle {
    let secret = vec![1; 16].into();
    v1::SessionHandle { session, secret }
}

/// Session 1 is an honest client's, session 2 the raider's.
fn known() -> Known {
    let stolen = Stolen {
        handle: handle(1),
        open_id: Bytes::new(),
    };
    let known = Known::new(vec![stolen], Bytes::new());
    known.opened("raider", 2, vec![1; 16].into());
    known
}

fn judged(rpc: &str, asked: &impl Message, answer: &impl Message) -> Result<(), String> {
    let raider = Bandit::with_small_right("raider", String::new(), "token:raider");
    let answer = Answer {
        messages: vec![answer.encode_to_vec().into()],
        end: Some(Ok(())),
    };
    judge(&raider, rpc, asked, &answer)
}

fn judge(bandit: &Bandit, rpc: &str, asked: &impl Message, answer: &Answer) -> Result<(), String> {
    let asked = Asked {
        bandit,
        known: &known(),
        rpc,
        sent: &[asked.encode_to_vec().into()],
    };
    asked.judge(answer)
}

#[track_caller]
fn is_found(judged: &Result<(), String>, words: &str) {
    assert!(
        judged.as_ref().is_err_and(|why| why.contains(words)),
        "{judged:?}"
    );
}

fn get(name: &str) -> (v1::GetRequest, v1::GetResponse) {
    let lease = v1::Lease {
        name: name.to_owned(),
        ..v1::Lease::default()
    };
    let asked = v1::GetRequest {
        name: name.to_owned(),
        read: None,
    };
    let answer = v1::GetResponse {
        lease: Some(lease),
        at: None,
    };
    (asked, answer)
}

fn acquire(session: u64, name: &str) -> Result<(), String> {
    let asked = v1::AcquireRequest {
        session: Some(handle(session)),
        name: name.to_owned(),
        ..v1::AcquireRequest::default()
    };
    let grant = v1::Grant {
        name: name.to_owned(),
        token: 7,
        ..v1::Grant::default()
    };
    let answer = v1::AcquireResponse {
        grant: Some(grant),
        ..v1::AcquireResponse::default()
    };
    judged("Leases/Acquire", &asked, &answer)
}

#[test]
fn what_the_rules_allow_is_no_finding() {
    let (asked, answer) = get("team-a/x");
    assert_eq!(judged("Leases/Get", &asked, &answer), Ok(()));
    assert_eq!(acquire(2, "team-a/x"), Ok(()));
}

#[test]
fn success_beyond_the_rules_is_found() {
    let (asked, answer) = get(&format!("{HIDDEN}/held-0"));
    is_found(&judged("Leases/Get", &asked, &answer), "no right to read");
    is_found(&acquire(2, "team-ab/x"), "was granted");
    is_found(&acquire(1, "team-a/x"), "done for session 1");
    let revoke = v1::RevokeRequest {
        name: "team-a/x".to_owned(),
        ..v1::RevokeRequest::default()
    };
    let revoked = judged("Leases/Revoke", &revoke, &v1::RevokeResponse::default());
    is_found(&revoked, "no right to revoke");
    let configured = v1::ConfigureResponse { settings_index: 1 };
    let configured = judged(
        "Cluster/Configure",
        &v1::ConfigureRequest::default(),
        &configured,
    );
    is_found(&configured, "no right to configure");
}

#[test]
fn a_list_that_leaves_out_is_found_and_so_is_a_word_that_was_not_said() {
    let asked = v1::ListRequest::default();
    let answer = v1::ListResponse::default();
    is_found(&judged("Leases/List", &asked, &answer), "was listed");
    let asked = v1::ListRequest {
        prefix: "team-a/".to_owned(),
        ..v1::ListRequest::default()
    };
    assert_eq!(judged("Leases/List", &asked, &answer), Ok(()));
    let (_, seen) = get(&format!("{HIDDEN}/x"));
    is_found(&judged("Leases/Get", &asked, &seen), "shows");
    let (asked, mut seen) = get("team-a/x");
    seen.lease.as_mut().unwrap().holder = Some(v1::Grant {
        identity: format!("{UNSEEN}-1"),
        ..v1::Grant::default()
    });
    is_found(&judged("Leases/Get", &asked, &seen), UNSEEN);
}

#[test]
fn a_session_whose_opening_was_not_heard_is_ones_own_by_its_identity_alone() {
    let shown_as = |session: u64, identity: &str| {
        let shown = v1::Session {
            session,
            identity: identity.to_owned(),
            ..v1::Session::default()
        };
        let answer = v1::GetSessionResponse {
            session: Some(shown),
            at: None,
        };
        judged(
            "Sessions/Get",
            &v1::GetSessionRequest {
                session,
                ..v1::GetSessionRequest::default()
            },
            &answer,
        )
    };
    assert_eq!(shown_as(2, "raider"), Ok(()));
    assert_eq!(shown_as(3, "raider"), Ok(()));
    is_found(&shown_as(3, "teller"), "the session of another");
    is_found(&shown_as(1, "raider"), "the session of another");
}

#[test]
fn a_session_of_another_that_is_renewed_is_found() {
    let asked = v1::KeepAliveRequest {
        id: 5,
        sessions: vec![handle(2), handle(1)],
        acknowledged: Vec::new(),
    };
    let mut answer = v1::KeepAliveResponse {
        id: 5,
        ..v1::KeepAliveResponse::default()
    };
    let renewed = judged("Sessions/KeepAlive", &asked, &answer);
    is_found(&renewed, "session Some(1) of another was renewed");
    answer.ended.push(v1::SessionState {
        session: 1,
        ..v1::SessionState::default()
    });
    assert_eq!(judged("Sessions/KeepAlive", &asked, &answer), Ok(()));
}

#[test]
fn a_refusal_that_tells_of_a_hidden_name_is_found() {
    let raider = Bandit::with_small_right("raider", String::new(), "token:raider");
    let refused = |name: &str, reason| {
        let (asked, _) = get(name);
        let status = Refusal::new(reason, "why").into();
        let answer = Answer {
            messages: Vec::new(),
            end: Some(Err(status)),
        };
        judge(&raider, "Leases/Get", &asked, &answer)
    };
    let hidden = format!("{HIDDEN}/x");
    assert_eq!(refused(&hidden, Reason::PermissionDenied), Ok(()));
    assert_eq!(refused("team-a/x", Reason::NotFound), Ok(()));
    is_found(
        &refused(&hidden, Reason::NotFound),
        "tells of a hidden name",
    );
    is_found(&refused("team-a/x", Reason::Fault), "a fault");
}
