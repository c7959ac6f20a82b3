//! What all examples share: where the cluster is, and when they end.

use std::env;
use std::error::Error;
use std::time::Duration;

use ringfence_client::Client;
use tokio::signal::unix::{SignalKind, signal};

/// The client addresses of `ringfence dev`.
const ENDPOINTS: &str = "127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440";
/// How long an example runs, unless its argument says otherwise.
const SECONDS: u64 = 20;

/// A client of the cluster at `RINGFENCE_ENDPOINTS`, or of `ringfence dev`. The token in the file
/// `RINGFENCE_TOKEN_FILE`, if that is set, proves who it is.
pub(crate) async fn connect() -> Result<Client, Box<dyn Error>> {
    let endpoints = env::var("RINGFENCE_ENDPOINTS").unwrap_or_else(|_| ENDPOINTS.into());
    let mut client = Client::builder().endpoints(endpoints.split(','));
    if let Some(file) = env::var_os("RINGFENCE_TOKEN_FILE") {
        client = client.token_file(file);
    }
    Ok(client.connect().await?)
}

/// Completes at Ctrl-C, at SIGTERM, or after the seconds that the first argument says. SIGTERM is caught
/// from this call on, not only from when its future is first polled.
pub(crate) fn the_end() -> impl Future<Output = ()> {
    let seconds = env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok());
    let terminate = signal(SignalKind::terminate());
    let terminated = async {
        match terminate {
            Ok(mut terminate) => terminate.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    async move {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(SECONDS))) => {}
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated => {}
        }
    }
}
