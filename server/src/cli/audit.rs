//! `ringfence audit`.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use ringfence_client::unstable;
use ringfence_core::{AUDIT_RECORDS_MAX, ClusterId};
use ringfence_proto::v1::access_client::AccessClient;
use ringfence_proto::v1::{Act, ListActsRequest, ListActsResponse};
use ringfence_proto::wire::{self, ACTS_PER_PAGE_MAX};
use serde_json::Value;

use crate::acts;
use crate::cli::context::Context;
use crate::cli::output::Table;
use crate::cli::{Failure, exit, signals, view};

/// Between two looks for new acts.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many looks in a row may fail until the command ends; each lasts up to `--timeout`.
const FAILED_LOOKS_MAX: u32 = 12;

/// Show what operators did: changes of rights, settings and members, revokes and evictions
///
/// The cluster keeps 1,024 acts. Refused requests are no acts: nodes count and sample
/// them, see `serve --audit-log`.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence audit
  ringfence audit --after 4711 --json
  ringfence audit --follow --json >> acts.jsonl")]
pub(crate) struct Audit {
    /// Only acts behind this log index, the oldest first [default: the newest acts]
    #[arg(long, value_name = "INDEX")]
    after: Option<u64>,
    /// At most so many acts; with --follow those that are shown at the start
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=AUDIT_RECORDS_MAX as i64))]
    limit: u32,
    /// Wait for further acts, and print them as they happen
    #[arg(long)]
    follow: bool,
}

/// How far the acts were read.
#[derive(Default)]
struct Reader {
    /// The cluster that they are of.
    cluster: Bytes,
    after: u64,
}

/// What a look brought.
#[derive(Default)]
struct Found {
    /// The cluster that it is of.
    cluster: Option<ClusterId>,
    acts: Vec<Act>,
    /// The index of the act from which on all are kept, if acts before it may be gone.
    lost_before: Option<u64>,
}

impl Reader {
    /// Up to so many acts behind those that were read.
    async fn next(&mut self, context: &Context, limit: usize) -> Result<Found, Failure> {
        let mut found = Found::default();
        loop {
            let missing = limit.saturating_sub(found.acts.len());
            let page = self.page(context, missing).await?;
            found.cluster = wire::cluster_id_from_wire(&page.cluster_id).unwrap_or_default();
            if page.compacted {
                found.lost_before = Some(page.oldest);
            }
            let Some(last) = page.acts.last() else {
                return Ok(found);
            };
            self.after = last.index;
            found.acts.extend(page.acts);
            if found.acts.len() >= limit || self.after >= page.newest {
                return Ok(found);
            }
        }
    }

    async fn page(&mut self, context: &Context, most: usize) -> Result<ListActsResponse, Failure> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let request = ListActsRequest {
            cluster_id: self.cluster.clone(),
            after: self.after,
            limit: most.min(ACTS_PER_PAGE_MAX),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move {
                let mut access = AccessClient::new(channel)
                    .max_decoding_message_size(unstable::MESSAGE_BYTES_MAX);
                access.list_acts(request).await
            }
        };
        let page: ListActsResponse = unstable::unary(&context.client, ask).await?;
        self.cluster = page.cluster_id.clone();
        Ok(page)
    }
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut reader = Reader {
            after: self.after.unwrap_or_default(),
            ..Reader::default()
        };
        let limit = usize::try_from(self.limit).unwrap_or(AUDIT_RECORDS_MAX);
        let mut found = match self.after {
            Some(_) => reader.next(context, limit).await?,
            // The newest are at the end of all that are kept, and what was dropped is not asked for.
            None => {
                let mut all = reader.next(context, usize::MAX).await?;
                let older = all.acts.len().saturating_sub(limit);
                Found {
                    acts: all.acts.split_off(older),
                    lost_before: None,
                    ..all
                }
            }
        };
        if !self.follow {
            return show(context, self.after, &found).map(|()| ExitCode::SUCCESS);
        }
        tokio::select! {
            done = async {
                print(context, self.after.unwrap_or_default(), &found)?;
                let mut failed = 0;
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    let after = reader.after;
                    found = match reader.next(context, usize::MAX).await {
                        Ok(found) => found,
                        Err(failure) if failure.exit == exit::UNAVAILABLE && failed < FAILED_LOOKS_MAX => {
                            failed += 1;
                            // A page may have arrived before the failure; it is asked for again.
                            reader.after = after;
                            context.output.remark(format!("-- no answer, looking again: {}", failure.message));
                            continue;
                        }
                        Err(failure) => return Err(failure),
                    };
                    failed = 0;
                    print(context, after, &found)?;
                }
            } => done,
            _ = signals::stop() => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Prints a finished list.
fn show(context: &Context, after: Option<u64>, found: &Found) -> Result<(), Failure> {
    report_lost(context, after.unwrap_or_default(), found)?;
    let mut table = Table::new(&["INDEX", "AT", "PRINCIPAL", "ACT", "REASON"]);
    for act in &found.acts {
        table.row(vec![
            act.index.to_string(),
            view::wall(act.at_unix_ms),
            principal(act).to_owned(),
            act.act.clone(),
            view::or_dash((!act.reason.is_empty()).then_some(&act.reason)),
        ]);
    }
    let objects = found.acts.iter();
    let objects: Vec<Value> = objects.map(|act| acts::act(found.cluster, act)).collect();
    context.output.list(&objects, &table, "no acts")
}

/// Prints acts as they come.
fn print(context: &Context, after: u64, found: &Found) -> Result<(), Failure> {
    report_lost(context, after, found)?;
    for act in &found.acts {
        let reason = match act.reason.as_str() {
            "" => String::new(),
            reason => format!("  ({reason})"),
        };
        let text = format!(
            "{}  {}  {}  {}{reason}",
            act.index,
            view::wall(act.at_unix_ms),
            principal(act),
            act.act,
        );
        context
            .output
            .result(&acts::act(found.cluster, act), text)?;
    }
    Ok(())
}

/// A gap is a result of its own: a reader must not take what is left for all.
fn report_lost(context: &Context, after: u64, found: &Found) -> Result<(), Failure> {
    let Some(oldest) = found.lost_before else {
        return Ok(());
    };
    let object = acts::missed(found.cluster, after, oldest);
    let text = format!(
        "-- acts between index {after} and {oldest} may be MISSING: the cluster keeps \
         {AUDIT_RECORDS_MAX}; `serve --audit-log` keeps all that a node applies"
    );
    context.output.result(&object, text)
}

fn principal(act: &Act) -> &str {
    match act.principal.as_str() {
        "" => "-",
        principal => principal,
    }
}
