//! Names in client certificates. The handshake that verifies them is not part of this.

use rcgen::string::Ia5String;
use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair, SanType, date_time_ymd};
use ringfence_access::{CertificateKind, NotProven, Peer, Proven};

use crate::support::Site;

const KINDS: [CertificateKind; 4] = [
    CertificateKind::Uri,
    CertificateKind::Dns,
    CertificateKind::Email,
    CertificateKind::CommonName,
];

fn ia5(text: &str) -> Ia5String {
    Ia5String::try_from(text).unwrap()
}

fn uri(text: &str) -> SanType {
    SanType::URI(ia5(text))
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(ia5(text))
}

fn email(text: &str) -> SanType {
    SanType::Rfc822Name(ia5(text))
}

/// A certificate that is good through 2026.
fn params(common_name: Option<&str>, names: &[SanType]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(name) = common_name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.subject_alt_names = names.to_vec();
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    params
}

fn der(params: &CertificateParams) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

/// A time within 2026.
fn within() -> u64 {
    unix(2026, 7)
}

fn unix(year: i32, month: u8) -> u64 {
    let time = date_time_ymd(year, month, 1).unix_timestamp();
    u64::try_from(time).unwrap()
}

fn prove_der(kind: CertificateKind, der: &[u8]) -> Result<Proven, NotProven> {
    let site = Site::of_certificates(kind);
    let peer = site.prover.peer(&[der]);
    site.prover.prove(&peer, None, within())
}

fn prove(
    kind: CertificateKind,
    common_name: Option<&str>,
    names: &[SanType],
) -> Result<String, String> {
    match prove_der(kind, &der(&params(common_name, names))) {
        Ok(proven) => Ok(proven.principal.to_string()),
        Err(not) => Err(not.to_string()),
    }
}

