#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Letters of a secret, as tokens, passwords and base64 have them.
const LETTERS: &str = "[A-Za-z0-9_~.-]{4}[A-Z][0-9][A-Za-z0-9_~-]{10,40}";

#[test]
fn secret_values_are_replaced_and_files_and_numbers_are_not() {
    let text = "name = \"n1\"\ntoken-floor = 7\ncluster-secret-file = \"/etc/s\"\nkey-file = \"/k\"\n\
                password = \"p4ss\"\n api_token=\"abc\"\nsecret = \"\"\"\nfirst\nsecond\n\"\"\"\n\
                log = \"info\"\n";
    let shown = Redactor::default().configuration(text);
    for kept in ["n1", "token-floor = 7", "/etc/s", "/k", "log = \"info\""] {
        assert!(shown.contains(kept), "{kept}: {shown}");
    }
    for hidden in ["p4ss", "abc", "first", "second"] {
        assert!(!shown.contains(hidden), "{hidden}: {shown}");
    }
}

#[test]
fn credentials_are_found_in_any_line() {
    for secret in [
        "rft_7_AAAA",
        "eyJhbGciOi.eyJzdWIi.c2ln",
        "postgres://user:p4ss@db/x",
        "12.00112233445566778899aabbccddeeff",
    ] {
        let line = format!("why={secret} (and more), \"{secret}\"");
        let shown = Redactor::default().text(&line);
        assert!(!shown.contains(secret), "{shown}");
        assert!(shown.contains("and more"), "{shown}");
    }
}

#[test]
fn what_explains_a_problem_stays() {
    for plain in [
        "cluster 00112233445566778899aabbccddeeff",
        "http://127.0.0.1:7420/x",
        "a.b.c 7",
        "granted name=orders/eu token=1234567 session=7",
        "lease_token=Some(17) holder=worker-1",
        "principal=token:deploy may not acquire orders/*",
        "principal=jwt:corp:alice@example.com principal=cert:email:bob@example.com",
        "the bearer token is refused: it has ended",
        "the file --token-file /etc/ringfence/token cannot be read",
        "backup digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0bb822cd15d6c15b0f00a08",
        "https://corp.example/keys?version=2",
        "key = \"/etc/ringfence/n1.key\"",
        "10.0.0.1:7421 does not answer",
    ] {
        assert_eq!(Redactor::default().text(plain), plain);
    }
    let figure = "ringfence_unproven_total{credential=\"token\"} 3";
    assert_eq!(Redactor::default().figures(figure), figure);
}

#[test]
fn a_secret_of_the_configuration_is_known_in_every_other_file() {
    let mut redactor = Redactor::default();
    let shown = redactor
        .configuration("[audit.passwords]\nweekly = \"Sesame-0pen\"\n[log]\nlevel = \"info\"\n");
    assert_eq!(
        shown,
        "[audit.passwords]\nweekly = (redacted)\n[log]\nlevel = \"info\"\n"
    );
    assert_eq!(redactor.text("refused Sesame-0pen"), "refused (redacted)");
    assert_eq!(
        redactor.figures("a{b=\"Sesame-0pen\"} 1"),
        "a{b=\"(redacted)\"} 1"
    );
    let object = redactor.object(json!({ "found": ["Sesame-0pen", 7], "password": "x" }));
    assert_eq!(
        object,
        json!({ "found": ["(redacted)", 7], "password": "(redacted)" })
    );
}

#[test]
fn a_block_that_is_cut_off_at_either_end_is_replaced() {
    let redactor = Redactor::default();
    let tail = "nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\nthe last line\n";
    assert_eq!(redactor.text(tail), "(redacted)\nthe last line\n");
    let head = "the first line\n-----BEGIN EC PRIVATE KEY-----\nMIIEvQIBADANBgkq\n";
    assert_eq!(redactor.text(head), "the first line\n(redacted)");
    let two = "-----BEGIN A-----\nx\n-----END A-----\nbetween\n-----BEGIN B-----\ny\n-----END B-----\nbehind";
    assert_eq!(
        redactor.text(two),
        "(redacted)\nbetween\n(redacted)\nbehind"
    );
}

