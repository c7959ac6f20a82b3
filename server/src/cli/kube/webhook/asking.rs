//! The cluster is asked how a grant stands: always for its newest state.

use std::time::Duration;

use ringfence_client::Client;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_kube::webhook::Standing;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{CheckRequest, CheckResponse};
use tokio::sync::Mutex;

use crate::cli::Global;

/// How long the cluster may take: the API server waits for two seconds.
pub(super) const ASK_MAX: Duration = Duration::from_millis(1_500);

/// A cluster that may be away, also when this begins.
pub(super) struct Cluster {
    global: Global,
    client: Mutex<Option<Client>>,
}

impl Cluster {
    pub(super) fn new(global: &Global) -> Self {
        Self {
            global: global.clone(),
            client: Mutex::new(None),
        }
    }

    /// How a grant stands.
    ///
    /// # Errors
    /// In words, if nobody says so in time.
    pub(super) async fn standing(
        &self,
        lease: &LeaseName,
        token: FencingToken,
    ) -> Result<Standing, String> {
        let asked = tokio::time::timeout(ASK_MAX, self.ask(lease, token)).await;
        asked.unwrap_or_else(|_| Err(format!("the cluster did not answer within {ASK_MAX:?}")))
    }

    async fn ask(&self, lease: &LeaseName, token: FencingToken) -> Result<Standing, String> {
        let client = self.client().await?;
        let request = CheckRequest {
            name: lease.as_str().to_owned(),
            token: token.get(),
            // The newest state, confirmed by a majority.
            read: None,
        };
        let ask = move |channel| {
            let request = request.clone();
            async move { LeasesClient::new(channel).check(request).await }
        };
        let answer: CheckResponse = client.unary(ask).await.map_err(|error| error.to_string())?;
        match answer.verdict() {
            Verdict::Current => Ok(Standing::Current),
            Verdict::Superseded => Ok(Standing::Superseded(answer.newest)),
            Verdict::Ended => Ok(Standing::Ended),
            Verdict::Unknown => Ok(Standing::Unknown),
            Verdict::Unspecified => Err("the node's answer is not known here".to_owned()),
        }
    }

    /// One client for all, once the cluster has been reached.
    async fn client(&self) -> Result<Client, String> {
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let mut builder = Client::builder()
            .endpoints(self.global.endpoints())
            .connect_timeout(ASK_MAX)
            .request_timeout(ASK_MAX);
        if let Some(tls) = self.global.tls.client()? {
            builder = builder.tls(tls);
        }
        let client = builder.connect().await.map_err(|error| error.to_string())?;
        Ok(known.insert(client).clone())
    }
}
