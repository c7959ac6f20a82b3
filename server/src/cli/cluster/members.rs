//! `ringfence cluster members`, and finding a member by its name.

use std::process::ExitCode;
use std::time::Duration;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{ListMembersRequest, ListMembersResponse, Member, MemberCondition};
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::output::Table;
use crate::cli::{Failure, exit, view};

/// List the members
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster members")]
pub(crate) struct Members {}

impl Members {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let members = list(context).await?;
        let mut table = Table::new(&[
            "NODE", "NAME", "ROLE", "CLIENT", "PEER", "MATCHED", "VERSION", "DISK", "HEARD",
        ]);
        for member in &members {
            let matched = (member.matched_index != 0).then_some(member.matched_index);
            table.row(vec![
                member.node_id.to_string(),
                member.name.clone(),
                role(member).to_owned(),
                member.client_address.clone(),
                member.peer_address.clone(),
                view::or_dash(matched),
                view::or_dash(version(member)),
                view::or_dash(member.condition.as_ref().and_then(disk)),
                view::or_dash(member.condition.as_ref().map(heard)),
            ]);
        }
        let objects: Vec<Value> = members.iter().map(object).collect();
        context.output.list(&objects, &table, "no members")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn role(member: &Member) -> &'static str {
    match (member.leader, member.voter) {
        (true, _) => "leader",
        (false, true) => "voter",
        (false, false) => "learner",
    }
}

/// Older releases do not say theirs.
fn version(member: &Member) -> Option<&String> {
    let version = &member.condition.as_ref()?.version;
    Some(version).filter(|version| !version.is_empty())
}

/// `None` for a release that says only that it has room.
fn disk(condition: &MemberCondition) -> Option<String> {
    match (condition.no_room, condition.last_fsync_us) {
        (true, _) => Some("NO ROOM".to_owned()),
        (false, 0) => None,
        (false, micros) => Some(format!("fsync {:?}", Duration::from_micros(micros))),
    }
}

fn heard(condition: &MemberCondition) -> String {
    match condition.age_ms {
        0 => "now".to_owned(),
        age => format!("{:?} ago", Duration::from_millis(age)),
    }
}

fn object(member: &Member) -> Value {
    let known = member.condition.as_ref();
    json!({
        "node": member.node_id,
        "name": member.name,
        "role": role(member),
        "client_address": member.client_address,
        "peer_address": member.peer_address,
        "incarnation": view::hex(&member.incarnation),
        "index": (member.matched_index != 0).then_some(member.matched_index),
        "version": version(member),
        "no_room": known.map(|known| known.no_room),
        "last_fsync_us": known.map(|known| known.last_fsync_us),
        "heard_ms": known.map(|known| known.age_ms),
    })
}

async fn list(context: &Context) -> Result<Vec<Member>, Failure> {
    let ask = |channel| async move {
        ClusterClient::new(channel)
            .list_members(ListMembersRequest {})
            .await
    };
    let answer: ListMembersResponse = unstable::unary(&context.client, ask).await?;
    Ok(answer.members)
}

/// The id of the member that `raw` names, by its id or its name.
///
/// # Errors
/// If there is no such member, or there are several.
pub(super) async fn find(context: &Context, raw: &str) -> Result<u64, Failure> {
    let members = list(context).await?;
    if let Some(member) = members.iter().find(|one| raw.parse() == Ok(one.node_id)) {
        return Ok(member.node_id);
    }
    let named: Vec<&Member> = members.iter().filter(|one| one.name == raw).collect();
    if let [member] = named[..] {
        return Ok(member.node_id);
    }
    if !named.is_empty() {
        let each = named.iter().map(|one| {
            let vote = if one.voter { "a voter" } else { "a learner" };
            format!("{} ({vote})", one.node_id)
        });
        let each: Vec<String> = each.collect();
        let message = format!("several members are called {raw}: {}", each.join(", "));
        return Err(Failure::new(exit::USAGE, "AMBIGUOUS", message)
            .hint("give the number of the one that is meant, see `cluster members`"));
    }
    let known: Vec<String> = members
        .iter()
        .map(|member| format!("{} ({})", member.node_id, member.name))
        .collect();
    let message = format!("no member {raw}; the members are {}", known.join(", "));
    Err(Failure::new(exit::NEGATIVE, "NOT_FOUND", message)
        .hint("give a member's number or its name, as `cluster members` shows them"))
}
