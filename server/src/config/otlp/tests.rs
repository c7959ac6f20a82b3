#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;

const COLLECTOR: (&str, &str) = (ENDPOINT, "http://collector:4317");

fn with(variables: &[(&'static str, &str)], given: &Given) -> Result<Option<Otlp>, String> {
    let all: BTreeMap<&str, String> = variables
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    of(given, &|name| Ok(all.get(name).cloned())).map_err(|error| error.to_string())
}

fn read(variables: &[(&'static str, &str)]) -> Otlp {
    let all = [&[COLLECTOR], variables].concat();
    with(&all, &Given::default()).unwrap().unwrap()
}

fn refused(variable: (&'static str, &str)) -> String {
    with(&[COLLECTOR, variable], &Given::default()).unwrap_err()
}

#[test]
fn nothing_is_told_unless_a_collector_is_named() {
    assert_eq!(with(&[], &Given::default()), Ok(None));
    let disabled = [COLLECTOR, ("OTEL_SDK_DISABLED", "True")];
    assert_eq!(with(&disabled, &Given::default()), Ok(None));
    let shown = read(&[]);
    assert_eq!(shown.endpoint, "http://collector:4317");
    assert_eq!(shown.trust, Trust::Plain);
    assert_eq!(shown.timeout, Duration::from_secs(10));
    assert_eq!(shown.metrics_every, Some(Duration::from_secs(60)));
}

#[test]
fn a_flag_wins_over_a_variable() {
    let given = Given {
        otlp_endpoint: Some("https://other:4317".to_owned()),
        trace_sample: Some(0.5),
        ..Given::default()
    };
    let variables = [COLLECTOR, (SAMPLER, "always_off")];
    let shown = with(&variables, &given).unwrap().unwrap();
    assert_eq!(shown.endpoint, "https://other:4317");
    assert_eq!(shown.trust, Trust::Machine);
    let ratio = Ratio::new(0.5).unwrap();
    let heeds_callers = true;
    assert_eq!(
        shown.traces,
        Some(Sampler {
            heeds_callers,
            ratio
        })
    );
}

#[test]
fn every_sampler_of_opentelemetry_is_known() {
    let cases = [
        ("always_on", false, 1.0),
        ("always_off", false, 0.0),
        ("traceidratio", false, 0.25),
        ("parentbased_always_on", true, 1.0),
        ("parentbased_always_off", true, 0.0),
        ("parentbased_traceidratio", true, 0.25),
    ];
    for (name, heeds_callers, share) in cases {
        let shown = read(&[(SAMPLER, name), (SAMPLER_ARG, "0.25")]);
        let ratio = Ratio::new(share).unwrap();
        assert_eq!(
            shown.traces,
            Some(Sampler {
                heeds_callers,
                ratio
            }),
            "{name}"
        );
    }
    assert!(refused((SAMPLER, "jaeger_remote")).contains("always_on"));
}

#[test]
fn a_share_takes_as_many_of_all_ids() {
    let taken = |share: f64| {
        let ratio = Ratio::new(share).unwrap();
        (0..256_u64).filter(|n| ratio.takes_low(n << 48)).count()
    };
    assert_eq!(taken(0.0), 0);
    assert_eq!(taken(0.25), 64);
    assert_eq!(taken(1.0), 256);
    for share in [-0.1, 1.1, f64::NAN] {
        assert_eq!(Ratio::new(share), None);
    }
}

#[test]
fn lists_are_decoded_and_the_name_of_the_service_wins() {
    let shown = read(&[
        (HEADERS, "Authorization=Bearer%20s3cret, x-team = a%2Cb"),
        (
            RESOURCE,
            "deployment.environment.name=prod,service.name=other",
        ),
        ("OTEL_SERVICE_NAME", "leases"),
    ]);
    let pairs: Vec<(&str, &[u8])> = shown
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    let expected: [(&str, &[u8]); 2] = [("authorization", b"Bearer s3cret"), ("x-team", b"a,b")];
    assert_eq!(pairs, expected);
    assert!(!format!("{shown:?}").contains("s3cret"));
    let last = shown.resource.last().unwrap();
    assert_eq!(last, &("service.name".to_owned(), "leases".to_owned()));
}

#[test]
fn what_cannot_be_used_is_named_and_no_secret_is_repeated() {
    let cases = [
        (HEADERS, "authorization:s3cret"),
        (HEADERS, "a b=s3cret"),
        (HEADERS, "a=s3cret%zz"),
        (HEADERS, "a=s3cret%0a"),
        (HEADERS, "te=s3cret"),
        (RESOURCE, "s3cret"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/s3cret"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key.pem"),
        (ENDPOINT, "http://user:s3cret@collector:4317"),
        (ENDPOINT, "collector:4317"),
        (ENDPOINT, "http://collector:43l7"),
        (ENDPOINT, "http://collector:65536"),
        (ENDPOINT, "http://collector:0"),
        (ENDPOINT, "http://[::1]:s3cret"),
        (ENDPOINT, "http://collector:"),
        (ENDPOINT, "http://collector:4317/v1/traces?s3cret"),
        (ENDPOINT, "http://"),
    ];
    for (name, value) in cases {
        let refused = refused((name, value));
        assert!(refused.contains("OTEL_"), "{name}={value}: {refused}");
        assert!(!refused.contains("s3cret"), "{name}: {refused}");
    }
    let argument = [COLLECTOR, (SAMPLER, "traceidratio"), (SAMPLER_ARG, "2")];
    let refused = with(&argument, &Given::default()).unwrap_err();
    assert!(refused.contains("from 0 to 1"), "{refused}");
}

#[test]
fn a_flag_that_may_hold_a_secret_is_not_repeated() {
    let given = |endpoint: &str| Given {
        otlp_endpoint: Some(endpoint.to_owned()),
        ..Given::default()
    };
    let refused = with(&[], &given("http://u:s3cret@host:4317")).unwrap_err();
    assert!(refused.contains("--otlp-endpoint"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    let refused = with(&[], &given("host:4317")).unwrap_err();
    assert!(
        refused.contains("not repeated") && refused.contains("http://HOST"),
        "{refused}"
    );
}
