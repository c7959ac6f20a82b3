//! `ringfence kube canary`: would a stale write get in?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use ringfence_kube::canary::{Canary as Prober, Outcome, Trial};
use ringfence_kube::policy::Resource;
use serde_json::json;

use super::figures;
use super::guarded::{self, Guarded};
use crate::cli::output::Output;
use crate::cli::stderr::log_to_stderr;
use crate::cli::{Failure, Global, exit, signals};

/// Try whether Kubernetes refuses stale writes, again and again, and show it as figures
///
/// As dry runs it writes what must be refused: with a fence below the mirrored Lease's token, and
/// below the mark on an object. Run it as the fenced service account, with the manifests of `kube
/// policy` applied, or as somebody who may impersonate that account.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence kube canary --lease demo/leader --carrier impersonate --service-account demo/controller --listen-http '[::]:7423'
  ringfence kube canary --lease demo/leader --carrier impersonate --service-account demo/controller --once

With --once: 0 if both were refused, 1 if the policies let one pass, 69 if that is unknown.
Figures: ringfence_kube_canary_open is 1 while the policies let a stale write pass, _blind is 1
while that is unknown, _writes_total counts all, each by rule: floor, mark. The policies alone count:
a write that only the webhook refuses has passed.")]
pub(crate) struct Canary {
    #[command(flatten)]
    guarded: Guarded,
    /// How the API server is reached [default: as the service account of this Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Try once, print what was found, and end
    #[arg(long, conflicts_with_all = ["every", "listen_http"])]
    once: bool,
    /// From one trial to the next
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = crate::duration::parse)]
    every: Duration,
    /// Where /metrics and /livez are served
    #[arg(long, default_value = "127.0.0.1:7423", value_name = "IP:PORT")]
    listen_http: SocketAddr,
}

/// The shortest time between trials: they are for people, and a cluster has other work.
const EVERY_MIN: Duration = Duration::from_millis(100);

