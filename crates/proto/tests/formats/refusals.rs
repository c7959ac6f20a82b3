//! The error table.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use ringfence_proto::Refusal;
use ringfence_proto::refusal::{ERROR_DOMAIN, RETRY_AFTER_MAX, code, reason_name};
use ringfence_proto::text::hex;
use ringfence_proto::v1::{self, Reason};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::{arbitrary, examples};

/// All reasons that there are, up to the first number that none has.
fn reasons() -> Vec<Reason> {
    (1..)
        .map_while(|number| Reason::try_from(number).ok())
        .collect()
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let metadata = btree_map("[a-z_]{1,12}", "\\PC{0,40}", 0..5);
    let after = option::of((1..100_000_000u64).prop_map(Duration::from_millis));
    (select(reasons()), "\\PC{0,80}", metadata, after).prop_map(
        |(reason, message, metadata, retry_after)| Refusal {
            reason,
            message,
            metadata,
            retry_after,
        },
    )
}

proptest! {
    #[test]
    fn a_refusal_survives_a_status(refusal in refusal()) {
        let status = Status::from(refusal.clone());
        prop_assert_eq!(status.code(), code(refusal.reason));
        prop_assert_eq!(Refusal::from_status(&status), Some(refusal));
    }

    #[test]
    fn a_refusal_survives_a_stream(refusal in refusal()) {
        let wire = v1::Refusal::from(refusal.clone());
        prop_assert_eq!(Refusal::from_wire(wire), Some(refusal));
    }

    #[test]
    fn every_rejection_becomes_a_refusal_that_survives(rejection in arbitrary::rejection()) {
        let refusal = Refusal::from_rejection(&rejection);
        prop_assert!(refusal.is_certain());
        prop_assert_eq!(Refusal::from_status(&refusal.clone().into()), Some(refusal));
    }
}

#[test]
fn every_reason_has_a_code_and_a_name() {
    let reasons = reasons();
    assert_eq!(reasons.last(), Some(&Reason::StaleAccess));
    let names: BTreeSet<_> = reasons.iter().map(|reason| reason_name(*reason)).collect();
    assert_eq!(names.len(), reasons.len());
    for reason in reasons {
        assert!(
            !matches!(code(reason), Code::Ok | Code::Unknown),
            "{reason:?}"
        );
        assert!(!reason_name(reason).starts_with("REASON_"), "{reason:?}");
    }
}

/// The comment at each reason in the `.proto` file begins with its code.
#[test]
fn the_codes_are_those_that_the_proto_file_promises() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../proto/ringfence/v1/types.proto"
    );
    let proto = std::fs::read_to_string(path).unwrap();
    let mut promised = None;
    let mut checked = 0;
    for line in proto.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("// ") {
            let word = comment.split(['.', ',']).next().unwrap();
            let is_code = word.len() > 3 && word.chars().all(|c| c.is_uppercase() || c == '_');
            promised = if is_code { Some(word) } else { promised };
        } else if let Some((name, _)) = line.split_once(" = ")
            && name.starts_with("REASON_")
            && name != "REASON_UNSPECIFIED"
        {
            let reason = Reason::from_str_name(name).unwrap();
            let found = format!("{:?}", code(reason)).to_uppercase();
            let promised = promised
                .take()
                .unwrap_or_else(|| panic!("{name} promises no code"));
            assert_eq!(found, promised.replace('_', ""), "{name}");
            checked += 1;
        }
    }
    assert_eq!(checked, reasons().len());
}

#[test]
fn a_status_carries_error_info_of_our_domain_and_retry_info() {
    let refusal = Refusal::unavailable(
        "no leader is known",
        Some("db-1:7070"),
        Duration::from_secs(1),
    );

    let status = Status::from(refusal);

    assert_eq!(status.code(), Code::Unavailable);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.domain.as_str()),
        ("UNAVAILABLE", ERROR_DOMAIN)
    );
    assert_eq!(info.metadata["leader"], "db-1:7070");
    let retry = status.get_details_retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));
}

#[test]
fn a_status_of_anybody_else_says_nothing_about_the_outcome() {
    assert_eq!(
        Refusal::from_status(&Status::unavailable("connection reset")),
        None
    );
    let details = |reason: &str, domain: &str| {
        let details = ErrorDetails::with_error_info(reason, domain, []);
        Status::with_error_details(Code::NotFound, "not there", details)
    };
    assert_eq!(Refusal::from_status(&details("HELD", "example.org")), None);
    assert_eq!(
        Refusal::from_status(&details("A_REASON_OF_TOMORROW", ERROR_DOMAIN)),
        None
    );
    assert_eq!(
        Refusal::from_status(&details("UNSPECIFIED", ERROR_DOMAIN)),
        None
    );
    let torn = Status::with_details(Code::NotFound, "not there", vec![0xff; 9].into());
    assert_eq!(Refusal::from_status(&torn), None);
}

