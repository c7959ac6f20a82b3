//! `kube-lease-manager`: its watch, which says whether this process leads and by whom it is led never.

use kube_lease_manager::{LeaseManagerBuilder, LeaseParams};

use crate::report::{self, Report};
use crate::{Candidate, Fault};

/// Elects until SIGTERM, and drops the channel then, by which the crate releases.
pub(crate) async fn elect(mut candidate: Candidate) -> Result<(), Fault> {
    let config = kube::Config::infer().await?;
    let namespace = config.default_namespace.clone();
    let grace = (candidate.seconds / 3).max(1);
    let manager = LeaseManagerBuilder::new(kube::Client::try_from(config)?, candidate.lease)
        .with_namespace(namespace)
        .with_parameters(LeaseParams::new(candidate.holder, candidate.seconds, grace))
        .build()
        .await?;
    let (mut changes, task) = manager.watch().await;
    let mut report = Report::default();
    loop {
        let leads = *changes.borrow_and_update();
        report.leads(leads);
        tokio::select! {
            changed = changes.changed() => changed?,
            _ = candidate.stop.recv() => break,
        }
    }
    drop(changes);
    task.await??;
    report::released();
    Ok(())
}
