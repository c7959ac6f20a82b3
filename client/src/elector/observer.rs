//! Who leads: a watch of one lease, on the client's own thread.
//!
//! It also tells the session at once of a grant that was taken from it, long before the next
//! keep-alive would.

use ringfence_core::LeaseName;
use ringfence_proto::v1;

use crate::client::{AbortOnDrop, Client};
use crate::watch::WatchItem;

/// Follows a lease until it is dropped.
pub(crate) struct Observer {
    _task: AbortOnDrop<()>,
}

impl Observer {
    /// Begins to follow `name`; `saw` gets the present grant at each change, `None` if there is
    /// none. It must not block.
    pub(crate) fn begin(
        client: &Client,
        name: LeaseName,
        saw: impl Fn(Option<v1::Grant>) + Send + Sync + 'static,
    ) -> Self {
        let watching = client.clone();
        let task = client.hub.thread.spawn(async move {
            follow(&watching, &name, saw).await;
        });
        Self {
            _task: AbortOnDrop(task),
        }
    }
}

async fn follow(client: &Client, name: &LeaseName, saw: impl Fn(Option<v1::Grant>)) {
    let mut watch = client.watch(name.as_str());
    let mut present: Option<v1::Grant> = None;
    let mut telling_anew = false;
    loop {
        let item = match watch.next().await {
            Some(Ok(item)) => item,
            Some(Err(error)) => {
                tracing::warn!(%name, %error, "the lease cannot be watched");
                return;
            }
            None => return,
        };
        match item {
            WatchItem::Anew(_) => {
                telling_anew = true;
                present = None;
                continue;
            }
            WatchItem::Present(lease) if lease.name == name.as_str() => present = lease.holder,
            WatchItem::Granted { grant, .. } if grant.name == name.as_str() => {
                present = Some(grant);
            }
            WatchItem::Ended { ended, .. } if ended.name == name.as_str() => {
                if present.as_ref().is_some_and(|g| g.token == ended.token) {
                    present = None;
                }
                tell_session(client, ended);
            }
            WatchItem::Reached(_) if telling_anew => {
                telling_anew = false;
                let token = present.as_ref().map(|grant| grant.token);
                for session in client.hub.sessions() {
                    session.told_present(name, token);
                }
            }
            _ => continue,
        }
        if !telling_anew {
            saw(present.clone());
        }
    }
}

/// A grant has ended. If it was one of ours against our will, belief ends now.
fn tell_session(client: &Client, ended: v1::GrantEnded) {
    for session in client.hub.sessions() {
        if session.id().get() == ended.session {
            session.told_ended(v1::LostGrant {
                name: ended.name.clone(),
                token: ended.token,
                cause: ended.cause.clone(),
            });
        }
    }
}
