use clap::Parser;
use proptest::prelude::*;
use ringfence_core::Mode;

use super::*;
use crate::bucket::Place;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ServeArgs,
}

fn given(line: &str) -> Given {
    let words = std::iter::once("serve").chain(line.split_whitespace());
    Line::try_parse_from(words)
        .expect("flags that exist")
        .args
        .given
}

pub(super) fn config(line: &str) -> Config {
    Config::check(given(line)).expect("a usable configuration")
}

pub(super) fn refusal(line: &str) -> String {
    Config::check(given(line))
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn nothing_said_is_a_cluster_of_one_on_the_standard_ports() {
    let config = config("");

    assert_eq!(config.listen_client, "[::]:7420".parse().unwrap());
    assert_eq!(config.listen_peer, "[::]:7421".parse().unwrap());
    assert_eq!(config.listen_http, "[::]:7422".parse().unwrap());
    assert_eq!(
        config.initial_cluster,
        [("n1".to_owned(), "127.0.0.1:7421".to_owned())]
    );
    assert_eq!(config.advertise_client, "127.0.0.1:7420");
    assert_eq!(config.settings, Settings::STANDARD);
    assert_eq!(config.token_floor, None);
}

#[test]
fn callers_are_proven_as_said() {
    assert_eq!(config("").access, Access::default());
    let issuer = |alias: &str, kind: &str| {
        format!(
            "--jwt-issuer {alias}=https://{alias}.example,audience=ringfence,jwks=/k.json{kind}"
        )
    };
    let one = issuer("prod", ",kind=kubernetes");
    let access = config(&one).access;
    assert_eq!(access.credentials.issuers.len(), 1);
    assert_eq!(access.pods_of.as_deref(), Some("prod"), "the only one");
    let two = format!("{one} {}", issuer("test", ",kind=kubernetes"));
    assert_eq!(config(&two).access.pods_of, None, "which one is not said");
    let named = config(&format!("{two} --kube-pods-issuer test"));
    assert_eq!(named.access.pods_of.as_deref(), Some("test"));
    for (line, expected) in [
        (
            "--client-cert-principal uri".to_owned(),
            "together with --trusted-ca-file",
        ),
        ("--jwt-issuer prod".to_owned(), "ALIAS=ISSUER,audience="),
        (format!("{one} {one}"), "stands in two issuers"),
        (
            format!("{one} --kube-pods-issuer corp"),
            "kind=kubernetes: prod",
        ),
        (
            format!("{} --kube-pods-issuer corp", issuer("corp", "")),
            "there is none",
        ),
    ] {
        let refused = refusal(&line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
}

#[test]
fn a_first_member_tells_others_the_address_it_is_listed_with() {
    let config = config("--name n2 --initial-cluster n1=a.x:7421,n2=b.x:7421,n3=c.x:7421");

    assert_eq!(config.advertise_peer, "b.x:7421");
    assert_eq!(config.advertise_client, "b.x:7420");
    assert_eq!(config.initial_cluster.len(), 3);
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file = file::parse_file(
        "name = \"filed\"\nheartbeat-ms = 40\nreplace-on-data-loss = true\njoin = [\"a:1\"]\n\
         advertise-peer = \"b:2\"\nlog-format = \"json\"",
    )
    .expect("a valid file");

    let config = Config::check(given("--name flagged").over(file)).expect("usable");

    assert_eq!(config.name, "flagged");
    assert_eq!(config.heartbeat, Duration::from_millis(40));
    assert!(config.replace_on_data_loss);
    assert_eq!(config.join, ["a:1"]);
    assert!(config.initial_cluster.is_empty());
    assert_eq!(config.log_format, LogFormat::Json);
}

#[test]
fn the_settings_that_a_package_brings_are_those_of_a_node_once_uncommented() {
    let text = include_str!("../../../deploy/systemd/ringfence.toml");
    let file = file::parse_file(text).expect("a valid file");
    assert_eq!(format!("{file:?}"), format!("{:?}", Given::default()));

    // A comment begins with a blank, a setting does not.
    let settings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.is_empty() && !line.starts_with(' '))
        .collect();
    file::parse_file(&settings.join("\n")).expect("keys and types of settings");

    // What the files are is read at once: there is a secret, and no certificate.
    let dir = tempfile::tempdir().unwrap();
    let secret: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(dir.path().join("cluster.secret"), secret).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(dir.path().join("cluster.secret"), mode).unwrap();
    let usable = |line: &&str| !line.starts_with("cert-file") && !line.starts_with("key-file");
    let settings: Vec<&str> = settings.into_iter().filter(usable).collect();
    let settings = settings
        .join("\n")
        .replace("/etc/ringfence", dir.path().to_str().unwrap());
    let file = file::parse_file(&settings).expect("a valid file");
    let config = Config::check(file).expect("usable");

    assert_eq!(config.initial_cluster.len(), 3);
    assert_eq!(config.advertise_peer, "n1.example:7421");
}

#[test]
fn a_switch_can_be_said_with_and_without_a_value() {
    assert!(config("--replace-on-data-loss").replace_on_data_loss);
    assert!(!config("--replace-on-data-loss=false").replace_on_data_loss);
}

#[test]
fn an_unknown_key_is_refused_by_name() {
    let why = file::parse_file("nmae = \"n1\"").expect_err("must be refused");

    assert!(why.contains("unknown field `nmae`"), "{why}");
    assert!(why.contains("line 1"), "{why}");
    assert!(why.contains("`name`"), "{why}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let args = ServeArgs {
        config: Some("/nowhere/ringfence.toml".into()),
        ..Default::default()
    };

    let why = Config::load(args).expect_err("must be refused").to_string();

    assert!(why.contains("/nowhere/ringfence.toml"), "{why}");
}

#[test]
fn a_file_that_is_too_long_for_a_configuration_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.raw");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();

    let refusal = file::read_file(path).unwrap_err().to_string();

    assert!(refusal.contains("longer than 1048576 bytes"), "{refusal}");
}

/// Lines that are nearly settings: keys that exist and others, values of every type.
fn nearly_a_file() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "name",
        "data-dir",
        "initial-cluster",
        "join",
        "listen-client",
        "listen-peer",
        "advertise-client",
        "replace-on-data-loss",
        "token-floor",
        "ttl-min",
        "ttl-max",
        "heartbeat-ms",
        "election-ms",
        "wal-segment-bytes",
        "snapshot-log-bytes",
        "worker-threads",
        "log",
        "log-format",
        "colour",
    ]);
    let value = prop_oneof![
        "\"[a-z0-9:.,=_ -]{0,30}\"",
        "\"n[1-3]=[a-z]{1,5}:[0-9]{1,6}\"".prop_map(|member| format!("[{member}]")),
        "\"[0-9]{1,22}(ms|s|m|h|d)\"",
        "\"[0-9]{1,6}\\.\\.[0-9]{1,6}\"",
        "-?[0-9]{1,22}",
        "true|false|1e9|\\[|\\{|\"|''",
    ];
    let line = (key, value).prop_map(|(key, value)| format!("{key} = {value}\n"));
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_is_a_configuration_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        any_file(&bytes);
    }

    #[test]
    fn what_is_nearly_a_file_is_a_configuration_or_refused(text in nearly_a_file()) {
        any_file(text.as_bytes());
    }

    #[test]
    fn any_text_is_a_duration_or_refused(text in "[0-9]{0,22}[a-z]{0,3}|\\PC{0,10}") {
        if let Ok(duration) = crate::duration::parse(&text) {
            let millis = crate::duration::millis(duration);
            prop_assert_eq!(crate::duration::parse(&format!("{millis}ms")), Ok(duration));
        }
    }
}

