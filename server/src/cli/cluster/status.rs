//! `ringfence cluster status`: what each node knows, asked one by one.

use std::process::ExitCode;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{StatusRequest, StatusResponse};
use serde_json::{Value, json};

use crate::cli::output::{Output, Table};
use crate::cli::{Failure, Global, exit, tls, view};

/// Show what each node knows: role, leader, term, how far it is
///
/// Every endpoint is asked separately. The exit code is 69 unless one that knows a leader answers.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster status --endpoints 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420")]
pub(crate) struct Status {}

/// One endpoint and what it said, or why it did not.
struct Answer {
    endpoint: String,
    said: Result<StatusResponse, String>,
}

impl Status {
    pub(crate) async fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        let endpoints = global.endpoints();
        let asked = endpoints.into_iter().map(|endpoint| ask(endpoint, global));
        let answers = futures_util::future::join_all(asked).await;
        let objects: Vec<Value> = answers.iter().map(object).collect();

        let led = answers
            .iter()
            .filter_map(|answer| answer.said.as_ref().ok());
        let led: Vec<&StatusResponse> = led.filter(|said| said.leader_id != 0).collect();
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
            if newest.token_floor_set {
                output.note(
                    "its tokens do not start at the wall clock: do not put it before a lasting store",
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
        let answered = answers.iter().filter(|answer| answer.said.is_ok()).count();
        let message = match answered {
            0 => "no node answers".to_owned(),
            _ => format!(
                "{answered} of {} nodes answer, and none knows a leader",
                answers.len()
            ),
        };
        Err(
            Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint(
                "start nodes until a majority runs; `ringfence dev` starts a cluster to play with",
            ),
        )
    }
}

async fn ask(endpoint: String, global: &Global) -> Answer {
    let asked = async {
        let channel = global.tls.connect(&endpoint, global.timeout).await?;
        let answer = ClusterClient::new(channel).status(StatusRequest {}).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| tls::said(&status))
    };
    let said = match tokio::time::timeout(global.timeout, asked).await {
        Ok(said) => said,
        Err(_) => Err("no answer in time".to_owned()),
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
            Err(why) => {
                let mut cells = vec![endpoint.clone(), "-".into(), format!("down: {why}")];
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
        Err(why) => return json!({ "endpoint": answer.endpoint, "role": "down", "why": why }),
    };
    json!({
        "endpoint": answer.endpoint,
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
    })
}
