//! Bad input is refused with the field, what was offered and what is allowed.

use bytes::Bytes;
use ringfence_proto::Refusal;
use ringfence_proto::v1::{self, Reason};
use ringfence_proto::wire::*;

const SECRET: &[u8] = b"sixteen bytes!!!";

fn handle() -> Option<v1::SessionHandle> {
    Some(v1::SessionHandle {
        session: 7,
        secret: Bytes::from_static(SECRET),
    })
}

fn acquire() -> v1::AcquireRequest {
    v1::AcquireRequest {
        session: handle(),
        number: 3,
        name: "db/primary".into(),
        ..Default::default()
    }
}

fn open() -> v1::OpenRequest {
    v1::OpenRequest {
        id: Bytes::from_static(b"an id of sixteen"),
        secret: Bytes::from_static(SECRET),
        ..Default::default()
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, field: &str, offered: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.reason, Reason::InvalidArgument, "{refusal}");
    assert_eq!(refusal.metadata["field"], field, "{refusal}");
    assert_eq!(refusal.metadata["offered"], offered, "{refusal}");
    assert!(!refusal.metadata["allowed"].is_empty(), "{refusal}");
    assert!(
        refusal
            .message
            .starts_with(&format!("{field}: {offered} was offered")),
        "{refusal}"
    );
}

#[test]
fn names_that_are_none() {
    let named = |name: &str| {
        acquire_from_wire(v1::AcquireRequest {
            name: name.into(),
            ..acquire()
        })
    };
    refused(named(""), "name", "\"\"");
    refused(named("a//b"), "name", "\"a//b\"");
    refused(named("a/../b"), "name", "\"a/../b\"");
    refused(named("zwei Worte"), "name", "\"zwei Worte\"");
    // What is offered is cut, also in the midst of letters of several bytes.
    let long = "é".repeat(200);
    let cut = format!("{:?}... (400 bytes)", "é".repeat(32));
    refused(named(&long), "name", &cut);
}

#[test]
fn numbers_out_of_range() {
    let number = v1::AcquireRequest {
        number: 0,
        ..acquire()
    };
    refused(acquire_from_wire(number), "number", "0");
    let lowest = v1::AcquireRequest {
        lowest: 4,
        ..acquire()
    };
    refused(acquire_from_wire(lowest), "lowest", "4");
    let wait = v1::AcquireRequest {
        wait_ms: Some(86_400_001),
        ..acquire()
    };
    refused(acquire_from_wire(wait), "wait_ms", "86400001");
    let delay = v1::AcquireRequest {
        lock_delay_ms: 60_001,
        ..acquire()
    };
    refused(acquire_from_wire(delay), "lock_delay_ms", "60001");
    let data = v1::AcquireRequest {
        data: vec![0; 1025].into(),
        ..acquire()
    };
    refused(acquire_from_wire(data), "data", "1025 bytes");
    let release = v1::ReleaseRequest {
        session: handle(),
        number: 1,
        name: "a".into(),
        token: 1 << 63,
        ..Default::default()
    };
    refused(release_from_wire(release), "token", "9223372036854775808");
    let cancel = v1::CancelRequest {
        session: handle(),
        number: 2,
        ..Default::default()
    };
    refused(cancel_from_wire(cancel), "target", "0");
}

#[test]
fn the_edges_of_the_ranges_are_inside() {
    let widest = v1::AcquireRequest {
        wait_ms: Some(86_400_000),
        lock_delay_ms: 60_000,
        data: vec![0; 1024].into(),
        lowest: 3,
        name: "a".repeat(255),
        ..acquire()
    };
    assert!(acquire_from_wire(widest).is_ok());
}

