//! `bench check`: linearizable checks of the token of a lease that is held.

use ringfence_proto::v1::CheckRequest;
use ringfence_proto::v1::leases_client::LeasesClient;

use super::load::{Client, Load};
use super::raw::{RawSession, TTL_MS};
use super::report::Sheet;
use super::target::Target;
use crate::cli::Failure;

/// Measures.
pub(super) async fn run(target: &Target, load: Load) -> Result<(), Failure> {
    let channels = target.leader_channels(load.clients).await?;
    let measured = load
        .drive(1, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            let name = super::cycle::name("check", client.number);
            async move {
                let mut session = RawSession::open(channel.clone(), TTL_MS).await?;
                let token = session.acquire(&name).await?;
                let mut leases = LeasesClient::new(channel);
                client.ready().await;
                while !client.is_over() {
                    let began = client.now();
                    leases
                        .check(CheckRequest {
                            name: name.clone(),
                            token,
                            read: None,
                        })
                        .await?;
                    client.took(0, began, 1);
                }
                Ok(client)
            }
        })
        .await?;
    Sheet::new("check", "checks", &["check"]).print(&measured, &target.describe(), &load)
}
