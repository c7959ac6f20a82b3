//! `ringfence lease history`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{HistoryRecord, HistoryRequest, HistoryResponse};
use serde_json::Value;

use crate::cli::context::Context;
use crate::cli::output::Table;
use crate::cli::{Failure, exit, view};

/// Show who held a lease or a token, from when to when, and why it ended
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence lease history reports/daily
  ringfence lease history --token 42   # who held it, and why it ended")]
#[group(required = true, multiple = false, args = ["name", "token"])]
pub(crate) struct History {
    /// The lease's name
    name: Option<String>,
    /// Or: the grant with this token
    #[arg(long)]
    token: Option<u64>,
    /// At most so many grants, the newest first
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

impl History {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let sought = match (&self.name, self.token) {
            (Some(name), _) => name.clone(),
            (None, token) => format!("token {}", view::or_dash(token)),
        };
        let request = HistoryRequest {
            name: self.name.unwrap_or_default(),
            token: self.token.unwrap_or_default(),
            limit: self.limit,
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).history(request).await }
        };
        let answer: HistoryResponse = unstable::unary(&context.client, ask).await?;
        if answer.records.is_empty() {
            let covered = answer.covered.iter();
            let covered: Vec<String> = covered
                .map(|range| format!("{}–{}", range.first, range.last))
                .collect();
            let message = format!(
                "nothing is recorded of {sought} in the log indices {}",
                if covered.is_empty() {
                    "-".into()
                } else {
                    covered.join(", ")
                }
            );
            return Err(Failure::new(exit::NEGATIVE, "NOT_FOUND", message)
                .hint("another node may cover more; the history is kept for 30 days"));
        }
        let mut table = Table::new(&["NAME", "TOKEN", "HOLDER", "FROM", "TO", "END"]);
        for record in &answer.records {
            table.row(row(record));
        }
        let objects: Vec<Value> = answer.records.iter().map(object).collect();
        context.output.list(&objects, &table, "")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn row(record: &HistoryRecord) -> Vec<String> {
    let grant = record.grant.clone().unwrap_or_default();
    let ended = record.ended_unix_ms;
    vec![
        grant.name,
        grant.token.to_string(),
        grant.identity,
        view::wall(grant.since_unix_ms),
        if ended == 0 {
            "-".into()
        } else {
            view::wall(ended)
        },
        view::or_dash(record.cause.as_ref().map(view::cause)),
    ]
}

fn object(record: &HistoryRecord) -> Value {
    let mut object = record.grant.as_ref().map(view::grant).unwrap_or_default();
    if let Some(cause) = &record.cause {
        view::insert_cause(&mut object, cause);
        object.insert("ended_index".into(), record.ended_index.into());
        object.insert("ended_unix_ms".into(), record.ended_unix_ms.into());
    }
    Value::Object(object)
}
