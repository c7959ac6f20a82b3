//! `ringfence cluster remove NODE`.

use std::process::ExitCode;

use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{RemoveMemberRequest, RemoveMemberResponse};
use serde_json::json;

use super::members;
use crate::cli::Failure;
use crate::cli::context::Context;

/// Remove a member; its number is never used again
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster remove n1")]
pub(crate) struct Remove {
    /// The member's number or name
    node: String,
}

impl Remove {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let node_id = members::find(context, &self.node).await?;
        let ask = move |channel| async move {
            let request = RemoveMemberRequest { node_id };
            ClusterClient::new(channel).remove_member(request).await
        };
        let _: RemoveMemberResponse = context.client.unary(ask).await?;
        context.output.result(
            &json!({ "node": node_id }),
            format!("node {node_id} is removed"),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
