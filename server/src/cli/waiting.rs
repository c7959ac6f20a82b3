//! What a person sees while a command waits in the queue of a lease.

use std::time::Duration;

use ringfence_client::{Acquire, HeldLease, LeaseInfo, LeaseName, unstable};
use ringfence_proto::v1::cluster_client::ClusterClient;
use ringfence_proto::v1::{StatusRequest, StatusResponse};

use super::context::Context;
use super::{Failure, signals};
use crate::duration;

/// A wait shorter than this needs no words.
const QUIET_FOR: Duration = Duration::from_millis(500);
/// A long wait is reported again this often: the holder may have changed.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Sends `acquire` and reports on stderr what it waits for. A signal gives up the place in the
/// queue.
///
/// # Errors
/// Why the lease was not acquired; that a signal arrived.
pub(crate) async fn acquire(
    context: &Context,
    name: &LeaseName,
    acquire: Acquire,
) -> Result<HeldLease, Failure> {
    tokio::select! {
        lease = acquire.send() => Ok(lease?),
        signal = signals::stop() => Err(signals::interrupted(signal)),
        never = report(context, name) => match never {},
    }
}

async fn report(context: &Context, name: &LeaseName) -> std::convert::Infallible {
    tokio::time::sleep(QUIET_FOR).await;
    loop {
        // A cluster that does not answer is reported by the acquire itself.
        match quiet_time(context).await {
            Some(left) => context.output.remark(format!(
                "waiting for {name}: quiet time, no lease is granted for {} still, since holders of the \
                 cluster before it may still work",
                duration::show(left)
            )),
            None => {
                if let Ok(Some(lease)) = context.client.look_up(name).await {
                    context.output.remark(text(&lease));
                }
            }
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

/// How long a restored cluster still grants nothing, in milliseconds.
async fn quiet_time(context: &Context) -> Option<u64> {
    let ask = |channel| async move { ClusterClient::new(channel).status(StatusRequest {}).await };
    let status: StatusResponse = unstable::unary(&context.client, ask).await.ok()?;
    Some(status.quiet_ms).filter(|left| *left > 0)
}

fn text(lease: &LeaseInfo) -> String {
    let name = &lease.name;
    let blocker = match &lease.holder {
        Some(holder) => format!(
            "held by {} (session {}) with token {}",
            holder.identity, holder.session, holder.token
        ),
        None => "free, but blocked for now".to_owned(),
    };
    let queue = match lease.waiters {
        0 | 1 => String::new(),
        waiters => format!("; {waiters} in the queue"),
    };
    format!("waiting for {name}: {blocker}{queue}")
}
