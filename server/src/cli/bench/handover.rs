//! `bench handover`: how soon the first in the queue has the lease that another session releases.

use ringfence_client::unstable::Channel;
use ringfence_proto::v1::GetRequest;
use ringfence_proto::v1::leases_client::LeasesClient;

use super::load::{Client, Load};
use super::raw::{RawSession, TTL_MS};
use super::report::Sheet;
use super::target::Target;
use crate::cli::Failure;

/// Measures. The acquire of a free lease, in the same run, is what to compare with.
pub(super) async fn run(target: &Target, load: Load) -> Result<(), Failure> {
    let channels = target.leader_channels(load.clients).await?;
    let measured = load
        .drive(2, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            let name = super::cycle::name("handover", client.number);
            async move {
                let mut holder = RawSession::open(channel.clone(), TTL_MS).await?;
                let mut waiter = RawSession::open(channel.clone(), TTL_MS).await?;
                client.ready().await;
                while !client.is_over() {
                    let began = client.now();
                    let token = holder.acquire(&name).await?;
                    client.took(0, began, 0);
                    let (released, handed) = tokio::join!(
                        async {
                            queued(&channel, &name).await?;
                            let released = client.now();
                            holder.release(&name, token).await?;
                            Ok::<_, Failure>(released)
                        },
                        async {
                            let token = waiter.acquire_waiting(&name).await?;
                            Ok::<_, Failure>((token, client.now()))
                        }
                    );
                    let (token, held) = handed?;
                    client.sample(1, held.saturating_since(released?), 1);
                    waiter.release(&name, token).await?;
                }
                Ok(client)
            }
        })
        .await?;
    let series = ["acquire", "hand-over"];
    Sheet::new("handover", "hand-overs", &series).print(&measured, &target.describe(), &load)
}

/// Waits until a session is queued: a release that comes before it hands over nothing.
async fn queued(channel: &Channel, name: &str) -> Result<(), Failure> {
    let mut leases = LeasesClient::new(channel.clone());
    loop {
        let request = GetRequest {
            name: name.to_owned(),
            read: None,
        };
        let found = leases.get(request).await?.into_inner();
        if found.lease.is_some_and(|lease| lease.waiters > 0) {
            return Ok(());
        }
    }
}
