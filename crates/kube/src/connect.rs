//! How the API server is found, and who the mirror is there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::sync_error::in_full;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Why there is no client. That the API server does not answer is no reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("{}: {why}; name a kubeconfig whose current context can be used as it stands", path.display())]
    Kubeconfig {
        /// The kubeconfig file.
        path: PathBuf,
        /// What is wrong in the file, in words.
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
    let config = match kubeconfig {
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
    client(config).map_err(|error| ConnectError::Client(in_full(&error)))
}

fn client(mut config: Config) -> kube::Result<Client> {
    config.connect_timeout = Some(CONNECT_MAX);
    // The caller has a pace of its own for a server that says 429 or 503; to be asked again behind
    // its back would keep a request's place for seconds, and the server busy.
    config.default_retry = false;
    Client::try_from(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_has_no_time_is_asked_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\
                              content-length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let server = format!("http://{address}").parse().unwrap();
        let client = client(Config::new(server)).unwrap();
        let pods: Api<Pod> = Api::default_namespaced(client);
        assert!(pods.get("a").await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        serving.abort();
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let refused = connect(Some(Path::new("/no/such/kubeconfig"))).await;
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(refused.starts_with("/no/such/kubeconfig: "), "{refused}");
    }
}
