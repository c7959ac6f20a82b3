//! From spans and from the page of `/metrics` to what a collector is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_raft::{Span, SpanKind, SpanValue};

use super::messages;
use super::messages::{
    CUMULATIVE, Data, ExportMetrics, ExportTraces, Gauge, Histogram, HistogramPoint, KeyValue,
    Kind, Metric, Number, NumberPoint, Resource, ResourceMetrics, ResourceSpans, STATUS_ERROR,
    ScopeMetrics, ScopeSpans, Status, Sum, Value, scope,
};
use crate::limits::METRIC_POINTS_MAX;

/// The flag of a trace that is recorded.
const SAMPLED: u32 = 1;
/// The flags say whether the parent is of another process; and it is.
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The spans as a request. `boot` is the Unix time at which [`ringfence_raft::since_boot`] was zero.
pub(super) fn traces(resource: &Resource, spans: Vec<Span>, boot: Duration) -> ExportTraces {
    let spans = spans.into_iter().map(|span| encoded(span, boot)).collect();
    ExportTraces {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans,
            }],
        }],
    }
}

fn encoded(span: Span, boot: Duration) -> messages::Span {
    let (kind, remote) = match span.kind {
        SpanKind::Server => (Kind::Server, IS_REMOTE),
        SpanKind::Client => (Kind::Client, 0),
        SpanKind::Internal => (Kind::Internal, 0),
    };
    let parent = span.ids.parent.map(|parent| parent.get().to_be_bytes());
    let remote = parent.map_or(0, |_| HAS_REMOTE | remote);
    let attributes = span.attributes.into_iter().map(|(key, value)| {
        let value = match value {
            SpanValue::Text(text) => Value::Text(text.into_owned()),
            SpanValue::Number(number) => Value::Number(i64::try_from(number).unwrap_or(i64::MAX)),
        };
        KeyValue::new(key, value)
    });
    messages::Span {
        trace_id: span.ids.trace.get().to_be_bytes().to_vec(),
        span_id: span.ids.span.get().to_be_bytes().to_vec(),
        parent_span_id: parent.map(Vec::from).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: nanos(boot + span.begun),
        end_time_unix_nano: nanos(boot + span.ended),
        attributes: attributes.collect(),
        status: span.failed.then_some(Status { code: STATUS_ERROR }),
        flags: SAMPLED | remote,
    }
}

/// Nanoseconds, as OTLP counts.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The times of the points of figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When this process began to count, in Unix time.
    pub(super) since: Duration,
    pub(super) now: Duration,
}

/// What `/metrics` shows, as requests of a bounded size each: the same families and the same values.
///
/// # Errors
/// The line that is none of the format, which is a bug of this program.
pub(super) fn metrics(
    resource: &Resource,
    page: &str,
    times: Times,
) -> Result<Vec<ExportMetrics>, String> {
    let mut requests = Vec::new();
    let (mut some, mut points) = (Vec::new(), 0);
    for family in families(page)? {
        let metric = family.encoded(times)?;
        let more = points_of(&metric);
        if points > 0 && points + more > METRIC_POINTS_MAX {
            requests.push(request(resource, std::mem::take(&mut some)));
            points = 0;
        }
        points += more;
        some.push(metric);
    }
    requests.push(request(resource, some));
    Ok(requests)
}

fn request(resource: &Resource, metrics: Vec<Metric>) -> ExportMetrics {
    ExportMetrics {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics,
            }],
        }],
    }
}

fn points_of(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        None => 0,
    }
}

/// A family of the page.
#[derive(Debug, Default)]
struct FamilyText<'a> {
    name: &'a str,
    help: &'a str,
    unit: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

/// A line of a family: what its name has behind that of the family, its labels and its value.
#[derive(Debug)]
struct Sample<'a> {
    ending: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

/// Reads the page, as this program writes it.
fn families(page: &str) -> Result<Vec<FamilyText<'_>>, String> {
    let mut families: Vec<FamilyText<'_>> = Vec::new();
    for line in page.lines().filter(|line| !line.is_empty()) {
        let unfit = || format!("a line of /metrics is unknown: {line:?}");
        if line == "# EOF" {
            break;
        }
        if let Some(described) = line.strip_prefix("# ") {
            let (what, rest) = described.split_once(' ').ok_or_else(unfit)?;
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            if families.last().is_none_or(|family| family.name != name) {
                families.push(FamilyText {
                    name,
                    ..FamilyText::default()
                });
            }
            let family = families.last_mut().ok_or_else(unfit)?;
            match what {
                "HELP" => family.help = text,
                "TYPE" => family.kind = text,
                "UNIT" => family.unit = text,
                _ => return Err(unfit()),
            }
            continue;
        }
        let family = families.last_mut().ok_or_else(unfit)?;
        let behind = line.strip_prefix(family.name).ok_or_else(unfit)?;
        family.samples.push(sample(behind).ok_or_else(unfit)?);
    }
    Ok(families)
}

