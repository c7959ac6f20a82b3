//! Audience, times, and claims that are there twice.

use std::cell::Cell;

use ringfence_access::{Demand, Grace, NotProven, Peer, Proven};
use serde_json::{Value, json};

use crate::support::{AUDIENCE, ISSUER, NOW, SigningKey, Site, claims, claims_but};

fn site() -> (SigningKey, Site) {
    let key = SigningKey::ed25519("k");
    let site = Site::of(&[&key]);
    (key, site)
}

#[test]
fn attack_10_a_token_for_no_audience_or_another_is_refused() {
    let (key, site) = site();
    site.assert_refused(&key.token(&claims_but("aud", Value::Null)), "has no `aud`");
    let token = key.token_of(
        &key.header().to_string(),
        &format!(
            r#"{{"iss":"{ISSUER}","sub":"alice","aud":null,"exp":{}}}"#,
            NOW + 9
        ),
    );
    site.assert_refused(&token, "has no `aud`");
    for other in [
        json!("another"),
        json!(""),
        json!("ringfence-test"),
        json!("ringfenc"),
        json!("Ringfence"),
        json!("ringfence "),
        json!("ringfence/"),
        json!("*"),
        json!([]),
        json!(["another", "ringfence-test"]),
        json!(["ring", "fence"]),
    ] {
        let token = key.token(&claims_but("aud", other.clone()));
        site.assert_refused(&token, "`aud` is not the audience");
    }
    for no_text in [
        json!(1),
        json!({ "ringfence": 1 }),
        json!([["ringfence"]]),
        json!(["ringfence", 1]),
        json!(true),
    ] {
        let token = key.token(&claims_but("aud", no_text.clone()));
        site.assert_refused(&token, "malformed JWT");
    }
}

#[test]
fn a_list_of_audiences_may_name_this_cluster_among_others() {
    let (key, site) = site();
    for list in [
        json!([AUDIENCE]),
        json!(["a", AUDIENCE, "b"]),
        json!([AUDIENCE, AUDIENCE]),
    ] {
        assert!(site.prove(&key.token(&claims_but("aud", list))).is_ok());
    }
}

