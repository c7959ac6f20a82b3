//! `bench keepalive`: streams that renew many sessions with each message.

use futures_util::stream;
use ringfence_proto::v1::KeepAliveRequest;
use ringfence_proto::v1::sessions_client::SessionsClient;
use tokio::sync::mpsc;

use super::load::{Client, Load};
use super::raw::RawSession;
use super::report::Sheet;
use super::target::Target;
use crate::cli::{Failure, exit};

/// The sessions must outlive the opening of all the others.
const TTL_MS: u64 = 300_000;

/// Measures with so many sessions per stream; a renewed session counts as one keep-alive.
pub(super) async fn run(target: &Target, load: Load, sessions: u32) -> Result<(), Failure> {
    let channels = target.leader_channels(load.clients).await?;
    let measured = load
        .drive(1, |mut client: Client| {
            let channel = channels[client.number as usize % channels.len()].clone();
            async move {
                let mut handles = Vec::new();
                for _ in 0..sessions {
                    let session = RawSession::open(channel.clone(), TTL_MS).await?;
                    handles.push(session.handle());
                }
                let (requests, receiver) = mpsc::channel(1);
                let requested = stream::unfold(receiver, |mut receiver| async move {
                    receiver.recv().await.map(|request| (request, receiver))
                });
                let mut connected = SessionsClient::new(channel);
                let mut answers = connected.keep_alive(requested).await?.into_inner();
                client.ready().await;
                for id in 1.. {
                    if client.is_over() {
                        break;
                    }
                    let began = client.now();
                    let request = KeepAliveRequest {
                        id,
                        sessions: handles.clone(),
                        acknowledged: vec![],
                    };
                    requests.send(request).await.map_err(|_| ended())?;
                    let answer = answers.message().await?.ok_or_else(ended)?;
                    if answer.id != id || answer.refusal.is_some() || !answer.ended.is_empty() {
                        return Err(ended());
                    }
                    client.took(0, began, u64::from(sessions));
                }
                Ok(client)
            }
        })
        .await?;
    Sheet::new("keepalive", "keep-alives", &["message"]).print(&measured, &target.describe(), &load)
}

fn ended() -> Failure {
    let message = "the node ended a keep-alive stream, or did not renew all sessions";
    Failure::new(exit::UNAVAILABLE, "UNAVAILABLE", message).hint("see the node's log")
}