#[test]
fn bad_values_are_refused_with_what_was_offered_and_what_is_allowed() {
    let cases = [
        (
            "--name a/b",
            "--name is `a/b`; allowed: a node's name is 1 to 63 letters",
        ),
        (
            "--listen-client localhost",
            "--listen-client is `localhost`; allowed: IP:PORT",
        ),
        (
            "--listen-client 0.0.0.0:0",
            "--listen-client is `0.0.0.0:0`; allowed: IP:PORT",
        ),
        (
            "--listen-peer [::]:7420",
            "--listen-peer is `[::]:7420`; allowed: an address of its own",
        ),
        (
            "--advertise-peer nowhere",
            "--advertise-peer is `nowhere`; allowed: HOST:PORT",
        ),
        (
            "--advertise-client h:99999",
            "--advertise-client is `h:99999`; allowed: HOST:PORT",
        ),
        (
            "--advertise-client [::x]:1",
            "--advertise-client is `[::x]:1`; allowed: HOST:PORT",
        ),
        (
            "--initial-cluster n1",
            "--initial-cluster is `n1`; allowed: NAME=HOST:PORT",
        ),
        ("--initial-cluster n1=a:1,n1=b:1", "n1 stands there twice"),
        ("--initial-cluster n1=a:1,n2=a:1", "a:1 stands there twice"),
        (
            "--name n4 --initial-cluster n1=a:1,n2=b:1",
            "--name is `n4`; allowed: a name in --initial-cluster (n1, n2), or --join",
        ),
        (
            "--join a:7421",
            "--advertise-peer is ``; allowed: HOST:PORT that the other members",
        ),
        (
            "--token-floor 4503599627370497",
            "--token-floor is `4503599627370497`; allowed: 0 to 4503599627370496",
        ),
        (
            "--ttl-min 10ms",
            "--ttl-min is `10 ms`; allowed: 100 ms to 3600000 ms",
        ),
        (
            "--ttl-max 30h",
            "--ttl-max is `108000000 ms`; allowed: 1000 ms to 86400000 ms",
        ),
        (
            "--ttl-max 15",
            "--ttl-max is `15`; allowed: a whole number with ms, s, m or h",
        ),
        (
            "--ttl-max 99999999999999999999h",
            "allowed: a whole number with ms, s, m or h",
        ),
        (
            "--worker-threads 0",
            "--worker-threads is `0`; allowed: 1 to 256",
        ),
        (
            "--heartbeat-ms 5",
            "--heartbeat-ms is `5`; allowed: 10 to 1000",
        ),
        (
            "--election-ms 300",
            "--election-ms is `300`; allowed: MIN..MAX in milliseconds",
        ),
        (
            "--election-ms 100..300",
            "--election-ms is `100..300`; allowed: MIN of at least 3 heartbeats (150)",
        ),
        ("--election-ms 300..300", "MAX above MIN"),
        (
            "--wal-segment-bytes 4096",
            "--wal-segment-bytes is `4096`; allowed: 1048576 to 1073741824",
        ),
        (
            "--snapshot-log-bytes 1",
            "--snapshot-log-bytes is `1`; allowed: 1048576 to",
        ),
        (
            "--log a=b=c",
            "--log is `a=b=c`; allowed: error, warn, info, debug or trace",
        ),
    ];
    for (line, expected) in cases {
        let refusal = refusal(line);
        assert!(
            refusal.contains(expected),
            "{line}\n got: {refusal}\nwant: {expected}"
        );
    }
}