#[test]
fn attack_10_a_token_without_an_end_is_refused() {
    let (key, site) = site();
    site.assert_refused(&key.token(&claims_but("exp", Value::Null)), "has no `exp`");
    for no_number in [json!("1800000600"), json!([NOW]), json!({}), json!(true)] {
        let token = key.token(&claims_but("exp", no_number));
        site.assert_refused(&token, "malformed JWT");
    }
    for out_of_range in ["-1", "1e300", "-1e300", "18446744073709551616"] {
        let claims = format!(
            r#"{{"iss":"{ISSUER}","sub":"alice","aud":"{AUDIENCE}","exp":{out_of_range}}}"#
        );
        let token = key.token_of(&key.header().to_string(), &claims);
        site.assert_refused(&token, "out of range");
    }
    for no_json in ["1e999", "NaN", "Infinity", "0x7fffffff", "+1", "01"] {
        let claims =
            format!(r#"{{"iss":"{ISSUER}","sub":"alice","aud":"{AUDIENCE}","exp":{no_json}}}"#);
        let token = key.token_of(&key.header().to_string(), &claims);
        site.assert_refused(&token, "malformed JWT");
    }
}

#[test]
fn attack_10_an_expired_token_is_refused_from_a_minute_after_its_end() {
    let (key, site) = site();
    for (exp, good) in [
        (NOW + 1, true),
        (NOW, true),
        (NOW - 59, true),
        (NOW - 60, false),
        (NOW - 61, false),
        (NOW - 100_000, false),
        (0, false),
    ] {
        let proven = site.prove(&key.token(&claims_but("exp", json!(exp))));
        match good {
            true => assert_eq!(proven.unwrap().expires_unix, Some(exp + 60)),
            false => assert!(proven.unwrap_err().why.contains("has expired")),
        }
    }
}

#[test]
fn attack_10_a_remembered_token_ends_at_its_end_too() {
    let (key, site) = site();
    let token = key.token(&claims_but("exp", json!(NOW + 10)));
    for now in [NOW, NOW + 10, NOW + 69] {
        assert!(site.prove_at(&token, now).is_ok());
    }
    assert_eq!(site.prover.figures().cached, 2);
    for now in [NOW + 70, NOW + 71, NOW + 1_000_000] {
        let refused = site.prove_at(&token, now).unwrap_err();
        assert!(refused.why.contains("has expired"), "{refused}");
    }
    assert_eq!(site.prover.figures().cached, 2);
}

#[test]
fn a_grace_takes_a_token_beyond_its_end_and_says_that_it_does_not_hold() {
    let (key, site) = site();
    let asked = Cell::new(0);
    let counts = |_: &Proven| {
        asked.set(asked.get() + 1);
        Ok(())
    };
    let token = key.token(&claims_but("exp", json!(NOW - 100)));
    let header = format!("Bearer {token}");
    let prove = |now, seconds| {
        let header = Some(header.as_bytes());
        site.prover
            .prove_as(&Peer::bare(), header, now, demand(seconds, &counts))
    };
    // It ended 40 seconds ago, leeway included; looked at twice, since proofs are remembered.
    for (now, grace, good) in [
        (NOW, 40, false),
        (NOW, 41, true),
        (NOW, 41, true),
        (NOW + 1, 41, false),
        (NOW, 86_400, true),
        (NOW, 0, false),
        (NOW, u64::MAX, true),
        (NOW - 41, 0, true),
    ] {
        let proven = prove(now, grace);
        assert_eq!(proven.is_ok(), good, "{now} {grace}: {proven:?}");
        if let Ok(proven) = proven {
            assert_eq!(proven.expires_unix, Some(NOW - 40));
            assert_eq!(proven.holds_at(now), now < NOW - 40);
        }
    }
    assert_eq!(asked.get(), 4, "of what still holds nothing is asked");
}

fn demand(seconds: u64, counts: &dyn Fn(&Proven) -> Result<(), NotProven>) -> Demand<'_> {
    Demand {
        binds: true,
        grace: Some(Grace { seconds, counts }),
    }
}

#[test]
fn an_expired_token_that_counts_for_nothing_is_a_failed_proof() {
    let (key, site) = site();
    let token = key.token(&claims_but("exp", json!(NOW - 100)));
    let header = format!("Bearer {token}");
    let prove = |counts: &dyn Fn(&Proven) -> Result<(), NotProven>| {
        let header = Some(header.as_bytes());
        let demand = demand(86_400, counts);
        site.prover.prove_as(&Peer::bare(), header, NOW, demand)
    };
    assert!(prove(&|_| Ok(())).is_ok());
    let refused = prove(&|_| Err(NotProven::EXPIRED)).unwrap_err();
    assert!(refused.why.contains("has expired"), "{refused}");
    // Neither that nor a refusal at a port without grace makes this one verify it again.
    assert!(site.prove(&token).is_err());
    let cached = site.prover.figures().cached;
    assert!(prove(&|_| Ok(())).is_ok());
    let figures = site.prover.figures();
    assert_eq!(figures.cached, cached + 1);
    assert_eq!(figures.failed[2].1, 2);
    // Whatever its age, it is verified once, and none is charged for it.
    let old = key.token(&claims_but("exp", json!(1_000)));
    let header = format!("Bearer {old}");
    for _ in 0..1_000 {
        let header = Some(header.as_bytes());
        let refused = site
            .prover
            .prove_as(&Peer::bare(), header, NOW, demand(10, &|_| Ok(())));
        assert!(refused.unwrap_err().is_expired());
    }
    assert_eq!(site.prover.figures().limited, 0);
}