#[test]
fn a_reason_of_tomorrow_in_a_stream_says_nothing_about_the_outcome() {
    for reason in [0, 1000, -1] {
        let refusal = v1::Refusal {
            reason,
            ..Default::default()
        };
        assert_eq!(Refusal::from_wire(refusal), None);
    }
}

#[test]
fn only_certain_reasons_say_that_nothing_was_done() {
    let uncertain: Vec<_> = reasons()
        .into_iter()
        .filter(|reason| !Refusal::new(*reason, "").is_certain())
        .collect();
    assert_eq!(uncertain, [Reason::OutcomeUnknown, Reason::Fault]);
}

/// All that a person reads, as a golden text.
#[test]
fn every_rejection_is_told_as_ever() {
    let mut found = String::new();
    for (kind, rejection) in examples::rejections() {
        let refusal = Refusal::from_rejection(&rejection);
        assert!(refusal.message.len() > 20, "{kind}");
        assert!(!refusal.message.contains('\n'), "{kind}");
        found += &format!("{kind}\n  {refusal}\n");
        for (key, value) in &refusal.metadata {
            found += &format!("  {key}={value}\n");
        }
        if let Some(time) = refusal.retry_after {
            found += &format!("  retry after {time:?}\n");
        }
    }
    let secret = hex(&examples::SECRET);
    assert!(
        !found.contains(&secret) && !found.contains("sixteen byte"),
        "a secret is shown"
    );
    let path = super::golden::path("rejections.txt");
    if super::golden::recording() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(
        found,
        std::fs::read_to_string(&path).unwrap(),
        "RECORD=1 records the new text"
    );
}

/// How what is to be done begins, behind what was offered and what is allowed.
const NEXT_STEPS: &[&str] = &[
    "ask ",
    "base ",
    "check ",
    "close ",
    "come back",
    "correct ",
    "delete ",
    "form ",
    "go on ",
    "join ",
    "let ",
    "open ",
    "raise ",
    "read ",
    "release ",
    "repeat ",
    "say ",
    "show ",
    "stop ",
    "try ",
    "use ",
    "wait",
];

#[test]
fn every_rejection_says_what_to_do() {
    for (kind, rejection) in examples::rejections() {
        let told = Refusal::from_rejection(&rejection).to_string();
        let mut parts = told.split([';', ':', ',']).map(str::trim_start);
        let step = parts.any(|part| NEXT_STEPS.iter().any(|step| part.starts_with(step)));
        assert!(step, "no next step: {kind}: {told}");
    }
}

#[test]
fn the_time_to_come_back_is_rounded_up() {
    let refusal = Refusal::new(Reason::Unavailable, "").retry_after(Duration::from_micros(1_001));
    assert_eq!(v1::Refusal::from(refusal).retry_after_ms, 2);
}

#[test]
fn an_endless_time_to_come_back_is_cut() {
    let endless = Refusal::new(Reason::QuietTime, "").retry_after(Duration::MAX);
    assert_eq!(endless.retry_after, Some(RETRY_AFTER_MAX));
    let wire = v1::Refusal {
        retry_after_ms: u64::MAX,
        ..endless.clone().into()
    };
    assert_eq!(
        Refusal::from_wire(wire).unwrap().retry_after,
        Some(RETRY_AFTER_MAX)
    );
    let longer = Refusal {
        retry_after: Some(Duration::MAX),
        ..endless
    };
    let told = Refusal::from_status(&longer.into()).unwrap();
    assert_eq!(told.retry_after, Some(RETRY_AFTER_MAX));
}

/// The comments of `types.proto` are the reference for callers: each reason has one, which begins with
/// its code and says what it is for.
#[test]
fn the_comment_of_each_reason_begins_with_its_code() {
    let text = include_str!("../../../../proto/ringfence/v1/types.proto");
    let (_, reasons_on) = text.split_once("enum Reason {\n").unwrap();
    let (body, _) = reasons_on.split_once("\n}").unwrap();
    let mut comment = String::new();
    let mut described = Vec::new();
    for line in body.lines().map(str::trim) {
        match line.strip_prefix("//") {
            Some(more) => comment.push_str(more),
            None => {
                let (name, _) = line.split_once(" = ").unwrap();
                described.push((name.to_owned(), std::mem::take(&mut comment)));
            }
        }
    }
    let (unspecified, described) = described.split_first().unwrap();
    assert_eq!(unspecified.0, "REASON_UNSPECIFIED");
    let names: Vec<_> = described.iter().map(|(name, _)| name.as_str()).collect();
    let known: Vec<_> = reasons().iter().map(Reason::as_str_name).collect();
    assert_eq!(names, known);
    for (reason, (name, comment)) in reasons().into_iter().zip(described) {
        let said = comment.trim().split([',', '.']).next().unwrap();
        // As `FailedPrecondition`, in the words of gRPC.
        let code = format!("{:?}", code(reason)).to_uppercase();
        assert_eq!(said.replace('_', ""), code, "{name}");
        assert!(comment.len() > said.len() + 20, "{name}: {comment}");
    }
}