#[test]
fn handles_that_prove_nothing() {
    let missing = v1::AcquireRequest {
        session: None,
        ..acquire()
    };
    refused(acquire_from_wire(missing), "session", "nothing");
    let none = v1::SessionHandle {
        session: 0,
        ..handle().unwrap()
    };
    refused(session_handle_from_wire(Some(none)), "session.session", "0");
    let long = v1::SessionHandle {
        secret: Bytes::from_static(b"seventeen letters"),
        session: 7,
    };
    let refusal = session_handle_from_wire(Some(long)).unwrap_err();
    assert!(!refusal.to_string().contains("seventeen"), "{refusal}");
    refused::<()>(Err(refusal), "session.secret", "a value of 17 bytes");
}

#[test]
fn an_open_that_is_malformed() {
    let id = v1::OpenRequest {
        id: Bytes::new(),
        ..open()
    };
    refused(open_from_wire(id), "id", "a value of 0 bytes");
    let identity = v1::OpenRequest {
        identity: "line\nbreak".into(),
        ..open()
    };
    refused(open_from_wire(identity), "identity", "\"line\\nbreak\"");
    let both = v1::AcquireRequest {
        open: Some(open()),
        ..acquire()
    };
    refused(acquire_from_wire(both), "open", "both `session` and `open`");
    let later = v1::AcquireRequest {
        session: None,
        open: Some(open()),
        number: 2,
        ..acquire()
    };
    refused(acquire_from_wire(later), "number", "2");
}

#[test]
fn a_ttl_that_is_left_out_is_fifteen_seconds_and_zero_is_zero() {
    assert_eq!(open_from_wire(open()).unwrap().ttl, TTL_STANDARD);
    assert_eq!(TTL_STANDARD.0, 15_000);
    let zero = v1::OpenRequest {
        ttl_ms: Some(0),
        ..open()
    };
    // No TTL of any cluster, so the state machine refuses it.
    assert_eq!(open_from_wire(zero).unwrap().ttl.0, 0);
}

#[test]
fn a_wait_that_outlasts_the_session_it_opens() {
    let inline = |ttl_ms, wait_ms| v1::AcquireRequest {
        session: None,
        open: Some(v1::OpenRequest { ttl_ms, ..open() }),
        number: 1,
        wait_ms,
        ..acquire()
    };
    let outlasted = inline(Some(2_000), Some(2_000));
    refused(acquire_from_wire(outlasted), "wait_ms", "2000");
    refused(
        acquire_from_wire(inline(None, Some(15_000))),
        "wait_ms",
        "15000",
    );
    assert!(acquire_from_wire(inline(Some(2_000), Some(1_999))).is_ok());
    assert!(acquire_from_wire(inline(Some(2_000), None)).is_ok());
}

#[test]
fn a_change_of_settings_touches_those_that_it_names() {
    let before = ringfence_core::Settings::STANDARD;
    let nothing = v1::SettingsChange::default();
    assert_eq!(settings_changed(&before, &nothing), before);
    let change = v1::SettingsChange {
        ttl_max_ms: Some(0),
        leases_max: Some(7),
        ..nothing
    };
    let after = settings_changed(&before, &change);
    assert_eq!(
        (after.ttl_max.0, after.leases_max),
        (0, 7),
        "0 is no absence"
    );
    let whole = ringfence_core::Settings {
        ttl_max: before.ttl_max,
        leases_max: before.leases_max,
        ..after
    };
    assert_eq!(whole, before);
}

#[test]
fn a_lowest_number_that_is_left_out_is_the_requests_own() {
    let Ok(ringfence_core::Command::Request(request)) = acquire_from_wire(acquire()) else {
        panic!("an acquire of a session is a request");
    };
    assert_eq!(request.lowest, request.number);
}

#[test]
fn too_many_sessions_in_one_message() {
    let sessions = vec![handle().unwrap(); KEEP_ALIVE_SESSIONS_MAX + 1];
    let request = v1::KeepAliveRequest {
        id: 1,
        sessions,
        ..Default::default()
    };
    refused(keep_alive_from_wire(request), "sessions", "10001 sessions");
}