#[test]
fn an_end_beyond_every_clock_is_an_end() {
    let (key, site) = site();
    let proven = site.prove(&key.token(&claims_but("exp", json!(u64::MAX))));
    assert_eq!(proven.unwrap().expires_unix, Some(u64::MAX));
    let proven = site.prove(&key.token(&claims_but("exp", json!(1_800_000_000.75))));
    assert_eq!(proven.unwrap().expires_unix, Some(NOW + 60));
}

#[test]
fn a_token_is_good_from_a_minute_before_its_begin() {
    let (key, site) = site();
    for begins in ["nbf", "iat"] {
        for (at, good) in [
            (0, true),
            (NOW, true),
            (NOW + 60, true),
            (NOW + 61, false),
            (NOW + 100_000, false),
        ] {
            let proven = site.prove(&key.token(&claims_but(begins, json!(at))));
            assert_eq!(proven.is_ok(), good, "{begins} {at}");
        }
        let token = key.token(&claims_but(begins, json!("soon")));
        site.assert_refused(&token, "malformed JWT");
        let token = key.token(&claims_but(begins, json!(-5)));
        site.assert_refused(&token, "out of range");
    }
}

#[test]
fn a_claim_that_is_there_twice_is_refused() {
    let (key, site) = site();
    let once = format!(
        r#""iss":"{ISSUER}","sub":"alice","aud":"{AUDIENCE}","exp":{},"nbf":1,"iat":1"#,
        NOW + 9
    );
    let token = |claims: &str| key.token_of(&key.header().to_string(), claims);
    assert!(site.prove(&token(&format!("{{{once}}}"))).is_ok());
    for again in [
        r#""iss":"https://idp.example""#,
        r#""iss":"https://another.example""#,
        r#""sub":"admin""#,
        r#""aud":"ringfence""#,
        r#""exp":1900000000"#,
        r#""nbf":0"#,
        r#""iat":0"#,
        r#""\u0073ub":"admin""#,
        r#""sub":null"#,
    ] {
        let before = token(&format!("{{{again},{once}}}"));
        let behind = token(&format!("{{{once},{again}}}"));
        site.assert_refused(&before, "malformed JWT");
        site.assert_refused(&behind, "malformed JWT");
    }
}

#[test]
fn only_a_json_object_makes_a_header_or_claims() {
    let (key, site) = site();
    let header = key.header().to_string();
    let good = claims("alice").to_string();
    // The fields in the order in which the reader has them.
    let listed = format!(
        r#"["{ISSUER}","alice","{AUDIENCE}",{},null,null]"#,
        NOW + 600
    );
    for wrong in [
        listed.as_str(),
        "[]",
        "\"alice\"",
        "null",
        "",
        "{",
        "{}{}",
        &format!("{good}x"),
        &format!("[{good}]"),
    ] {
        site.assert_refused(&key.token_of(&header, wrong), "malformed JWT");
    }
    for wrong in [
        r#"["EdDSA","k",null]"#,
        r#"["EdDSA"]"#,
        "\"EdDSA\"",
        "",
        "{",
    ] {
        site.assert_refused(&key.token_of(wrong, &good), "malformed JWT");
    }
    let spaced = format!(" \n{good}\t ");
    assert!(site.prove(&key.token_of(&header, &spaced)).is_ok());
}

#[test]
fn claims_that_nest_deeply_are_skipped_and_no_utf8_is_refused() {
    let (key, site) = site();
    let header = key.header().to_string();
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(2_000), "]".repeat(2_000));
    // Claims that are not read are skipped without recursion.
    site.assert_refused(&key.token_of(&header, &deep), "`iss` is no issuer");
    let deep = deep.replace("\"x\"", "\"aud\"");
    site.assert_refused(&key.token_of(&header, &deep), "malformed JWT");
    let bytes = b"{\"iss\":\"\xff\xfe\"}";
    let token = crate::support::compact(&header, bytes, |signed| key.sign(signed));
    site.assert_refused(&token, "malformed JWT");
}
