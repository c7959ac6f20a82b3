//! What `kubectl drain` asks for, Pod by Pod.

use tokio::runtime::Runtime;

use crate::cluster::{Cluster, names};
use crate::say::{self, Watch};

pub(super) fn one_at_a_time(cluster: &Cluster, _: &Runtime) -> Result<(), String> {
    let watch = Watch::start();
    let uid = cluster.uid("ringfence-0")?;
    cluster.evict("ringfence-0")?;
    match cluster.evict("ringfence-2") {
        Ok(_) => return Err("two of three were evicted at once".to_owned()),
        Err(why) if why.contains("disruption budget") => {}
        Err(why) => return Err(why),
    }
    cluster.await_next("ringfence-0", &uid)?;
    cluster.await_voters("ringfence-0", &names(3))?;
    say::shown(
        watch,
        "of two evictions at once, the second was refused until the first was over",
    );
    Ok(())
}