#[test]
fn a_malformed_handle_is_refused_by_itself() {
    let good = handle().unwrap();
    let short = v1::SessionHandle {
        secret: vec![1; 15].into(),
        ..good.clone()
    };
    let none = v1::SessionHandle {
        session: 0,
        ..good.clone()
    };
    let request = v1::KeepAliveRequest {
        id: 1,
        sessions: vec![short.clone(), good, none],
        ..Default::default()
    };
    let keep_alive = keep_alive_from_wire(request).unwrap();
    assert_eq!(keep_alive.sessions.len(), 1);
    assert_eq!(
        keep_alive.malformed,
        [
            (short.session, v1::Reason::WrongSecret),
            (0, v1::Reason::InvalidArgument)
        ]
    );
    let answer = with_malformed(v1::KeepAliveResponse::default(), &keep_alive.malformed);
    assert_eq!(answer.ended.len(), 2);
}

#[test]
fn too_many_acknowledged_losses_in_one_message() {
    let loss = v1::Acknowledged {
        session: 1,
        token: 1,
    };
    let request = v1::KeepAliveRequest {
        id: 1,
        sessions: vec![handle().unwrap()],
        acknowledged: vec![loss; KEEP_ALIVE_ACKNOWLEDGED_MAX + 1],
    };
    refused(
        keep_alive_from_wire(request.clone()),
        "acknowledged",
        "10001 losses",
    );
    let fits = v1::KeepAliveRequest {
        acknowledged: request.acknowledged[1..].to_vec(),
        ..request
    };
    assert!(keep_alive_from_wire(fits).is_ok());
}

#[test]
fn operators_who_say_too_much() {
    let revoke = v1::RevokeRequest {
        name: "a".into(),
        token: 1,
        reason: "x".repeat(256),
        ..Default::default()
    };
    let shown = format!("{:?}... (256 bytes)", "x".repeat(64));
    refused(revoke_from_wire(revoke), "reason", &shown);
    let evict = v1::EvictRequest {
        session: 1,
        operator: "\u{7}".into(),
        ..Default::default()
    };
    refused(evict_from_wire(evict), "operator", "\"\\u{7}\"");
}

#[test]
fn reads_that_ask_for_too_much() {
    let read = Some(v1::ReadOptions {
        max_staleness_ms: 60_001,
    });
    refused(
        max_staleness_from_wire(read),
        "read.max_staleness_ms",
        "60001",
    );
    let list = v1::ListRequest {
        page_size: 10_001,
        ..Default::default()
    };
    refused(list_from_wire(list), "page_size", "10001");
    let sessions = v1::ListSessionsRequest {
        page_size: 10_001,
        ..Default::default()
    };
    refused(list_sessions_from_wire(&sessions), "page_size", "10001");
    let nothing = v1::HistoryRequest::default();
    refused(history_from_wire(nothing), "name", "nothing");
    let both = v1::HistoryRequest {
        name: "a".into(),
        token: 1,
        limit: 0,
    };
    refused(history_from_wire(both), "token", "a name and a token");
    let position = v1::Position {
        cluster_id: Bytes::from_static(b"short"),
        index: 1,
        n: 0,
        term: 0,
    };
    refused(
        position_from_wire(&position),
        "position.cluster_id",
        "a value of 5 bytes",
    );
    refused(
        configure_from_wire(&v1::ConfigureRequest::default()),
        "settings",
        "nothing",
    );
}

#[test]
fn a_frame_without_a_body_this_version_knows() {
    refused(frame_from_wire(None), "body", "nothing");
}

fn changing(change: v1::access_change::Change) -> Result<ringfence_core::ChangeAccess, Refusal> {
    change_access_from_wire(v1::ChangeAccessRequest {
        cluster_id: Bytes::from_static(SECRET),
        based_on: 0,
        changes: vec![v1::AccessChange {
            change: Some(change),
        }],
    })
}

