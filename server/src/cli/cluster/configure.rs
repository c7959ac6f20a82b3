//! `ringfence cluster configure`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{
    ConfigureRequest, ConfigureResponse, Settings, StatusRequest, StatusResponse,
};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::output::Table;
use crate::cli::{Failure, duration, exit};

/// Show the replicated settings, or change some of them
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence cluster configure   # shows the settings
  ringfence cluster configure --ttl-max 10m")]
pub(crate) struct Configure {
    /// The shortest TTL a session may ask for
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl_min: Option<Duration>,
    /// The longest TTL a session may ask for, up to 24h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl_max: Option<Duration>,
    /// How long a name may be idle before its last token is forgotten
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    idle_retention: Option<Duration>,
    /// The most leases and waits of one session
    #[arg(long, value_name = "N")]
    session_leases_max: Option<u32>,
    /// The most waiters of one lease
    #[arg(long, value_name = "N")]
    lease_waiters_max: Option<u32>,
    /// The most lease names the cluster remembers
    #[arg(long, value_name = "N")]
    leases_max: Option<u64>,
    /// The most sessions
    #[arg(long, value_name = "N")]
    sessions_max: Option<u64>,
    /// The TTL of a lease of the Lease endpoint, as a multiple of its leaseDurationSeconds; 1 to 2
    #[arg(long, value_name = "N", value_parser = factor)]
    lease_api_factor: Option<u32>,
}

/// A multiple with at most three decimals, in thousandths. Whether it is in range, the cluster says.
fn factor(text: &str) -> Result<u32, String> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{whole}{decimals:0<3}");
    match digits(&thousandths) && !whole.is_empty() && decimals.len() <= 3 {
        true => thousandths
            .parse()
            .map_err(|_| "too great a number".to_owned()),
        false => Err("expected a number with at most three decimals, like 1.5".to_owned()),
    }
}

fn factor_text(per_mille: u32) -> String {
    let (whole, rest) = (per_mille / 1_000, per_mille % 1_000);
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Configure {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let ask =
            |channel| async move { ClusterClient::new(channel).status(StatusRequest {}).await };
        let status: StatusResponse = unstable::unary(&context.client, ask).await?;
        let Some(before) = status.settings else {
            let message = "the node knows no settings: it belongs to no cluster yet";
            return Err(Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
                .hint("`cluster status` shows what each node waits for"));
        };
        let after = self.over(before);
        let mut settings_index = status.settings_index;
        if after != before {
            // Based on what was read: a change made by another operator meanwhile is not undone.
            let request = ConfigureRequest {
                settings: Some(after),
                based_on: status.settings_index,
                change: None,
            };
            let ask =
                move |channel| async move { ClusterClient::new(channel).configure(request).await };
            let answer: ConfigureResponse = unstable::unary(&context.client, ask).await?;
            settings_index = answer.settings_index;
        }
        show(context, &after, settings_index)?;
        Ok(ExitCode::SUCCESS)
    }

    fn over(&self, before: Settings) -> Settings {
        let millis = |given: Option<Duration>, before| given.map_or(before, duration::millis);
        Settings {
            ttl_min_ms: millis(self.ttl_min, before.ttl_min_ms),
            ttl_max_ms: millis(self.ttl_max, before.ttl_max_ms),
            idle_retention_ms: millis(self.idle_retention, before.idle_retention_ms),
            session_leases_max: self.session_leases_max.unwrap_or(before.session_leases_max),
            lease_waiters_max: self.lease_waiters_max.unwrap_or(before.lease_waiters_max),
            leases_max: self.leases_max.unwrap_or(before.leases_max),
            sessions_max: self.sessions_max.unwrap_or(before.sessions_max),
            lease_api_factor_per_mille: self
                .lease_api_factor
                .unwrap_or(before.lease_api_factor_per_mille),
        }
    }
}

fn show(context: &Context, settings: &Settings, index: u64) -> Result<(), Failure> {
    let object = json!({
        "ttl_min_ms": settings.ttl_min_ms,
        "ttl_max_ms": settings.ttl_max_ms,
        "idle_retention_ms": settings.idle_retention_ms,
        "session_leases_max": settings.session_leases_max,
        "lease_waiters_max": settings.lease_waiters_max,
        "leases_max": settings.leases_max,
        "sessions_max": settings.sessions_max,
        "lease_api_factor_per_mille": settings.lease_api_factor_per_mille,
        "index": index,
    });
    let mut table = Table::new(&["SETTING", "VALUE"]);
    let rows = [
        ("ttl-min", duration::show(settings.ttl_min_ms)),
        ("ttl-max", duration::show(settings.ttl_max_ms)),
        ("idle-retention", duration::show(settings.idle_retention_ms)),
        (
            "session-leases-max",
            settings.session_leases_max.to_string(),
        ),
        ("lease-waiters-max", settings.lease_waiters_max.to_string()),
        ("leases-max", settings.leases_max.to_string()),
        ("sessions-max", settings.sessions_max.to_string()),
        (
            "lease-api-factor",
            factor_text(settings.lease_api_factor_per_mille),
        ),
    ];
    for (name, value) in rows {
        table.row(vec![name.to_owned(), value]);
    }
    context.output.list(&[object], &table, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_read_and_shown_in_decimals() {
        for (text, per_mille) in [
            ("1", 1_000),
            ("1.5", 1_500),
            ("1.125", 1_125),
            ("2.0", 2_000),
        ] {
            assert_eq!(factor(text), Ok(per_mille));
            let shown = factor_text(per_mille);
            assert_eq!(factor(&shown), Ok(per_mille), "{shown}");
        }
        for text in ["", ".5", "1.5x", "-1", "1.2345", "99999999999"] {
            assert!(factor(text).is_err(), "{text}");
        }
        assert_eq!(factor_text(1_500), "1.5");
    }
}