impl Canary {
    pub(super) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        if self.every < EVERY_MIN {
            return Err(Failure::usage(format!(
                "--every is {:?}; allowed: {EVERY_MIN:?} or more",
                self.every
            )));
        }
        let resources = vec![Resource::config_maps()];
        let fencing = guarded::fencing(self.guarded.wish(resources))?;
        let client = ringfence_kube::connect(self.kubeconfig.as_deref()).await;
        let client = client.map_err(|why| Failure::usage(why.to_string()))?;
        let prober = Prober::new(client, fencing);
        let output = Output::new(global);
        if self.once {
            return once(&prober, &output).await;
        }
        log_to_stderr();
        let listener = figures::listen("listen-http", self.listen_http)?;
        let found = Figures::default();
        let mut registry = Registry::with_prefix("ringfence");
        found.register(&mut registry);
        figures::show(listener, self.listen_http, registry);
        tokio::select! {
            never = watch(&prober, &found, self.every) => match never {},
            _ = signals::stop() => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Tries both, and says what was found.
async fn once(prober: &Prober, output: &Output) -> Result<ExitCode, Failure> {
    let mut code = 0;
    for trial in Trial::ALL {
        let outcome = prober.attempt(trial).await;
        let (rule, name) = (trial.name(), outcome.name());
        let (text, found) = match &outcome {
            Outcome::Refused => (format!("{rule}: a stale write is refused"), 0),
            Outcome::Passed => (
                format!("{rule}: NO POLICY REFUSES A STALE WRITE"),
                exit::NEGATIVE,
            ),
            Outcome::Unknown(why) => (format!("{rule}: unknown: {why}"), exit::UNAVAILABLE),
        };
        output.result(&json!({"rule": rule, "outcome": name}), text)?;
        // What is open matters more than what is unknown.
        code = match (code, found) {
            (exit::NEGATIVE, _) | (_, exit::NEGATIVE) => exit::NEGATIVE,
            (before, found) => before.max(found),
        };
    }
    Ok(ExitCode::from(code))
}

async fn watch(prober: &Prober, found: &Figures, every: Duration) -> std::convert::Infallible {
    let mut pace = tokio::time::interval(every);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = [None, None];
    loop {
        pace.tick().await;
        for (trial, before) in Trial::ALL.into_iter().zip(&mut before) {
            let outcome = prober.attempt(trial).await;
            found.tell(trial, &outcome);
            if before.as_ref() != Some(&outcome) {
                log(trial, &outcome);
                *before = Some(outcome);
            }
        }
    }
}

fn log(trial: Trial, outcome: &Outcome) {
    let rule = trial.name();
    match outcome {
        Outcome::Refused => tracing::info!(rule, "a stale write is refused"),
        Outcome::Passed => tracing::error!(rule, "no policy refuses a stale write"),
        Outcome::Unknown(why) => tracing::warn!(rule, why, "it is unknown"),
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rule {
    rule: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Write {
    rule: &'static str,
    outcome: &'static str,
}

/// What is shown.
#[derive(Clone, Debug, Default)]
struct Figures {
    writes: Family<Write, Counter>,
    open: Family<Rule, Gauge<i64, AtomicI64>>,
    blind: Family<Rule, Gauge<i64, AtomicI64>>,
}

impl Figures {
    fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("kube_canary");
        registry.register(
            "writes",
            "Writes that must be refused, by rule (floor, mark) and outcome: refused, passed, unknown",
            self.writes.clone(),
        );
        registry.register(
            "open",
            "1 while the policies let a stale write pass; stays while that is unknown",
            self.open.clone(),
        );
        registry.register("blind", "1 while that is unknown", self.blind.clone());
    }

    fn tell(&self, trial: Trial, outcome: &Outcome) {
        let (rule, name) = (trial.name(), outcome.name());
        let write = Write {
            rule,
            outcome: name,
        };
        self.writes.get_or_create(&write).inc();
        let blind = matches!(outcome, Outcome::Unknown(_));
        let rule = Rule { rule };
        self.blind.get_or_create(&rule).set(i64::from(blind));
        if !blind {
            let open = *outcome == Outcome::Passed;
            self.open.get_or_create(&rule).set(i64::from(open));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ringfence_kube::policy::{Carrier, Fencing, FencingSpec};

    use super::*;

    /// A command line of the canary's own.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        canary: Canary,
    }

    #[test]
    fn the_line_in_printed_manifests_tries_what_they_fence() {
        let default = FencingSpec {
            resources: vec![Resource::config_maps()],
            ..FencingSpec::new("demo/leader", Carrier::Impersonate)
        };
        let other = FencingSpec {
            prefix: "locks".to_owned(),
            namespaces: vec!["a".to_owned(), "b".to_owned()],
            account: Some("jobs/writer".parse().unwrap()),
            carrier: Carrier::Sequence,
            ..default.clone()
        };
        for wish in [default, other] {
            let fencing = Fencing::new(wish).unwrap();
            let printed = fencing.manifests();
            let mut lines = printed.lines();
            let line = lines.find_map(|line| line.strip_prefix("#   ringfence kube canary "));
            let words = ["canary"].into_iter().chain(line.unwrap().split(' '));
            let Line { canary } = Line::try_parse_from(words).unwrap();
            let tried = guarded::fencing(canary.guarded.wish(vec![Resource::config_maps()]));
            assert_eq!(tried.unwrap(), fencing);
        }
    }

    #[test]
    fn what_is_open_stays_open_while_nobody_can_tell() {
        let mut registry = Registry::with_prefix("ringfence");
        let figures = Figures::default();
        figures.register(&mut registry);
        let shown = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };

        figures.tell(Trial::Floor, &Outcome::Passed);
        figures.tell(Trial::Floor, &Outcome::Unknown("away".into()));
        for line in [
            "ringfence_kube_canary_open{rule=\"floor\"} 1",
            "ringfence_kube_canary_blind{rule=\"floor\"} 1",
            "ringfence_kube_canary_writes_total{rule=\"floor\",outcome=\"passed\"} 1",
        ] {
            assert!(shown().contains(line), "{}", shown());
        }
        figures.tell(Trial::Floor, &Outcome::Refused);
        assert!(shown().contains("ringfence_kube_canary_open{rule=\"floor\"} 0"));
        assert!(shown().contains("ringfence_kube_canary_blind{rule=\"floor\"} 0"));
    }
}
