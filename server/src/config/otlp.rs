//! Where a node exports traces and metrics to: two flags, and the variables of OpenTelemetry.
//!
//! A variable may hold what proves the node to the collector, so no error repeats the value of one.

use std::fmt;
use std::num::NonZeroU128;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use ringfence_tls::{ClientTls, Pem};

use super::ConfigError;
use super::given::Given;
use crate::limits::{OTLP_ATTRIBUTES_MAX, OTLP_VARIABLE_BYTES_MAX};

const FLAG: &str = "otlp-endpoint";
/// In place of a URL: each of its parts may hold a secret.
const NOT_REPEATED: &str = "a URL that is not repeated here";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// The share of the traces that a node begins, unless something says another.
const RATIO_STANDARD: f64 = 0.01;
/// How long the collector may take, in milliseconds.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// How often figures are recorded, in milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// What a node exports, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Otlp {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub(crate) endpoint: Uri,
    pub(crate) trust: Trust,
    /// What each call shows; the values are secrets.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one call may take.
    pub(crate) timeout: Duration,
    /// What describes this process beside what it says of itself; the service's name included.
    pub(crate) resource: Vec<(String, String)>,
    /// Which traces are recorded; `None`: none are.
    pub(crate) traces: Option<Sampler>,
    /// How often figures are recorded; `None`: they are not.
    pub(crate) metrics_every: Option<Duration>,
}

/// Whose certificate the collector has to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// None: it is spoken to without TLS.
    Plain,
    /// One of an authority of this machine.
    Machine,
    /// As said here.
    Files(ClientTls),
}

/// Which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sampler {
    /// Whether the flag of a caller decides for its trace.
    pub(crate) heeds_callers: bool,
    /// Of all others.
    pub(crate) ratio: Ratio,
}

#[cfg(test)]
impl Sampler {
    pub(crate) fn ratio_for_test(share: f64) -> Ratio {
        Ratio::new(share).expect("a share")
    }
}

/// A share of all traces, by their ids: each program with the same share takes the same traces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    /// The ids below it are taken, of [`Self::ALL`].
    below: u64,
}

impl Ratio {
    /// The part of an id that decides is a number below this.
    const ALL: u64 = 1 << 56;

    /// Of 0 to 1.
    pub(crate) fn new(share: f64) -> Option<Self> {
        // Within 0 and ALL, which a double has room for.
        let below = (0.0..=1.0)
            .contains(&share)
            .then_some((share * Self::ALL as f64) as u64)?;
        Some(Self { below })
    }

    /// Whether this trace is taken.
    pub(crate) fn takes(self, trace: NonZeroU128) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace.get().to_be_bytes();
        self.takes_low(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Whether a trace is taken whose id ends so: its last 56 bits are random, by W3C's rules.
    pub(crate) fn takes_low(self, low: u64) -> bool {
        (low & (Self::ALL - 1)) < self.below
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.below, Self::ALL)
    }
}

/// A variable with its value, unless it is unset or empty, which means the same.
type Variable<'a> = &'a dyn Fn(&'static str) -> Result<Option<String>, ConfigError>;

/// What the flags and the environment say; `None`: nothing is recorded.
pub(super) fn otlp(given: &Given) -> Result<Option<Otlp>, ConfigError> {
    of(given, &|name| {
        let Some(value) = std::env::var_os(name) else {
            return Ok(None);
        };
        let Ok(value) = value.into_string() else {
            return Err(wrong(name, "is no text in UTF-8; set it again"));
        };
        if value.len() > OTLP_VARIABLE_BYTES_MAX {
            let why = format!("is longer than {OTLP_VARIABLE_BYTES_MAX} bytes; shorten it");
            return Err(wrong(name, why));
        }
        Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty()))
    })
}

