//! `kubert`: its module `lease`, which keeps a claim of a lease that exists.

use std::time::Duration;

use k8s_openapi_of_kubert::api::coordination::v1::Lease;
use kube_client::{Api, Client, Config};
use kubert::lease::{ClaimParams, LeaseManager};

use crate::report::{self, Report};
use crate::{Candidate, Fault};

/// Elects until SIGTERM, and drops the receiver of claims then, by which the crate releases.
pub(crate) async fn elect(mut candidate: Candidate) -> Result<(), Fault> {
    let config = Config::infer().await?;
    let namespace = config.default_namespace.clone();
    let api: Api<Lease> = Api::namespaced(Client::try_from(config)?, &namespace);
    let params = ClaimParams {
        lease_duration: Duration::from_secs(candidate.seconds),
        renew_grace_period: Duration::from_millis(candidate.seconds * 1_000 / 3),
    };
    let manager = LeaseManager::init(api, &candidate.lease).await?;
    let (mut claims, task) = manager.spawn(&candidate.holder, params).await?;
    let mut report = Report::default();
    loop {
        let claim = claims.borrow_and_update().clone();
        let leads = claim.is_current_for(&candidate.holder);
        report.leads(leads);
        report.leader(&claim.holder);
        tokio::select! {
            changed = claims.changed() => match changed {
                Ok(()) => {}
                // The task has ended; its result says why.
                Err(_) => break,
            },
            // A claim that is not renewed in time ends with its time, as its documents say.
            () = claim.expire(), if leads => {}
            _ = candidate.stop.recv() => break,
        }
    }
    drop(claims);
    task.await??;
    report::released();
    Ok(())
}
