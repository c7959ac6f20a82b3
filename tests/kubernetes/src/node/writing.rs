//! A client that writes to Kubernetes under a grant, again and again, and tells what kept him from
//! it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Between two writes.
const PACE: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Writes that were done.
    pub(crate) done: u64,
    /// Those for which the webhook's answer took the API server too long, as any may on a machine
    /// that others load.
    pub(crate) late: u64,
}

/// A writer at work.
pub(crate) struct Writing {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Written, String>>,
}

impl Writing {
    /// Starts it, as this account with this fence; the kubeconfig is of a user that may say so.
    pub(crate) fn start(runtime: &Runtime, kubeconfig: &Path, account: &str, fence: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let headers = [
            ("impersonate-user", account.to_owned()),
            ("impersonate-extra-ringfence.io%2ffence", fence.to_owned()),
        ];
        let task = write(kubeconfig.to_owned(), headers, Arc::clone(&stop));
        let task = runtime.spawn(task);
        Self { stop, task }
    }

    /// Ends it; an error if anything but haste kept it from a write.
    pub(crate) fn end(self, runtime: &Runtime) -> Result<Written, String> {
        self.stop.store(true, Ordering::Relaxed);
        let written = runtime.block_on(self.task);
        written.map_err(|error| error.to_string())?
    }
}

async fn write(
    kubeconfig: std::path::PathBuf,
    headers: [(&'static str, String); 2],
    stop: Arc<AtomicBool>,
) -> Result<Written, String> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| error.to_string())?;
    for (name, value) in headers {
        let value = value
            .parse()
            .map_err(|_| format!("{name} cannot be {value:?}"))?;
        config
            .headers
            .push((http::HeaderName::from_static(name), value));
    }
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "demo");
    let mut written = Written::default();
    while !stop.load(Ordering::Relaxed) {
        let patch = Patch::Merge(json!({"data": {"apple": written.done.to_string()}}));
        match maps.patch("prices", &PatchParams::default(), &patch).await {
            Ok(_) => written.done += 1,
            Err(Error::Api(status)) if is_late(&status.message) => written.late += 1,
            Err(error) => return Err(format!("after {written:?}: {error}")),
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(written)
}

fn is_late(message: &str) -> bool {
    ["deadline exceeded", "Timeout exceeded"]
        .iter()
        .any(|words| message.contains(words))
}
