//! `ringfence lease watch [PREFIX]`.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::unstable;
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{Position, WatchEvent, WatchRequest, WatchResponse, watch_event};
use ringfence_proto::wire::position_from_wire;
use serde_json::{Map, Value};

use crate::cli::context::Context;
use crate::cli::{Failure, exit, signals, view};

/// Between two tries to go on at another node.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// How many tries in a row may bring nothing.
const RETRIES_MAX: u32 = 50;

/// Print every grant and every end as it happens, beginning with the present state
///
/// The stream goes on at another node if one fails, without gaps or duplicates.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence lease watch reports/
  ringfence lease watch --json | grep EXPIRED")]
pub(crate) struct Watch {
    /// Only names that begin with it
    #[arg(default_value = "")]
    prefix: String,
    /// Continue behind this position, as `--json` prints it with each event
    #[arg(long, value_parser = view::parse_position)]
    from: Option<Position>,
    /// End after this many lines
    #[arg(long, value_name = "N")]
    lines: Option<u64>,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        tokio::select! {
            done = self.follow(context) => done,
            _ = signals::stop() => Ok(ExitCode::SUCCESS),
        }
    }

    async fn follow(mut self, context: &Context) -> Result<ExitCode, Failure> {
        let mut tries = 0;
        loop {
            let channel = unstable::channel(&context.client).await?;
            let mut leases =
                LeasesClient::new(channel).max_decoding_message_size(unstable::MESSAGE_BYTES_MAX);
            let request = WatchRequest {
                prefix: self.prefix.clone(),
                from: self.from.clone(),
            };
            let broken = match leases.watch(request).await {
                Err(status) => status,
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    loop {
                        match stream.message().await {
                            Ok(Some(told)) => {
                                tries = 0;
                                if self.print(context, told)? {
                                    return Ok(ExitCode::SUCCESS);
                                }
                            }
                            Ok(None) => {
                                break tonic::Status::unavailable("the node ended the watch");
                            }
                            Err(status) => break status,
                        }
                    }
                }
            };
            // A refusal is final; anything else may go better at the next node.
            if let Some(refusal) = Refusal::from_status(&broken) {
                let failure = Failure::from(refusal);
                if failure.exit != exit::UNAVAILABLE {
                    return Err(failure);
                }
            }
            tries += 1;
            if tries > RETRIES_MAX {
                let message = format!("the watch cannot go on: {}", broken.message());
                return Err(Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message)
                    .hint("`cluster status` shows which nodes answer"));
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    /// Prints what was reported; whether it was all that was asked for.
    fn print(&mut self, context: &Context, told: WatchResponse) -> Result<bool, Failure> {
        if self.from.is_none() && told.events.is_empty() {
            context
                .output
                .remark("no lease is known under this prefix yet; waiting for events");
        }
        if told.compacted {
            let object = Map::from_iter([("kind".to_owned(), Value::from("COMPACTED"))]);
            let text = "-- the history in between is gone; the present state follows";
            context.output.result(&Value::Object(object), text)?;
        }
        for event in told.events {
            if self.lines == Some(0) {
                return Ok(true);
            }
            if let Some((object, text)) = line(&event) {
                context.output.result(&Value::Object(object), text)?;
                self.lines = self.lines.map(|left| left - 1);
            }
            self.from = event.position.or(self.from.take());
        }
        self.from = told.position.or(self.from.take());
        Ok(self.lines == Some(0))
    }
}

fn line(event: &WatchEvent) -> Option<(Map<String, Value>, String)> {
    let (kind, mut object, text) = match event.kind.as_ref()? {
        watch_event::Kind::Granted(grant) => {
            let text = format!(
                "granted  {}#{}  to {}",
                grant.name, grant.token, grant.identity
            );
            ("GRANTED", view::grant(grant), text)
        }
        watch_event::Kind::Ended(ended) => {
            let mut object = Map::new();
            object.insert("name".into(), ended.name.clone().into());
            object.insert("token".into(), ended.token.into());
            object.insert("holder".into(), ended.identity.clone().into());
            object.insert("session_number".into(), ended.session.into());
            let mut text = format!("ended    {}#{}", ended.name, ended.token);
            if let Some(cause) = &ended.cause {
                view::insert_cause(&mut object, cause);
                text.push_str(&format!("  {}", view::cause(cause)));
            }
            ("ENDED", object, text)
        }
        watch_event::Kind::Present(lease) => {
            let text = match &lease.holder {
                Some(holder) => {
                    format!(
                        "present  {}#{}  held by {}",
                        lease.name, holder.token, holder.identity
                    )
                }
                None => format!("present  {}  free", lease.name),
            };
            ("PRESENT", view::lease(lease), text)
        }
    };
    object.insert("kind".into(), kind.into());
    let position = event.position.as_ref().map(position_from_wire);
    if let Some(Ok(position)) = position {
        object.insert("index".into(), position.index.into());
        object.insert("position".into(), position.to_string().into());
    }
    Some((object, text))
}
