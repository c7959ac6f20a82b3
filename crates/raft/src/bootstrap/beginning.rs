//! Whether the log of a new cluster will begin, seen from a first member that did not form it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ringfence_core::ClusterId;

use crate::shared::hello::{first_members, hello};
use crate::shared::inner::{Inner, Running};
use crate::types::stop::StopReason;

/// How long a node that has its seat waits before it asks again whether the log will begin.
const BEGIN_LOOK: Duration = Duration::from_secs(1);

/// How often in a row it must hear that it will not.
const NEVER_ROUNDS: u32 = 3;

/// How long it still answers then, so that the others hear the same of it.
const NEVER_LINGER: Duration = Duration::from_secs(3);

/// Waits until the log of this node's new cluster begins. If the founder has lost its directory
/// before it began the log, that never happens: then this node says so, and stops.
pub(crate) async fn await_beginning(inner: Arc<Inner>, running: Arc<Running>) {
    let first = first_members(&inner);
    let Some((founder, _)) = first
        .first()
        .filter(|(founder, _)| *founder != inner.config.name)
    else {
        return;
    };
    let cluster = running.caller.seat.cluster;
    let (mut never, mut said) = (0, String::new());
    while !running.log.has_begun() && !inner.stop.is_stopped() {
        tokio::time::sleep(BEGIN_LOOK).await;
        match will_begin(&inner, &first, cluster).await {
            Err(NeverBegins) if running.log.has_begun() => return,
            Err(NeverBegins) => never += 1,
            Ok(waiting_for) => {
                never = 0;
                if said != waiting_for {
                    tracing::info!(%cluster, %waiting_for, "the log of the cluster has not begun");
                    said = waiting_for;
                }
            }
        }
        if never == NEVER_ROUNDS {
            tokio::time::sleep(NEVER_LINGER).await;
            break;
        }
    }
    if !running.log.has_begun() {
        let founder = founder.clone();
        inner.stop.stop(StopReason::NeverBegun {
            cluster,
            former: founder,
        });
    }
}

/// No node has a log of the cluster, and its founder does not know of it any more.
struct NeverBegins;

/// Says for whom the beginning of the log waits. That it never comes is sure only once every first
/// member has answered: one that is away may hold what a majority has acknowledged.
async fn will_begin(
    inner: &Arc<Inner>,
    first: &[(String, String)],
    cluster: ClusterId,
) -> Result<String, NeverBegins> {
    let others = first.iter().filter(|(name, _)| *name != inner.config.name);
    let asked = others.clone().map(|(_, address)| hello(inner, address));
    let answers = join_all(asked).await;
    let mut founder_forgot = false;
    for (at, ((name, address), answer)) in others.zip(answers).enumerate() {
        let Some(answer) = answer.filter(|answer| answer.name == *name) else {
            return Ok(format!("{name} at {address} to answer"));
        };
        let belongs = ClusterId::from_slice(&answer.cluster);
        if belongs.is_some_and(|belongs| belongs != cluster) || answer.formed || answer.begun {
            return Ok(format!("{name} at {address}, which has a log, to send it"));
        }
        // The founder is the first of all.
        if at == 0 {
            let offers = ClusterId::from_slice(&answer.offers) == Some(cluster);
            founder_forgot = belongs.is_none() && !offers;
        }
    }
    if founder_forgot {
        return Err(NeverBegins);
    }
    Ok("the first member with the lowest name to begin it".to_owned())
}
