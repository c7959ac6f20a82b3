//! How the API server is found, and who the mirror is there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::trouble::in_full;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Why there is no client. That the API server does not answer is no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("{}: {why}; name a kubeconfig whose current context can be used as it stands", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no kubeconfig, and this is no Pod.
    #[error(
        "this process runs in no Pod with a service account ({0}); name a kubeconfig, or mount the \
         service account's token"
    )]
    NoPod(String),
    /// Certificates or keys cannot be used.
    #[error("what is configured for the API server cannot be used: {0}")]
    Client(String),
}

/// A client by a kubeconfig, or by the Pod that this process runs in. It connects when it is used.
///
/// # Errors
/// [`ConnectError`] says what is missing.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let refused = |error: kube::config::KubeconfigError| ConnectError::Kubeconfig {
                path: path.to_owned(),
                why: in_full(&error),
            };
            let read = Kubeconfig::read_from(path).map_err(refused)?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(read, &options).await;
            config.map_err(refused)?
        }
        None => Config::incluster().map_err(|error| ConnectError::NoPod(in_full(&error)))?,
    };
    config.connect_timeout = Some(CONNECT_MAX);
    Client::try_from(config).map_err(|error| ConnectError::Client(in_full(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let refused = connect(Some(Path::new("/no/such/kubeconfig"))).await;
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(refused.starts_with("/no/such/kubeconfig: "), "{refused}");
    }
}
