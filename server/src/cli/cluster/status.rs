//! `ringfence cluster status`: what each node knows, asked one by one.

use std::process::ExitCode;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{StatusRequest, StatusResponse};
use ringfence_services::SILENCE_HEADER;
use serde_json::{Value, json};
use tonic::metadata::MetadataMap;

use crate::cli::output::{Output, Table};
use crate::cli::tls::Silence;
use crate::cli::{Failure, Global, duration, exit, view};

/// Show what each node knows: role, leader, term, how far it is
///
/// Every endpoint is asked separately. A node that has heard of no majority for 2 s shows its own state of
/// then, and how old it is. Unless one answers that knows a leader of a formed cluster with a majority
/// behind it, the exit code is 69, or 77 if all that answer refuse the credential.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster status --endpoints 10.0.0.1:7420,10.0.0.2:7420,10.0.0.3:7420")]
pub(crate) struct Status {}

/// One endpoint and what it said, or why it did not.
struct Answer {
    endpoint: String,
    said: Result<Said, Silence>,
}

/// What a node said, and whether a majority stands behind it.
struct Said {
    status: StatusResponse,
    alone: Option<Alone>,
}

/// No majority stands behind a leader, as far as a node knows: what it shows is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alone {
    /// How long ago one did, in milliseconds; `None` if not since the node was started.
    since_ms: Option<u64>,
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
        let output = Output::new(global);
        output.list(&objects, &table(&answers), "")?;

        let said = answers
            .iter()
            .filter_map(|answer| answer.said.as_ref().ok());
        let said: Vec<&Said> = said.collect();
        for said in &said {
            if let Some(alone) = said.formed_and_alone() {
                output.note(format!("{}: {}", said.status.name, alone.text()));
            }
        }
        let led = said.iter().filter(|said| said.is_led());
        if let Some(newest) = led.max_by_key(|said| said.status.applied_index) {
            about(&output, &newest.status);
            return Ok(ExitCode::SUCCESS);
        }
        let (silent, failure) = (said.is_empty(), not_led(&said, objects.len()));
        let denied = || answers.into_iter().find_map(Answer::denied);
        Err(match silent {
            true => denied().unwrap_or(failure),
            false => failure,
        })
    }
}

/// What people see of a cluster below its nodes.
fn about(output: &Output, newest: &StatusResponse) {
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
            "quiet time: no lease is granted for {left} still, since holders of the cluster before it \
             may still work; see deploy/RECOVERY.md#all-disks-are-lost"
        ));
    }
    if newest.token_floor_set {
        output.note(
            "its tokens do not start at the wall clock: do not put it before a lasting store",
        );
    }
}

/// No node of those that were asked has a leader with a majority.
fn not_led(said: &[&Said], asked: usize) -> Failure {
    let answered = said.len();
    let answer = match answered {
        1 => format!("1 of {asked} nodes answers"),
        _ => format!("{answered} of {asked} nodes answer"),
    };
    let formed = said.iter().any(|said| said.is_formed());
    let (message, hint) = match (answered, formed) {
        (0, _) => (
            "no node answers".to_owned(),
            "name the nodes that run, with --endpoints, or start nodes until a majority runs; \
             `ringfence dev` starts a cluster to play with",
        ),
        (_, true) => (
            format!(
                "no majority: {answer}, and none knows a leader that has a majority behind it, so \
                 nothing is granted; what is shown is what each node knew alone"
            ),
            "`ringfence doctor` says what is wrong; see deploy/RECOVERY.md#the-majority-is-down",
        ),
        (_, false) => (
            format!("{answer}, and none knows a leader of a formed cluster"),
            "start nodes until a majority runs; a cluster that is being restored is formed once its log \
             holds every part of the backup, and the log of each node says what it waits for",
        ),
    };
    Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint(hint)
}

impl Said {
    /// Whether a node knows a leader of a formed cluster, which has a majority as far as it knows. Before a
    /// cluster is formed a node has its seat and may know a leader, and names no cluster: nothing is logged
    /// yet, or not all of what is restored.
    fn is_led(&self) -> bool {
        self.is_formed() && self.status.leader_id != 0 && self.alone.is_none()
    }

    fn is_formed(&self) -> bool {
        !self.status.cluster_id.is_empty()
    }

    fn formed_and_alone(&self) -> Option<Alone> {
        self.alone.filter(|_| self.is_formed())
    }
}

impl Alone {
    /// What a node says of itself in the head of its answer; nothing if a majority stands behind it, and in
    /// older releases.
    fn of(head: &MetadataMap) -> Option<Self> {
        let shown = head.get(SILENCE_HEADER)?.to_str().ok()?;
        let since_ms = shown.parse().ok();
        Some(Self { since_ms })
    }

    fn text(self) -> String {
        match self.since_ms {
            Some(since) => format!(
                "no majority for {}; what it shows is its own state of then",
                duration::show(since)
            ),
            None => {
                "no majority since its start; what it shows is its own state from before".to_owned()
            }
        }
    }

    fn object(self) -> Value {
        json!({ "ms": self.since_ms })
    }
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
        let answer = node.answer(client.status(StatusRequest {})).await?;
        let alone = Alone::of(answer.metadata());
        let status = answer.into_inner();
        Ok::<_, Silence>(Said { status, alone })
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
            Ok(Said { status: said, .. }) => vec![
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
    let mut object = status_object(&answer.endpoint, &said.status);
    object["silence"] = said.alone.map(Alone::object).into();
    object
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
    fn a_leader_counts_once_the_cluster_is_formed_and_while_it_has_a_majority() {
        let said = |leader_id, cluster: &[u8], alone| Said {
            status: StatusResponse {
                leader_id,
                cluster_id: cluster.to_vec().into(),
                ..StatusResponse::default()
            },
            alone,
        };
        assert!(said(1, &[7; 16], None).is_led());
        assert!(!said(1, &[], None).is_led(), "a seat, and nothing logged");
        assert!(!said(0, &[7; 16], None).is_led());
        let alone = Some(Alone { since_ms: Some(1) });
        assert!(
            !said(1, &[7; 16], alone).is_led(),
            "it names one that is gone"
        );
    }

    #[test]
    fn a_node_says_how_old_its_state_is() {
        let head = |shown: &'static str| {
            let mut head = MetadataMap::new();
            head.insert(SILENCE_HEADER, shown.parse().unwrap());
            Alone::of(&head)
        };
        assert_eq!(Alone::of(&MetadataMap::new()), None);
        let minute = head("61000").unwrap();
        assert_eq!(minute.object(), json!({ "ms": 61_000 }));
        assert!(minute.text().starts_with("no majority for 1m 1s"));
        let ever = head(ringfence_services::SILENT_SINCE_START).unwrap();
        assert_eq!(ever.object(), json!({ "ms": null }));
        assert!(ever.text().contains("since its start"));
    }
}
