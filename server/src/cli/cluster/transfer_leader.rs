//! `ringfence cluster transfer-leader [NODE]`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{TransferLeaderRequest, TransferLeaderResponse};
use serde_json::json;

use super::members;
use crate::cli::Failure;
use crate::cli::context::Context;

/// Hand leadership to another voter
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster transfer-leader n2")]
pub(crate) struct TransferLeader {
    /// The voter's number or name [default: the one that is furthest ahead]
    node: Option<String>,
}

impl TransferLeader {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let node_id = match &self.node {
            Some(node) => members::find(context, node).await?,
            None => 0,
        };
        let ask = move |channel| async move {
            let request = TransferLeaderRequest { node_id };
            ClusterClient::new(channel).transfer_leader(request).await
        };
        let answer: TransferLeaderResponse = unstable::unary(&context.client, ask).await?;
        let leader = answer.leader_id;
        context
            .output
            .result(&json!({ "leader": leader }), format!("node {leader} leads"))?;
        Ok(ExitCode::SUCCESS)
    }
}