fn sample(behind: &str) -> Option<Sample<'_>> {
    let end = behind.find(['{', ' '])?;
    let (ending, rest) = behind.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(labels) => labels_of(labels)?,
        None => (Vec::new(), rest),
    };
    let value = rest.strip_prefix(' ')?;
    Some(Sample {
        ending,
        labels,
        value,
    })
}

type Labels<'a> = Vec<(&'a str, String)>;

/// The labels, and what follows their brace.
fn labels_of(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.push((key, value));
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// A value up to its quote, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

impl FamilyText<'_> {
    fn encoded(&self, times: Times) -> Result<Metric, String> {
        let unfit = || {
            format!(
                "the family {} of /metrics has a line that is unknown",
                self.name
            )
        };
        let data = match self.kind {
            "counter" => Data::Sum(Sum {
                data_points: self.numbers("_total", times).ok_or_else(unfit)?,
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            "gauge" => Data::Gauge(Gauge {
                data_points: self.numbers("", times).ok_or_else(unfit)?,
            }),
            "histogram" => Data::Histogram(Histogram {
                data_points: self.histograms(times).ok_or_else(unfit)?,
                aggregation_temporality: CUMULATIVE,
            }),
            other => {
                let name = self.name;
                return Err(format!("the family {name} of /metrics is a {other:?}"));
            }
        };
        Ok(Metric {
            name: self.name.to_owned(),
            description: self.help.trim_end_matches('.').to_owned(),
            unit: unit(self.unit, self.name).to_owned(),
            data: Some(data),
        })
    }

    fn numbers(&self, ending: &str, times: Times) -> Option<Vec<NumberPoint>> {
        let points = self.samples.iter().map(|sample| {
            let value = match sample.value.parse() {
                Ok(whole) => Number::Whole(whole),
                Err(_) => Number::Double(sample.value.parse().ok()?),
            };
            (sample.ending == ending).then(|| NumberPoint {
                start_time_unix_nano: nanos(times.since),
                time_unix_nano: nanos(times.now),
                value: Some(value),
                attributes: attributes(&sample.labels),
            })
        });
        points.collect()
    }

    fn histograms(&self, times: Times) -> Option<Vec<HistogramPoint>> {
        let mut points: BTreeMap<Vec<(&str, String)>, HistogramPoint> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            let bound = labels.iter().position(|(key, _)| *key == "le");
            let bound = bound.map(|at| labels.remove(at).1);
            let point = points
                .entry(labels)
                .or_insert_with_key(|labels| HistogramPoint {
                    start_time_unix_nano: nanos(times.since),
                    time_unix_nano: nanos(times.now),
                    attributes: attributes(labels),
                    ..HistogramPoint::default()
                });
            match (sample.ending, bound.as_deref()) {
                ("_sum", None) => point.sum = Some(sample.value.parse().ok()?),
                ("_count", None) => point.count = sample.value.parse().ok()?,
                ("_bucket", Some(bound)) => {
                    // The page counts all below a bound, a point those between two.
                    let below: u64 = sample.value.parse().ok()?;
                    let before = point.bucket_counts.iter().sum();
                    point.bucket_counts.push(below.checked_sub(before)?);
                    if bound != "+Inf" {
                        point.explicit_bounds.push(bound.parse().ok()?);
                    }
                }
                _ => return None,
            }
        }
        Some(points.into_values().collect())
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let pairs = labels
        .iter()
        .map(|(key, value)| KeyValue::text(*key, value));
    pairs.collect()
}

/// A unit as OpenTelemetry writes it, after UCUM.
fn unit<'a>(unit: &'a str, name: &str) -> &'a str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "" if name.ends_with("_seconds") => "s",
        "" if name.ends_with("_bytes") => "By",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge as PageGauge;
    use prometheus_client::metrics::histogram::Histogram as PageHistogram;
    use prometheus_client::registry::Registry;

    use super::super::tests::span;
    use super::*;

    #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
    struct Label {
        what: String,
    }

    const TIMES: Times = Times {
        since: Duration::from_secs(1),
        now: Duration::from_secs(2),
    };

    fn read(registry: &Registry) -> Vec<Metric> {
        let mut page = String::new();
        encode(&mut page, registry).unwrap();
        let mut requests = metrics(&Resource::default(), &page, TIMES).unwrap();
        assert_eq!(requests.len(), 1);
        let mut encoded = requests.remove(0).resource_metrics.remove(0);
        encoded.scope_metrics.remove(0).metrics
    }

    #[test]
    fn each_kind_of_family_is_told_as_the_page_shows_it() {
        let mut registry = Registry::with_prefix("ringfence");
        let calls = Family::<Label, Counter>::default();
        let odd = "a \"quote\", a \\ and a\nbreak}".to_owned();
        calls.get_or_create(&Label { what: odd.clone() }).inc_by(3);
        registry.register("calls", "Calls", calls);
        let depth = PageGauge::<i64>::default();
        depth.set(-4);
        registry.register("depth", "Depth", depth);
        let waits = PageHistogram::new([0.5, 1.0]);
        for wait in [0.1, 0.7, 0.8, 5.0] {
            waits.observe(wait);
        }
        registry.register("wait_seconds", "Waits", waits);

        let encoded = read(&registry);
        let named: Vec<_> = encoded
            .iter()
            .map(|metric| (&*metric.name, &*metric.description, &*metric.unit))
            .collect();
        assert_eq!(
            named,
            [
                ("ringfence_calls", "Calls", ""),
                ("ringfence_depth", "Depth", ""),
                ("ringfence_wait_seconds", "Waits", "s"),
            ]
        );
        let Some(Data::Sum(sum)) = &encoded[0].data else {
            panic!("{encoded:?}");
        };
        assert!(sum.is_monotonic);
        assert_eq!(sum.data_points[0].value, Some(Number::Whole(3)));
        assert_eq!(sum.data_points[0].attributes, [KeyValue::text("what", odd)]);
        let Some(Data::Gauge(gauge)) = &encoded[1].data else {
            panic!("{encoded:?}");
        };
        assert_eq!(gauge.data_points[0].value, Some(Number::Whole(-4)));
        let Some(Data::Histogram(histogram)) = &encoded[2].data else {
            panic!("{encoded:?}");
        };
        let point = &histogram.data_points[0];
        assert_eq!(point.bucket_counts, [1, 2, 1]);
        assert_eq!(point.explicit_bounds, [0.5, 1.0]);
        assert_eq!((point.count, point.sum), (4, Some(6.6)));
    }

    #[test]
    fn a_page_with_many_points_goes_in_several_requests() {
        let mut registry = Registry::default();
        for name in ["a", "b", "c"] {
            let calls = Family::<Label, Counter>::default();
            for n in 0..METRIC_POINTS_MAX / 2 + 1 {
                calls
                    .get_or_create(&Label {
                        what: n.to_string(),
                    })
                    .inc();
            }
            registry.register(name, "Calls", calls);
        }
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let requests = metrics(&Resource::default(), &page, TIMES).unwrap();
        assert_eq!(requests.len(), 3);
    }

    #[test]
    fn a_line_that_is_none_is_an_error_and_no_panic() {
        for page in [
            "x",
            "x 1\n",
            "# HELP\n",
            "# TYPE x counter\ny_total 1\n",
            "# TYPE x counter\nx_total{a=\"1 1\n",
            "# TYPE x summary\nx 1\n",
        ] {
            assert!(
                metrics(&Resource::default(), page, TIMES).is_err(),
                "{page}"
            );
        }
    }

    #[test]
    fn a_span_is_told_in_unix_time_with_its_place_and_its_failure() {
        let mut failed = span("call");
        failed.failed = true;
        let boot = Duration::from_secs(1_000);
        let mut request = traces(&Resource::default(), vec![failed.clone()], boot);
        let encoded = request
            .resource_spans
            .remove(0)
            .scope_spans
            .remove(0)
            .spans
            .remove(0);
        assert_eq!(encoded.trace_id, failed.ids.trace.get().to_be_bytes());
        assert_eq!(encoded.start_time_unix_nano, nanos(boot + failed.begun));
        assert!(encoded.start_time_unix_nano < encoded.end_time_unix_nano);
        assert_eq!(encoded.status, Some(Status { code: STATUS_ERROR }));
        assert_eq!(encoded.flags, SAMPLED | HAS_REMOTE | IS_REMOTE);
    }
}
