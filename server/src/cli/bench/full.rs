//! `bench full`: a session for each lease, in two unary calls.

use ringfence_client::unstable::Channel;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{AcquireRequest, ReleaseRequest, SessionHandle};

use super::load::{Client, Load};
use super::raw::{TTL_MS, open_request, token};
use super::report::Sheet;
use super::target::Target;
use crate::cli::{Failure, exit};

/// Measures.
pub(super) async fn run(target: &Target, load: Load) -> Result<(), Failure> {
    let channels = target.leader_channels(load.clients).await?;
    let measured = load
        .drive(2, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            let name = super::cycle::name("full", client.number);
            async move {
                let mut leases = LeasesClient::new(channel);
                client.ready().await;
                while !client.is_over() {
                    let began = client.now();
                    let (session, token) = acquire(&mut leases, &name, TTL_MS).await?;
                    client.took(0, began, 0);
                    release(&mut leases, &name, session, token).await?;
                    client.took(1, began, 1);
                }
                Ok(client)
            }
        })
        .await?;
    let series = ["open+acquire", "the whole"];
    Sheet::new("full", "cycles", &series).print(&measured, &target.describe(), &load)
}

/// Opens a session and acquires `name` in one call.
///
/// # Errors
/// If it is refused or fails.
pub(super) async fn acquire(
    leases: &mut LeasesClient<Channel>,
    name: &str,
    ttl_ms: u64,
) -> Result<(SessionHandle, u64), Failure> {
    let open = open_request(ttl_ms);
    let secret = open.secret.clone();
    let request = AcquireRequest {
        open: Some(open),
        number: 1,
        name: name.to_owned(),
        ..AcquireRequest::default()
    };
    let granted = leases.acquire(request).await?.into_inner();
    let Some(opened) = granted.opened else {
        let message = "the node answered an acquire that opens a session without the session";
        return Err(Failure::new(exit::UNAVAILABLE, "FAULT", message));
    };
    Ok((
        SessionHandle {
            session: opened.session,
            secret,
        },
        token(granted.grant)?,
    ))
}

async fn release(
    leases: &mut LeasesClient<Channel>,
    name: &str,
    session: SessionHandle,
    token: u64,
) -> Result<(), Failure> {
    let request = ReleaseRequest {
        session: Some(session),
        number: 2,
        lowest: 0,
        name: name.to_owned(),
        token,
        close_session: true,
    };
    leases.release(request).await?;
    Ok(())
}