#[track_caller]
fn assert_refused(proven: Result<String, String>, why: &str) {
    let refused = proven.unwrap_err();
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn the_configured_kind_of_name_counts_and_no_other() {
    let names = [uri("spiffe://corp/a"), dns("a.corp"), email("a@corp")];
    for (kind, principal) in KINDS.into_iter().zip([
        "cert:uri:spiffe://corp/a",
        "cert:dns:a.corp",
        "cert:email:a@corp",
        "cert:cn:a",
    ]) {
        assert_eq!(prove(kind, Some("a"), &names), Ok(principal.to_owned()));
    }
}

#[test]
fn attack_9_a_common_name_does_not_pose_as_a_uri() {
    let admin = "spiffe://corp/admin";
    let plain = prove(CertificateKind::Uri, Some(admin), &[]);
    assert_refused(plain, "has no URI alternative name");
    let beside = prove(CertificateKind::Uri, Some(admin), &[uri("spiffe://corp/a")]);
    assert_eq!(beside, Ok("cert:uri:spiffe://corp/a".to_owned()));
    for posing in [
        admin,
        "uri:spiffe://corp/admin",
        "cert:uri:spiffe://corp/admin",
    ] {
        let named = prove(CertificateKind::CommonName, Some(posing), &[uri(admin)]);
        assert_eq!(named, Ok(format!("cert:cn:{posing}")));
        let named = prove(CertificateKind::Dns, None, &[dns(posing), uri(admin)]);
        assert_eq!(named, Ok(format!("cert:dns:{posing}")));
    }
}

#[test]
fn a_certificate_without_a_name_of_the_kind_is_refused() {
    let all = [uri("u://x"), dns("d"), email("e@x")];
    for (at, kind) in KINDS.into_iter().enumerate().take(3) {
        let mut others = all.to_vec();
        others.remove(at);
        assert_refused(prove(kind, Some("cn"), &others), "expected exactly one");
        assert_refused(prove(kind, Some("cn"), &[]), "expected exactly one");
    }
    let refused = prove(CertificateKind::CommonName, None, &all);
    assert_refused(refused, "has no common name");
    // Names of other types count for nothing.
    let ip = SanType::IpAddress("10.0.0.1".parse().unwrap());
    assert_refused(prove(CertificateKind::Dns, None, &[ip]), "has no DNS");
}

#[test]
fn attack_9_two_names_of_the_kind_are_refused() {
    for (kind, one, two) in [
        (CertificateKind::Uri, uri("u://one"), uri("u://two")),
        (CertificateKind::Dns, dns("one"), dns("two")),
        (CertificateKind::Email, email("one@x"), email("two@x")),
    ] {
        let other = SanType::IpAddress("10.0.0.1".parse().unwrap());
        for names in [
            vec![one.clone(), two.clone()],
            vec![two.clone(), one.clone()],
            vec![one.clone(), one.clone()],
            vec![one.clone(), other, two.clone()],
        ] {
            assert_refused(prove(kind, Some("cn"), &names), "has more than one");
        }
    }
    let mut params = params(Some("one"), &[]);
    let again = DnType::CustomDnType(vec![2, 5, 4, 3]);
    params.distinguished_name.push(again, "two");
    let refused = prove_der(CertificateKind::CommonName, &der(&params)).unwrap_err();
    assert!(
        refused.why.contains("more than one common name"),
        "{refused}"
    );
}

#[test]
fn attack_9_two_lists_of_alternative_names_are_refused() {
    let mut params = params(None, &[uri("u://one")]);
    // SEQUENCE { [6] "u://two" }
    let second = [&[0x30, 9, 0x86, 7][..], b"u://two"].concat();
    let oid = [2, 5, 29, 17];
    params.custom_extensions = vec![CustomExtension::from_oid_content(&oid, second.clone())];
    let refused = prove_der(CertificateKind::Uri, &der(&params)).unwrap_err();
    assert!(refused.why.contains("cannot be read"), "{refused}");
    // The extension alone is good, so the reason is that there are two.
    params.subject_alt_names.clear();
    assert!(prove_der(CertificateKind::Uri, &der(&params)).is_ok());
}

#[test]
fn attack_9_names_with_a_nul_a_star_or_a_space_are_refused() {
    for wrong in [
        "admin\0.attacker",
        "\0",
        "*",
        "*.corp",
        "a*",
        "a b",
        " a",
        "a ",
        "a\nb",
        "a\tb",
        "a\u{7f}",
    ] {
        for (kind, names) in [
            (CertificateKind::Uri, vec![uri(wrong)]),
            (CertificateKind::Dns, vec![dns(wrong)]),
            (CertificateKind::Email, vec![email(wrong)]),
            (CertificateKind::CommonName, vec![]),
        ] {
            assert_refused(prove(kind, Some(wrong), &names), "without spaces and `*`");
        }
    }
    let cyrillic = prove(CertificateKind::CommonName, Some("аdmin"), &[]);
    assert_refused(cyrillic, "printable ASCII");
}

#[test]
fn an_empty_name_is_refused() {
    for (kind, names) in [
        (CertificateKind::Uri, vec![uri("")]),
        (CertificateKind::Dns, vec![dns("")]),
        (CertificateKind::Email, vec![email("")]),
        (CertificateKind::CommonName, vec![]),
    ] {
        assert_refused(prove(kind, Some(""), &names), "is empty");
    }
}

#[test]
fn attack_9_a_name_of_256_bytes_is_refused_and_never_cut() {
    let room = 255 - "cert:uri:".len();
    let longest = "u".repeat(room);
    let proven = prove(CertificateKind::Uri, None, &[uri(&longest)]);
    assert_eq!(proven, Ok(format!("cert:uri:{longest}")));
    for bytes in [room + 1, 256, 4_000] {
        let refused = prove(CertificateKind::Uri, None, &[uri(&"u".repeat(bytes))]);
        assert_refused(refused, "is never cut");
    }
}

#[test]
fn a_common_name_in_another_encoding_is_refused_or_the_same() {
    let name = |value: DnValue| {
        let mut params = params(None, &[]);
        params.distinguished_name.push(DnType::CommonName, value);
        prove_der(CertificateKind::CommonName, &der(&params))
    };
    let printable = DnValue::PrintableString("alice".try_into().unwrap());
    assert_eq!(name(printable).unwrap().principal.as_str(), "cert:cn:alice");
    let wide = DnValue::BmpString("alice".try_into().unwrap());
    assert!(name(wide).is_err());
    let universal = DnValue::UniversalString("alice".try_into().unwrap());
    assert!(name(universal).is_err());
}

#[test]
fn a_certificate_is_good_within_its_times_and_a_minute_around() {
    let site = Site::of_certificates(CertificateKind::CommonName);
    let der = der(&params(Some("a"), &[]));
    let peer = site.prover.peer(&[&der]);
    let (begins, ends) = (unix(2026, 1), unix(2027, 1));
    for (now, good) in [
        (0, false),
        (begins - 61, false),
        (begins - 60, true),
        (begins, true),
        (ends, true),
        (ends + 59, true),
        (ends + 60, false),
        (u64::MAX, false),
    ] {
        // The connection outlasts the certificate.
        let proven = site.prover.prove(&peer, None, now);
        assert_eq!(proven.is_ok(), good, "{now}");
        if let Ok(proven) = proven {
            assert_eq!(proven.expires_unix, Some(ends + 60));
        }
    }
}

#[test]
fn a_certificate_that_cannot_be_read_is_refused_and_not_anonymous() {
    let good = der(&params(Some("a"), &[uri("u://a")]));
    let kind = CertificateKind::Uri;
    assert!(prove_der(kind, &good).is_ok());
    for end in 0..good.len() {
        assert!(prove_der(kind, &good[..end]).is_err(), "{end}");
    }
    assert!(prove_der(kind, &[&good[..], &[0]].concat()).is_err());
    assert!(prove_der(kind, &[&good[..], &good[..]].concat()).is_err());
}

#[test]
fn only_the_first_certificate_and_only_a_configured_kind_count() {
    let (own, authority) = (
        der(&params(Some("own"), &[])),
        der(&params(Some("authority"), &[])),
    );
    let site = Site::of_certificates(CertificateKind::CommonName);
    let peer = site.prover.peer(&[&own, &authority]);
    let proven = site.prover.prove(&peer, None, within()).unwrap();
    assert_eq!(proven.principal.as_str(), "cert:cn:own");
    for (site, certificates) in [
        (Site::of_certificates(CertificateKind::CommonName), vec![]),
        (Site::with(&[], None), vec![own]),
    ] {
        let peer: Peer = site.prover.peer(&certificates);
        let proven = site.prover.prove(&peer, None, within()).unwrap();
        assert_eq!(proven.principal.as_str(), "anonymous");
    }
}
