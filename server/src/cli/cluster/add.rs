//! `ringfence cluster add NAME`.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{AddMemberRequest, AddMemberResponse};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::{Failure, view};

/// Add a node as a learner by hand
///
/// A node started with `serve --join` asks for this itself; there is seldom a need to.
#[derive(clap::Args, Debug)]
#[command(after_help = r#"Examples:
  ringfence cluster add n4 --peer 10.0.0.4:7421 --client 10.0.0.4:7420 --incarnation "$HEX"
  ringfence serve --name n4 --join 10.0.0.1:7421 --access enforced   # on the new node: it asks
  # without an operator"#)]
pub(crate) struct Add {
    /// The node's name
    name: String,
    /// Where other nodes reach it
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,
    /// Where clients reach it
    #[arg(long, value_name = "HOST:PORT")]
    client: String,
    /// What its data directory was marked with, 32 hex digits; the node logs it at its start
    #[arg(long, value_name = "HEX")]
    incarnation: String,
}

impl Add {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let Some(incarnation) = view::unhex(&self.incarnation) else {
            let message = format!("{:?} is no incarnation: 32 hex digits", self.incarnation);
            return Err(Failure::usage(message).hint("copy it from the new node's log"));
        };
        let request = AddMemberRequest {
            name: self.name.clone(),
            peer_address: self.peer,
            client_address: self.client,
            incarnation: incarnation.into(),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { ClusterClient::new(channel).add_member(request).await }
        };
        let answer: AddMemberResponse = unstable::unary(&context.client, ask).await?;
        let object = json!({ "node": answer.node_id, "name": self.name });
        let text = format!("{} is added as learner {}", self.name, answer.node_id);
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
