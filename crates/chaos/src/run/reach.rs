//! Whether a cluster that is there already can be worked on at all.

use std::io;
use std::time::Duration;

use ringfence_client::{Client, SessionOptions};

use crate::plan::Target;

/// How long a cluster may take to answer, and again to open a session; an election fits in.
const LIMIT: Duration = Duration::from_secs(10);
/// What becomes of the session should it not be closed.
const TTL: Duration = Duration::from_secs(10);

/// Opens a session at the cluster and closes it again. A run would call a mistyped address a
/// cluster that does not recover.
///
/// # Errors
/// What the cluster, or the way to it, answers.
pub(super) fn reach(target: &Target) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut connecting = Client::builder()
            .endpoints(&target.endpoints)
            .connect_timeout(LIMIT)
            .request_timeout(LIMIT);
        if let Some(tls) = target.tls.clone() {
            connecting = connecting.tls(tls);
        }
        let client = connecting.connect().await.map_err(io::Error::other)?;
        let options = SessionOptions {
            identity: "chaos".to_owned(),
            ttl: TTL,
        };
        let session = client.open_session(options).await;
        // Whether it is closed or runs out is the same to all sessions.
        session.map_err(io::Error::other)?.close().await.ok();
        Ok(())
    })
}
