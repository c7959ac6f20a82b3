//! `ringfence check NAME TOKEN`: what a token is worth at this instant.

use std::process::ExitCode;

use ringfence_client::unstable;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{CheckRequest, CheckResponse};
use serde_json::json;

use super::context::{Context, Freshness};
use super::{Failure, exit, parse, view};

/// Say whether a token is that of the grant in force: 0 if it is, 1 if not
///
/// This is advice at that instant. Only a guard inside the store decides whether a write may pass.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence check reports/daily 42 && echo current")]
pub(crate) struct Check {
    /// The lease's name
    #[arg(value_parser = parse::name)]
    name: LeaseName,
    /// The fencing token
    #[arg(value_parser = parse::token)]
    token: FencingToken,
    #[command(flatten)]
    freshness: Freshness,
}

impl Check {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let (name, token) = (self.name.as_str(), self.token.get());
        let request = CheckRequest {
            name: name.into(),
            token,
            read: self.freshness.to_wire(),
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).check(request).await }
        };
        let answer: CheckResponse = unstable::unary(&context.client, ask).await?;

        let verdict = answer.verdict();
        let newest = (answer.newest != 0).then_some(answer.newest);
        let index = answer.at.map(|at| at.index);
        let object = json!({
            "name": name,
            "token": token,
            "verdict": verdict.as_str_name(),
            "newest": newest,
            "index": index,
        });
        let text = match verdict {
            Verdict::Current => format!("{name}#{token} is current"),
            Verdict::Superseded => {
                format!(
                    "{name}#{token} is superseded by token {}",
                    view::or_dash(newest)
                )
            }
            Verdict::Ended => format!("{name}#{token} has ended"),
            Verdict::Unknown => format!("{name}#{token} was never granted by this cluster"),
            Verdict::Unspecified => format!("{name}#{token}: this node's answer is not known here"),
        };
        let code = match verdict {
            Verdict::Current => ExitCode::SUCCESS,
            _ => ExitCode::from(exit::NEGATIVE),
        };
        context.output.verdict(&object, text, code)
    }
}
