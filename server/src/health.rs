//! What the standard health service says of a node.

use ringfence_proto::v1::connection_server::ConnectionServer;
use ringfence_proto::v1::leases_server::LeasesServer;
use ringfence_proto::v1::sessions_server::SessionsServer;
use ringfence_services::{ConnectionService, LeaseService, SessionService};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::server::NamedService;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::limits::PROGRESS_INTERVAL;
use crate::progress::{Complaint, Progress};

/// The standard health service, which calls this node ready once [`tell_health`] has found it so, and not
/// before.
pub(crate) async fn begun() -> (HealthReporter, HealthServer<impl Health>) {
    let (reporter, service) = tonic_health::server::health_reporter();
    let status = tonic_health::ServingStatus::NotServing;
    reporter.set_service_status("", status).await;
    (reporter, service)
}

/// Tells the standard health service how this node is, for as long as it runs.
pub(crate) async fn tell_health(
    progress: Progress,
    health: HealthReporter,
    mut stopping: watch::Receiver<bool>,
) {
    let mut told = None;
    let mut complaint = Complaint::default();
    loop {
        let stopping_now = *stopping.borrow_and_update();
        progress.look();
        let found = progress.check();
        if !stopping_now {
            complaint.hear(&found);
        }
        let serving = !stopping_now && found.is_ok();
        if told != Some(serving) {
            told = Some(serving);
            let status = if serving {
                tonic_health::ServingStatus::Serving
            } else {
                tonic_health::ServingStatus::NotServing
            };
            for service in [
                "",
                LeasesName::NAME,
                SessionsName::NAME,
                ConnectionName::NAME,
            ] {
                health.set_service_status(service, status).await;
            }
        }
        if stopping_now {
            return;
        }
        let _changed = timeout(PROGRESS_INTERVAL, stopping.changed()).await.is_ok();
    }
}

type LeasesName = LeasesServer<LeaseService>;
type SessionsName = SessionsServer<SessionService>;
type ConnectionName = ConnectionServer<ConnectionService>;
