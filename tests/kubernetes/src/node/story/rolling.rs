//! A rolling restart, as a change of the configuration makes it, under load.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::outside;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::say::{self, Watch};

/// The longest that a client may be without a grant.
/// Wanted is below a second, which is what is printed on a machine that does nothing else; one that
/// builds beside it took 1.2 s.
pub(super) const GAP_MAX: Duration = Duration::from_secs(3);

pub(super) fn a_rolling_restart_loses_no_session(
    cluster: &Cluster,
    runtime: &Runtime,
) -> Result<(), String> {
    let load = Load::start(runtime, outside)?;
    let watch = Watch::start();
    // The next chapter is about a cluster that leaves it to people.
    cluster.kubectl.run(
        "set env statefulset/ringfence --namespace=ringfence RINGFENCE_REPLACE_ON_DATA_LOSS=false",
    )?;
    cluster.await_ready(3)?;
    let took = watch.so_far();
    let outcome = load.end(runtime)?;
    let told = format!(
        "a rolling restart under load lost no session; longest gap in a client's grants {} ms, \
         {} grants in {:.1} s",
        outcome.gap.as_millis(),
        outcome.grants,
        took.as_secs_f64()
    );
    say::shown(watch, &told);
    if outcome.gap > GAP_MAX {
        return Err(format!(
            "a client was without a grant for {:?}",
            outcome.gap
        ));
    }
    Ok(())
}