fn of(given: &Given, variable: Variable<'_>) -> Result<Option<Otlp>, ConfigError> {
    let share = given.trace_sample.map(ratio).transpose()?;
    if variable("OTEL_SDK_DISABLED")?.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let endpoint = match &given.otlp_endpoint {
        Some(flag) if flag.len() > OTLP_VARIABLE_BYTES_MAX => {
            let allowed = format!("a URL of at most {OTLP_VARIABLE_BYTES_MAX} bytes");
            return Err(ConfigError::value(FLAG, NOT_REPEATED.to_owned(), allowed));
        }
        Some(flag) => endpoint(flag)
            .map_err(|allowed| ConfigError::value(FLAG, NOT_REPEATED.to_owned(), allowed))?,
        None => match variable(ENDPOINT)? {
            Some(value) => endpoint(&value)
                .map_err(|allowed| wrong(ENDPOINT, format!("is not usable; allowed: {allowed}")))?,
            None => return Ok(None),
        },
    };
    if !cfg!(feature = "otel") {
        let allowed = "nothing: this program was built without its feature `otel`; take one with it, \
                       or leave the flag out and unset OTEL_EXPORTER_OTLP_ENDPOINT";
        return Err(ConfigError::value(FLAG, endpoint.to_string(), allowed));
    }
    if variable("OTEL_EXPORTER_OTLP_PROTOCOL")?.is_some_and(|value| value != "grpc") {
        let why = "is not `grpc`, which is all that a node speaks; unset it, and name the collector's \
                   port for gRPC, mostly 4317";
        return Err(wrong("OTEL_EXPORTER_OTLP_PROTOCOL", why));
    }
    let is_exported = |name| match variable(name)?.as_deref() {
        None | Some("otlp") => Ok(true),
        Some("none") => Ok(false),
        Some(_) => Err(wrong(
            name,
            "is neither `otlp` nor `none`; set it to one of them, or unset it",
        )),
    };
    let traces = is_exported("OTEL_TRACES_EXPORTER")?;
    let metrics = is_exported("OTEL_METRICS_EXPORTER")?;
    let timeout = millis(variable, "OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_MS, 10_000)?;
    let every = millis(variable, "OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS, 60_000)?;
    let sampler = sampler(share, variable)?;
    Ok(Some(Otlp {
        trust: trust(&endpoint, variable)?,
        endpoint,
        headers: headers(variable)?,
        timeout,
        resource: resource(variable)?,
        traces: traces.then_some(sampler),
        metrics_every: metrics.then_some(every),
    }))
}

fn wrong(name: &'static str, why: impl Into<String>) -> ConfigError {
    ConfigError::Variable {
        name,
        why: why.into(),
    }
}

fn endpoint(text: &str) -> Result<Uri, &'static str> {
    const ALLOWED: &str = "http://HOST:PORT or https://HOST:PORT of a collector that speaks OTLP by \
                           gRPC, mostly at port 4317; no user, path, ? or #";
    let uri: Uri = text.parse().map_err(|_| ALLOWED)?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let plain = !text.contains(['@', '?', '#']) && matches!(uri.path(), "" | "/");
    let whole = uri.authority().is_some_and(|authority| {
        let behind = authority.as_str().strip_prefix(authority.host());
        let port = |text: &str| text.strip_prefix(':')?.parse::<u16>().ok();
        // A port that is none would be that of the web.
        !authority.host().is_empty()
            && behind.is_some_and(|behind| behind.is_empty() || port(behind) > Some(0))
    });
    match known && plain && whole {
        true => Ok(uri),
        false => Err(ALLOWED),
    }
}

fn ratio(share: f64) -> Result<Ratio, ConfigError> {
    Ratio::new(share).ok_or_else(|| {
        let allowed = "0 (none) to 1 (all)";
        ConfigError::value("trace-sample", share.to_string(), allowed)
    })
}

fn sampler(share: Option<Ratio>, variable: Variable<'_>) -> Result<Sampler, ConfigError> {
    let named = variable(SAMPLER)?;
    let argument = || match variable(SAMPLER_ARG)? {
        None => Ok(1.0),
        Some(text) => text.parse::<f64>().map_err(|_| bad_argument()),
    };
    let (heeds_callers, ratio) = match (share, named.as_deref()) {
        (Some(share), _) => {
            return Ok(Sampler {
                heeds_callers: true,
                ratio: share,
            });
        }
        (None, None) => (true, RATIO_STANDARD),
        (None, Some("always_on")) => (false, 1.0),
        (None, Some("always_off")) => (false, 0.0),
        (None, Some("traceidratio")) => (false, argument()?),
        (None, Some("parentbased_always_on")) => (true, 1.0),
        (None, Some("parentbased_always_off")) => (true, 0.0),
        (None, Some("parentbased_traceidratio")) => (true, argument()?),
        (None, Some(_)) => {
            let why = "is none of always_on, always_off, traceidratio, parentbased_always_on, \
                       parentbased_always_off and parentbased_traceidratio";
            return Err(wrong(SAMPLER, why));
        }
    };
    let ratio = Ratio::new(ratio).ok_or_else(bad_argument)?;
    Ok(Sampler {
        heeds_callers,
        ratio,
    })
}

fn bad_argument() -> ConfigError {
    wrong(SAMPLER_ARG, "is no number from 0 to 1")
}

fn millis(
    variable: Variable<'_>,
    name: &'static str,
    allowed: std::ops::RangeInclusive<u64>,
    standard: u64,
) -> Result<Duration, ConfigError> {
    let Some(text) = variable(name)? else {
        return Ok(Duration::from_millis(standard));
    };
    match text.parse::<u64>() {
        Ok(millis) if allowed.contains(&millis) => Ok(Duration::from_millis(millis)),
        _ => {
            let (min, max) = (allowed.start(), allowed.end());
            Err(wrong(
                name,
                format!("is no number of milliseconds from {min} to {max}"),
            ))
        }
    }
}

fn trust(endpoint: &Uri, variable: Variable<'_>) -> Result<Trust, ConfigError> {
    const CA: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
    const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
    const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
    let file = |text: String| Pem::File(PathBuf::from(text));
    let ca = variable(CA)?.map(file);
    let own = match (variable(CERTIFICATE)?, variable(KEY)?) {
        (Some(certificate), Some(key)) => Some((file(certificate), file(key))),
        (None, None) => None,
        (Some(_), None) => return Err(wrong(KEY, "is not set, but the certificate is; set both")),
        (None, Some(_)) => return Err(wrong(CERTIFICATE, "is not set, but the key is; set both")),
    };
    let is_plain = endpoint.scheme_str() == Some("http");
    match (ca, own) {
        (None, None) if is_plain => Ok(Trust::Plain),
        (None, None) => Ok(Trust::Machine),
        (Some(_), _) if is_plain => Err(wrong(
            CA,
            "is set, but the endpoint is http://, without TLS; name it as https://, or unset it",
        )),
        (Some(ca), certificate) => Ok(Trust::Files(ClientTls {
            ca: vec![ca],
            certificate,
            ..ClientTls::default()
        })),
        (None, Some(_)) => Err(wrong(
            CA,
            "is not set; a node that shows a certificate has to know who signed the collector's",
        )),
    }
}

/// `key=value,key=value`, with values in percent-encoding.
fn pairs(variable: Variable<'_>, name: &'static str) -> Result<Vec<(String, String)>, ConfigError> {
    let Some(text) = variable(name)? else {
        return Ok(Vec::new());
    };
    let of_pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
        (!key.is_empty()).then_some((key, value))
    };
    let all = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let pairs: Option<Vec<_>> = all.map(of_pair).collect();
    match pairs {
        Some(pairs) if pairs.len() <= OTLP_ATTRIBUTES_MAX => Ok(pairs),
        Some(_) => Err(wrong(
            name,
            format!("has more than {OTLP_ATTRIBUTES_MAX} pairs"),
        )),
        None => Err(wrong(
            name,
            "is no list as key=value,key=value, with values in percent-encoding",
        )),
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // `+1` is a number for Rust, and none here.
        let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| hex)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn headers(variable: Variable<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let of_pair = |(key, value): (String, String)| {
        let name: HeaderName = key.to_ascii_lowercase().parse().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        // What gRPC says on its own is not for a variable to say.
        let ours = ["te", "content-type", "user-agent", "host"].contains(&name.as_str());
        let theirs =
            !ours && !name.as_str().starts_with("grpc-") && !name.as_str().ends_with("-bin");
        theirs.then_some((name, value))
    };
    let headers: Option<Vec<_>> = pairs(variable, HEADERS)?.into_iter().map(of_pair).collect();
    headers.ok_or_else(|| {
        let why = "has a name or a value that no header of a call may have";
        wrong(HEADERS, why)
    })
}

fn resource(variable: Variable<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut resource = pairs(variable, RESOURCE)?;
    if let Some(name) = variable("OTEL_SERVICE_NAME")? {
        resource.push(("service.name".to_owned(), name));
    }
    Ok(resource)
}

#[cfg(all(test, feature = "otel"))]
mod tests;