#[test]
fn rates_of_principals_have_standards_and_ranges() {
    let standard = config("");
    let rates = standard.principal_rates;
    assert_eq!((rates.requests, rates.connections), (10_000, 5_000));
    assert_eq!(
        (rates.bytes, standard.access.failed_proofs_max),
        (64 << 20, 10)
    );
    let set = config("--principal-requests-max 7 --failed-proofs-max 3");
    assert_eq!(
        (set.principal_rates.requests, set.access.failed_proofs_max),
        (7, 3)
    );
    for flag in [
        "--principal-requests-max",
        "--principal-bytes-max",
        "--principal-connections-max",
        "--failed-proofs-max",
    ] {
        let refused = refusal(&format!("{flag} 0"));
        assert!(refused.contains(flag) && refused.contains("0"), "{refused}");
    }
}

#[test]
fn an_audit_log_is_a_file_or_stdout() {
    assert_eq!(config("").audit_log, None);
    assert_eq!(config("--audit-log -").audit_log, Some(AuditTarget::Stdout));
    let file = AuditTarget::File("/var/log/a".into());
    assert_eq!(config("--audit-log /var/log/a").audit_log, Some(file));
}

#[test]
fn a_restore_needs_a_file_and_its_digest_and_nothing_of_it_goes_alone() {
    let digest = "ab".repeat(32);
    let restore = config(&format!("--restore /b --digest {digest} --quiet-time 10m"));
    let flags = restore.restore.unwrap();
    assert_eq!(
        (flags.place, flags.drill),
        (Place::Path("/b".into()), false)
    );
    assert_eq!(flags.digest.to_string(), digest);
    assert_eq!(restore.quiet_time, Some(Millis(600_000)));
    assert_eq!(config("").restore, None);

    for (line, expected) in [
        ("--restore /b", "with --digest"),
        ("--restore /b --digest 77", "64 hexadecimal digits"),
        ("--digest 77", "only with --restore"),
        ("--rules /r", "only with --restore"),
        ("--drill", "only with --restore"),
        ("--quiet-time 25h", "quiet-time"),
        ("--quiet-time soon", "quiet-time"),
    ] {
        let refused = refusal(line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
    let joins = refusal(&format!(
        "--restore /b --digest {digest} --join 10.0.0.1:7421"
    ));
    assert!(joins.contains("without --join"), "{joins}");
}

#[test]
fn a_restore_takes_a_mode_and_refuses_settings_that_are_those_of_the_backup() {
    let restore = format!("--restore /b --digest {}", "ab".repeat(32));
    let mode = |line: &str| {
        let config = config(&format!("{restore} {line}"));
        config.restore.unwrap().mode
    };
    assert_eq!(mode(""), None);
    assert_eq!(mode("--access off"), Some(Mode::Off));
    assert_eq!(mode("--access permissive"), Some(Mode::Permissive));
    for flag in ["--ttl-min 10s", "--ttl-max 10m"] {
        let refused = refusal(&format!("{restore} {flag}"));
        assert!(refused.contains("cluster configure"), "{refused}");
    }
}

#[test]
fn a_drill_stays_on_loopback_and_keeps_no_quiet_time() {
    let drill = format!("--restore /b --digest {} --drill", "ab".repeat(32));
    let wide = refusal(&drill);
    assert!(wide.contains("an address of loopback"), "{wide}");
    let local = "--listen-client 127.0.0.1:7420 --listen-peer 127.0.0.1:7421";
    assert!(config(&format!("{drill} {local}")).restore.unwrap().drill);
    let quiet = refusal(&format!("{drill} {local} --quiet-time 1m"));
    assert!(quiet.contains("without --drill"), "{quiet}");
}

#[test]
fn backups_are_taken_by_the_hour_unless_said_and_need_a_place() {
    let backups = config("--backup-dir /backups").backups.unwrap();
    assert_eq!(backups.every, Duration::from_secs(3_600));
    assert_eq!(backups.keep, 48);
    let backups = config("--backup-dir /b --backup-every 10m --backup-keep 3").backups;
    let backups = backups.unwrap();
    assert_eq!((backups.every, backups.keep), (Duration::from_secs(600), 3));
    for (line, expected) in [
        ("--backup-every 1h", "only with --backup-dir"),
        ("--backup-keep 3", "only with --backup-dir"),
        ("--backup-dir /b --backup-every 1s", "backup-every"),
        ("--backup-dir /b --backup-keep 0", "backup-keep"),
        ("--backup-dir s3://b/p --backup-keep 3", "lifecycle rules"),
        ("--backup-dir https://b/p", "expected s3://BUCKET/KEY"),
    ] {
        let refused = refusal(line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
}

#[test]
fn a_bucket_of_backups_is_a_url_without_secrets() {
    let backups = config("--backup-dir s3://b/prod").backups.unwrap();
    assert_eq!(backups.place.to_string(), "s3://b/prod");
    let digest = "ab".repeat(32);
    let restore = config(&format!("--restore gs://b/prod.backup --digest {digest}"));
    let place = restore.restore.unwrap().place;
    assert_eq!(place.to_string(), "gs://b/prod.backup");
    for line in [
        "--backup-dir s3://id:hunter2@b/prod".to_owned(),
        format!("--restore az://box/b?sig=hunter2 --digest {digest}"),
    ] {
        let refused = refusal(&line);
        assert!(refused.contains("environment"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    for prefix in ["s3://b", "s3://b/prod/"] {
        let refused = refusal(&format!("--restore {prefix} --digest {digest}"));
        assert!(refused.contains("names no object"), "{refused}");
    }
}
