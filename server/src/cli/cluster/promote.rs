//! `ringfence cluster promote NODE`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{PromoteMemberRequest, PromoteMemberResponse};
use serde_json::json;

use super::members;
use crate::cli::Failure;
use crate::cli::context::Context;

/// Make a learner a voter
///
/// It has to be live and to have caught up, and a majority of the voters has to be live after it.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Examples:
  ringfence cluster promote n4
  ringfence cluster promote n4 --replaces n1")]
pub(crate) struct Promote {
    /// The learner's number or name
    node: String,
    /// A member to drop in the same change, by number or name
    #[arg(long, value_name = "NODE")]
    replaces: Option<String>,
    /// Promote it also if it is down or lacks entries, or if the voters would have no live majority
    #[arg(long)]
    force: bool,
}

impl Promote {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let node_id = members::find(context, &self.node).await?;
        let replaces = match &self.replaces {
            Some(node) => members::find(context, node).await?,
            None => 0,
        };
        let force = self.force;
        let ask = move |channel| async move {
            let request = PromoteMemberRequest {
                node_id,
                replaces,
                force,
            };
            ClusterClient::new(channel).promote_member(request).await
        };
        let _: PromoteMemberResponse = unstable::unary(&context.client, ask).await?;
        let object = json!({ "node": node_id });
        context
            .output
            .result(&object, format!("node {node_id} is a voter"))?;
        Ok(ExitCode::SUCCESS)
    }
}
