//! `ringfence session list`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{ListSessionsRequest, ListSessionsResponse, Session};
use serde_json::Value;

use crate::cli::context::{Context, Freshness};
use crate::cli::output::Table;
use crate::cli::{Failure, view};

/// List sessions in the order of their numbers
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence session list")]
pub(crate) struct List {
    #[command(flatten)]
    freshness: Freshness,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut sessions: Vec<Session> = Vec::new();
        loop {
            let request = ListSessionsRequest {
                after: sessions.last().map_or(0, |last| last.session),
                read: self.freshness.to_wire(),
                ..ListSessionsRequest::default()
            };
            let ask =
                move |channel| async move { SessionsClient::new(channel).list(request).await };
            let page: ListSessionsResponse = unstable::unary(&context.client, ask).await?;
            let more = page.more && !page.sessions.is_empty();
            sessions.extend(page.sessions);
            if !more {
                break;
            }
        }

        let mut table = Table::new(&["SESSION", "HOLDER", "TTL", "LEFT", "WAITS", "POD"]);
        for session in &sessions {
            table.row(vec![
                session.session.to_string(),
                session.identity.clone(),
                view::lasting(session.ttl_ms),
                view::lasting(session.remaining_ms),
                session.waits.to_string(),
                view::or_dash(session.pod.as_ref().map(view::pod)),
            ]);
        }
        let objects: Vec<Value> = sessions
            .iter()
            .map(|session| {
                let mut object = view::session(session);
                // The list does not tell them: an empty array would say that there are none.
                object.remove("leases");
                Value::Object(object)
            })
            .collect();
        context.output.list(&objects, &table, "no sessions")?;
        Ok(ExitCode::SUCCESS)
    }
}
