//! `ringfence cluster status`: what each node knows, asked one by one.

use std::process::ExitCode;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{StatusRequest, StatusResponse};
use serde_json::{Value, json};

use crate::cli::output::{Output, Table};
use crate::cli::tls::Silence;
use crate::cli::{Failure, Global, duration, exit, view};

/// Show what each node knows: role, leader, term, how far it is
///
/// Every endpoint is asked separately. Unless one answers that knows a leader of a formed cluster, the exit code is 69, or
/// 77 if all that answer refuse the credential.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster status --endpoints 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420")]
pub(crate) struct Status {}

/// One endpoint and what it said, or why it did not.
struct Answer {
    endpoint: String,
    said: Result<StatusResponse, Silence>,
}

/// How a node seems from here that says nothing.
fn role(silence: &Silence) -> &'static str {
    match silence.denied {
        Some(_) => "denied",
        None => "down",
    }
}

impl Status {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        global.tls.check(global)?;
        let endpoints = global.endpoints();
        let asked = endpoints.into_iter().map(|endpoint| ask(endpoint, global));
        let answers = futures_util::future::join_all(asked).await;
        let objects: Vec<Value> = answers.iter().map(object).collect();

        let led = answers
            .iter()
            .filter_map(|answer| answer.said.as_ref().ok());
        let led: Vec<&StatusResponse> = led.filter(|said| is_led(said)).collect();
        let output = Output::new(global);
        output.list(&objects, &table(&answers), "")?;
        if let Some(newest) = led.iter().max_by_key(|said| said.applied_index) {
            output.note(format!(
                "cluster {}; sessions: {}, lease names: {}, last token: {}, level: {}",
                view::hex(&newest.cluster_id),
                newest.sessions,
                newest.leases,
                newest.last_token,
                newest.level,
            ));
            if let Some(before) = newest.lineage.last() {
                output.note(format!("restored from cluster {}", view::hex(before)));
            }
            if newest.quiet_ms > 0 {
                let left = duration::show(newest.quiet_ms);
                output.note(format!(
                    "quiet time: no lease is granted for {left} still, since holders of the cluster \
                     before it may still work; see deploy/RECOVERY.md#all-disks-are-lost"
                ));
            }
            if newest.token_floor_set {
                output.note(
                    "its tokens do not start at the wall clock: do not put it before a lasting store",
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
        let answered = answers.iter().filter(|answer| answer.said.is_ok()).count();
        if answered == 0
            && let Some(denied) = answers.into_iter().find_map(Answer::denied)
        {
            return Err(denied);
        }
        let message = match answered {
            0 => "no node answers".to_owned(),
            _ => format!(
                "{answered} of {} nodes answer, and none knows a leader of a formed cluster",
                objects.len()
            ),
        };
        Err(
            Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint(match answered {
                0 => "start nodes until a majority runs; `ringfence dev` starts a cluster to play with",
                _ => {
                    "start nodes until a majority runs; a cluster that is being restored is formed once \
                     its log holds every part of the backup, and the log of each node says what it waits \
                     for"
                }
            }),
        )
    }
}

/// Whether a node knows a leader of a formed cluster. Before that a node has its seat and may know a
/// leader, and names no cluster: nothing is logged yet, or not all of what is restored.
fn is_led(said: &StatusResponse) -> bool {
    said.leader_id != 0 && !said.cluster_id.is_empty()
}

impl Answer {
    /// The refusal of a node that does not accept what this caller shows.
    fn denied(self) -> Option<Failure> {
        self.said.err()?.denied
    }
}

async fn ask(endpoint: String, global: &Global) -> Answer {
    let asked = async {
        let node = global.tls.connect(&endpoint, global.timeout).await?;
        let mut client = ClusterClient::new(node.channel.clone());
        let answer = node.answer(client.status(StatusRequest {})).await;
        Ok::<_, Silence>(answer?.into_inner())
    };
    let said = match tokio::time::timeout(global.timeout, asked).await {
        Ok(said) => said,
        Err(_) => Err("no answer in time".to_owned().into()),
    };
    Answer { endpoint, said }
}

fn table(answers: &[Answer]) -> Table {
    let mut table = Table::new(&[
        "ENDPOINT", "NODE", "ROLE", "LEADER", "TERM", "APPLIED", "VERSION",
    ]);
    for Answer { endpoint, said } in answers {
        table.row(match said {
            Ok(said) => vec![
                endpoint.clone(),
                said.name.clone(),
                said.role.clone(),
                view::or_dash((said.leader_id != 0).then_some(said.leader_id)),
                said.term.to_string(),
                said.applied_index.to_string(),
                said.version.clone(),
            ],
            Err(silence) => {
                let role = format!("{}: {}", role(silence), silence.why);
                let mut cells = vec![endpoint.clone(), "-".into(), role];
                cells.extend(std::iter::repeat_n("-".to_owned(), 4));
                cells
            }
        });
    }
    table
}

fn object(answer: &Answer) -> Value {
    let said = match &answer.said {
        Ok(said) => said,
        Err(silence) => {
            let (role, why) = (role(silence), &silence.why);
            return json!({ "endpoint": answer.endpoint, "role": role, "why": why });
        }
    };
    status_object(&answer.endpoint, said)
}

/// What a node says of itself, as programs read it.
pub(in crate::cli) fn status_object(endpoint: &str, said: &StatusResponse) -> Value {
    json!({
        "endpoint": endpoint,
        "cluster": view::hex(&said.cluster_id),
        "node": said.node_id,
        "name": said.name,
        "role": said.role,
        "leader": (said.leader_id != 0).then_some(said.leader_id),
        "leader_client_address": said.leader_client_address,
        "term": said.term,
        "last_log_index": said.last_log_index,
        "index": said.applied_index,
        "cluster_time_ms": said.cluster_time_ms,
        "sessions": said.sessions,
        "leases": said.leases,
        "last_token": said.last_token,
        "settings_index": said.settings_index,
        "token_floor_set": said.token_floor_set,
        "level": said.level,
        "log_version": said.log_version,
        "version": said.version,
        "lineage": said.lineage.iter().map(|cluster| view::hex(cluster)).collect::<Vec<_>>(),
        "quiet_ms": said.quiet_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_counts_once_the_cluster_is_formed() {
        let said = |leader_id, cluster: &[u8]| StatusResponse {
            leader_id,
            cluster_id: cluster.to_vec().into(),
            ..StatusResponse::default()
        };
        assert!(is_led(&said(1, &[7; 16])));
        assert!(!is_led(&said(1, &[])), "a seat, and nothing logged");
        assert!(!is_led(&said(0, &[7; 16])));
    }
}
