//! `ringfence lease list [PREFIX]`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{ListRequest, ListResponse};
use serde_json::Value;

use crate::cli::context::{Context, Freshness};
use crate::cli::output::Table;
use crate::cli::{Failure, view};

/// List leases in the order of their names, all at one instant
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence lease list reports/")]
pub(crate) struct List {
    /// Only names that begin with it
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    freshness: Freshness,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut leases = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListRequest {
                prefix: self.prefix.clone(),
                page_token,
                read: self.freshness.to_wire(),
                ..ListRequest::default()
            };
            let ask = move |channel| {
                let request = request.clone();
                async move { LeasesClient::new(channel).list(request).await }
            };
            let page: ListResponse = unstable::unary(&context.client, ask).await?;
            leases.extend(page.leases);
            if page.next_page_token.is_empty() {
                break;
            }
            page_token = page.next_page_token;
        }

        let mut table = Table::new(&["NAME", "TOKEN", "HOLDER", "SESSION", "LEFT", "WAITING"]);
        for lease in &leases {
            let holder = lease.holder.as_ref();
            table.row(vec![
                lease.name.clone(),
                view::or_dash(holder.map(|holder| holder.token)),
                view::or_dash(holder.map(|holder| &holder.identity)),
                view::or_dash(holder.map(|holder| holder.session)),
                view::or_dash(holder.map(|_| view::lasting(lease.remaining_ms))),
                lease.waiters.to_string(),
            ]);
        }
        let objects: Vec<Value> = leases
            .iter()
            .map(|lease| Value::Object(view::lease(lease)))
            .collect();
        context.output.list(&objects, &table, "no leases")?;
        Ok(ExitCode::SUCCESS)
    }
}
