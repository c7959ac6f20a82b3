//! The cluster is asked how a grant stands: always for its newest state.

use std::time::Duration;

use ringfence_client::{Client, Verdict};
use ringfence_core::{FencingToken, LeaseName};
use ringfence_kube::webhook::Standing;
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
    /// In words, if no answer comes in time.
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
        // The newest state, confirmed by a majority.
        let verdict = client.check(lease, token).await;
        Ok(match verdict.map_err(|error| error.to_string())? {
            Verdict::Current => Standing::Current,
            Verdict::Superseded { newest } => Standing::Superseded(newest.get()),
            Verdict::Ended => Standing::Ended,
            Verdict::Unknown => Standing::Unknown,
        })
    }

    /// One client for all, once the cluster has been reached.
    async fn client(&self) -> Result<Client, String> {
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let builder = Client::builder()
            .endpoints(self.global.endpoints())
            .connect_timeout(ASK_MAX)
            .request_timeout(ASK_MAX);
        let builder = self.global.tls.set_up(builder)?;
        let client = builder.connect().await.map_err(|error| error.to_string())?;
        Ok(known.insert(client).clone())
    }
}