/// Ways in which a secret stands in a text, and whether only a configuration has it.
const SHAPES: &[(&str, bool)] = &[
    (
        "postgres://app:SECRET@db.example:5432/x?sslmode=require",
        false,
    ),
    ("postgres://SECRET@db.example/x", false),
    ("redis://:SECRET@10.0.0.7:6379", false),
    ("url=\"https://ci:ab/SECRET@git.example/x\"", false),
    ("dsn app:SECRET@tcp(db:3306)/x", false),
    ("Authorization: Bearer SECRET", false),
    ("authorization=Basic SECRET", false),
    ("\"Authorization\": \"Bearer SECRET\"", false),
    ("sent bearer SECRET to the node", false),
    ("curl -H 'authorization:Bearer SECRET'", false),
    ("body=Bearer+SECRET", false),
    ("eyJhbGciOiJFUzI1NiJ9.eySECRET.SECRET", false),
    ("id_eyJhbGciOiJFUzI1NiJ9.eySECRET.SECRET", false),
    ("proof:eyJhbGciOiJFUzI1NiJ9.SECRET", false),
    ("rft_7_SECRET", false),
    ("password=SECRET", false),
    ("PGPASSWORD=SECRET psql", false),
    ("db_password: SECRET", false),
    ("{\"client_secret\":\"SECRET\"}", false),
    ("{\"token\": \"SECRET\"}", false),
    ("text=\"{\\\"password\\\":\\\"SECRET\\\"}\"", false),
    ("Settings { password: Some(\"SECRET\"), port: 7 }", false),
    ("tokens=[\"first\", \"SECRET\"]", false),
    ("GET /x?access_token=SECRET&page=2", false),
    ("run --password SECRET --port 7", false),
    ("run --api-token=SECRET", false),
    ("Cookie: session=SECRET", false),
    (
        "-----BEGIN PRIVATE KEY-----\nSECRET\nab12\n-----END PRIVATE KEY-----",
        false,
    ),
    (
        "-----BEGIN PRIVATE KEY-----\\nSECRET\\nab12\\n-----END PRIVATE KEY-----\\n",
        false,
    ),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nNov 26 n1 app[7]: SECRET\n-----END RSA PRIVATE KEY-----",
        false,
    ),
    (
        "tokens = [\n  \"first\", # not the last\n  \"SECRET\",\n]",
        true,
    ),
    ("peers = { password = 'SECRET', port = 7 }", true),
    ("secret = '''\nSECRET\n'''", true),
    ("\"api key\" = \"SECRET\"", true),
    ("passphrase = it is SECRET", true),
    ("[webhook.credentials]\nname = \"SECRET\"", true),
    ("[[issuers.secrets]]\nof = [\"SECRET\"]", true),
    ("key = \"\"\"\\\n  SECRET\"\"\"", true),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wherever a secret is planted, it is in no text of a bundle, and what stands around it stays.
    #[test]
    fn no_planted_secret_is_in_what_is_shown(
        secret in LETTERS,
        shape in 0..SHAPES.len(),
        before in "[a-z]{3,8}( [a-z]{3,8}){0,3}",
    ) {
        let (shape, of_configuration) = SHAPES[shape];
        let planted = shape.replace("SECRET", &secret);
        let text = format!("# {before}\nlisten = \"10.0.0.1:7420\"\n{planted}\n[other]\nthe-last = 1\n");
        let mut redactor = Redactor::default();
        let mut shown = vec![redactor.configuration(&text)];
        if !of_configuration {
            shown.push(Redactor::default().text(&text));
            shown.push(Redactor::default().object(json!({ "found": text })).to_string());
        }
        for shown in shown {
            prop_assert!(!shown.contains(&secret), "{shape}: {shown}");
            prop_assert!(shown.contains(&before), "{shape}: {shown}");
            prop_assert!(shown.contains("10.0.0.1:7420"), "{shape}: {shown}");
            prop_assert!(shown.contains("the-last = 1"), "{shape}: {shown}");
        }
    }

    /// No text is too strange.
    #[test]
    fn any_text_is_read(text in "(\\PC|[\"'\\\\\n\\[\\]{}=: -]|token|password|-----BEGIN |-----END |://|@|Bearer ){0,60}") {
        let mut redactor = Redactor::default();
        redactor.configuration(&text);
        redactor.text(&text);
        redactor.figures(&text);
    }
}
