//! `ringfence lease get NAME`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_core::LeaseName;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{GetRequest, GetResponse, Lease};
use serde_json::Value;

use crate::cli::context::{Context, Freshness};
use crate::cli::{Failure, duration, parse, view};

/// Show a lease: its holder and token, what is left, who waits
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence lease get reports/daily")]
pub(crate) struct Get {
    /// The lease's name
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    #[command(flatten)]
    freshness: Freshness,
}

impl Get {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let request = GetRequest {
            name: self.name.to_string(),
            read: self.freshness.to_wire(),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).get(request).await }
        };
        let answer: GetResponse = unstable::unary(&context.client, ask).await?;
        let lease = answer.lease.unwrap_or_default();
        context
            .output
            .result(&Value::Object(view::lease(&lease)), text(&lease))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(lease: &Lease) -> String {
    let name = &lease.name;
    let mut lines = match &lease.holder {
        Some(holder) => format!(
            "{name} is held by {} (session {}) with token {}, since {}\n{}",
            holder.identity,
            holder.session,
            holder.token,
            view::wall(holder.since_unix_ms),
            lasts(lease),
        ),
        None if lease.floor != 0 => format!("{name} is free; its last token was {}", lease.floor),
        None => format!("{name} is free"),
    };
    if lease.waiters > 0 {
        lines.push_str(&format!("\n{} waiting", lease.waiters));
    }
    if lease.blocked_ms > 0 {
        let left = duration::show(lease.blocked_ms);
        lines.push_str(&format!("\nblocked for another {left}"));
    }
    lines
}

fn lasts(lease: &Lease) -> String {
    match lease.ttl_ms {
        view::FOR_LIFE => "for life: as long as its holder's Pod".to_owned(),
        ttl_ms => format!(
            "{} left of {}",
            duration::show(lease.remaining_ms),
            duration::show(ttl_ms)
        ),
    }
}
