//! `kube-leader-election`: a loop around one call, as in its example `shared-lease`.

use std::time::Duration;

use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};

use crate::report::{self, Report};
use crate::{Candidate, Fault};

/// Elects until SIGTERM, and steps down then. Its documents advise to renew at a third of the TTL.
pub(crate) async fn elect(mut candidate: Candidate) -> Result<(), Fault> {
    let config = kube::Config::infer().await?;
    let namespace = config.default_namespace.clone();
    let lock = LeaseLock::new(
        kube::Client::try_from(config)?,
        &namespace,
        LeaseLockParams {
            lease_name: candidate.lease,
            holder_id: candidate.holder,
            lease_ttl: Duration::from_secs(candidate.seconds),
        },
    );
    let mut report = Report::default();
    loop {
        let (leads, lease) = match lock.try_acquire_or_renew().await {
            Ok(LeaseLockResult::Acquired(lease)) => (true, Some(lease)),
            Ok(LeaseLockResult::NotAcquired(lease)) => (false, Some(lease)),
            // The example logs it, and goes on with what it believes.
            Err(error) => {
                report::fault(&error);
                (report.is_leading(), None)
            }
        };
        report.leads(leads);
        let spec = lease.and_then(|lease| lease.spec);
        if let Some(leader) = spec.and_then(|spec| spec.holder_identity) {
            report.leader(&leader);
        }
        let pause = Duration::from_millis(candidate.seconds * 1_000 / 3);
        if let Ok(stopped) = tokio::time::timeout(pause, candidate.stop.recv()).await {
            stopped.ok_or("no signals")?;
            break;
        }
    }
    lock.step_down().await?;
    report::released();
    Ok(())
}