#[test]
fn rules_that_are_none() {
    use v1::access_change::Change;
    let rule = |principals: &str, verb: v1::Verb, names: &str| {
        changing(Change::AddRule(v1::Rule {
            principals: principals.into(),
            verb: verb.into(),
            names: names.into(),
        }))
    };
    let field = |name| format!("changes[0].add_rule.{name}");
    refused(rule("", v1::Verb::Admin, ""), &field("principals"), "\"\"");
    refused(
        rule("jwt:ci*", v1::Verb::Admin, ""),
        &field("principals"),
        "\"jwt:ci*\"",
    );
    refused(
        rule("*", v1::Verb::Unspecified, ""),
        &field("verb"),
        "nothing",
    );
    refused(
        rule("*", v1::Verb::Acquire, "team*"),
        &field("names"),
        "\"team*\"",
    );
    refused(rule("*", v1::Verb::Acquire, ""), &field("names"), "\"\"");
    refused(rule("*", v1::Verb::Admin, "a"), &field("names"), "\"a\"");
    refused(
        rule("token:*", v1::Verb::Acquire, "k8s/{namespace}/*"),
        &field("names"),
        "\"k8s/{namespace}/*\"",
    );
}

#[test]
fn changes_of_rights_that_are_none() {
    use v1::access_change::Change;
    let token = |principal: &str, bytes: usize| {
        changing(Change::AddToken(v1::NewToken {
            principal: principal.into(),
            digest: vec![1; bytes].into(),
            expires_unix: 0,
        }))
    };
    let field = |name| format!("changes[0].{name}");
    refused(
        token("token:a", 31),
        &field("add_token.digest"),
        "a value of 31 bytes",
    );
    refused(
        token("local", 32),
        &field("add_token.principal"),
        "\"local\"",
    );
    refused(
        changing(Change::Ban("alice".into())),
        &field("ban"),
        "\"alice\"",
    );
    refused(changing(Change::SetMode(9)), &field("set_mode"), "9");
    let limits = v1::PrincipalLimits {
        sessions: 1,
        leases: 0,
    };
    refused(
        changing(Change::SetLimits(limits)),
        &field("set_limits.leases"),
        "0",
    );
    let none = v1::ChangeAccessRequest {
        cluster_id: Bytes::from_static(SECRET),
        ..Default::default()
    };
    refused(change_access_from_wire(none), "changes", "0 changes");
    let nameless = v1::ChangeAccessRequest::default();
    refused(
        change_access_from_wire(nameless),
        "cluster_id",
        "a value of 0 bytes",
    );
}

#[test]
fn questions_about_rights_that_make_no_sense() {
    let test = |principal: &str, verb: v1::Verb, names: &str| {
        test_access_from_wire(&v1::TestAccessRequest {
            principal: principal.into(),
            verb: verb.into(),
            names: names.into(),
        })
    };
    refused(test("bob", v1::Verb::Admin, ""), "principal", "\"bob\"");
    refused(test("", v1::Verb::Unspecified, ""), "verb", "nothing");
    refused(test("", v1::Verb::Admin, "a"), "names", "\"a\"");
    refused(test("", v1::Verb::Acquire, ""), "names", "nothing");
    refused(test("", v1::Verb::Acquire, "/*"), "names", "\"\"");
    assert!(test("", v1::Verb::Acquire, "team*").is_ok(), "a prefix");
    assert!(test("local", v1::Verb::Backup, "").is_ok());
}

#[test]
fn pages_of_acts_that_make_no_sense() {
    let ask = |cluster_id: &'static [u8], limit| {
        list_acts_from_wire(&v1::ListActsRequest {
            cluster_id: Bytes::from_static(cluster_id),
            after: 7,
            limit,
        })
    };
    refused(ask(b"", ACTS_PER_PAGE_MAX + 1), "limit", "1001");
    refused(ask(b"seven b", 1), "cluster_id", "a value of 7 bytes");
    let whole = ask(SECRET, 0).unwrap();
    assert_eq!((whole.after, whole.limit), (7, ACTS_PER_PAGE as usize));
    assert!(whole.cluster.is_some() && ask(b"", 1).unwrap().cluster.is_none());
}
