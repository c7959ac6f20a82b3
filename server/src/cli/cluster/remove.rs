//! `ringfence cluster remove NODE`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{RemoveMemberRequest, RemoveMemberResponse};
use serde_json::json;

use super::members;
use crate::cli::Failure;
use crate::cli::context::Context;

/// Remove a member; its number is never used again
///
/// A majority of the voters that are left has to be live. Voters are removed at least 2 s apart.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence cluster remove n1")]
pub(crate) struct Remove {
    /// The member's number or name
    node: String,
    /// Remove it also if the voters that are left have no live majority, and at once
    #[arg(long)]
    force: bool,
}

impl Remove {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let node_id = members::find(context, &self.node).await?;
        let force = self.force;
        let ask = move |channel| async move {
            let request = RemoveMemberRequest { node_id, force };
            ClusterClient::new(channel).remove_member(request).await
        };
        let _: RemoveMemberResponse = unstable::unary(&context.client, ask).await?;
        context.output.result(
            &json!({ "node": node_id }),
            format!("node {node_id} is removed"),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
