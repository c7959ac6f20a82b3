//! One connection: a channel to a member and the stream on it.

use std::time::Duration;

use ringfence_proto::v1::connection_client::ConnectionClient;
use ringfence_proto::v1::{ClientFrame, Greeting, ServerMessage, server_frame};
use tokio::sync::mpsc::{self, UnboundedSender};
use tonic::transport;
use tonic::{Status, Streaming};

use crate::transport::credential::Channel;
#[cfg(feature = "sim")]
use crate::transport::credential::Credential;
use crate::transport::endpoint::Endpoint;
use crate::transport::link::Outbound;
use crate::transport::options::Options;

/// The largest message taken from a server; a page of a list has up to 4 MiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Replies of thousands of calls may be under way at once.
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;
/// What one stream may have of that: streams that no client reads, as a slow reader of a watch has,
/// leave room for the others, up to 256 of them.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// A stream that was greeted.
pub(crate) struct OpenStream {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
    pub(crate) outbound: UnboundedSender<ClientFrame>,
    pub(crate) inbound: Inbound,
    pub(crate) greeting: Greeting,
}

/// What the server says on a stream.
pub(crate) enum Inbound {
    Wire(Box<Streaming<ServerMessage>>),
    #[cfg(feature = "sim")]
    Simulated(crate::sim::Incoming),
}

impl Inbound {
    /// The next message; `None` behind the last one.
    pub(crate) async fn message(&mut self) -> Result<Option<ServerMessage>, Status> {
        match self {
            Self::Wire(stream) => stream.message().await,
            #[cfg(feature = "sim")]
            Self::Simulated(stream) => stream.recv().await.transpose().map_err(Status::unavailable),
        }
    }
}

/// Connects to a member and waits for its greeting, at most for `timeout`.
pub(crate) async fn open(
    endpoint: &Endpoint,
    options: &Options,
    timeout: Duration,
) -> Result<OpenStream, String> {
    let deadline = options.clock.now() + timeout;
    crate::sync::select! {
        opened = greet(endpoint, options, timeout) => opened,
        () = options.clock.sleep_until(deadline) => Err(format!("no greeting within {timeout:?}")),
    }
}

async fn greet(
    endpoint: &Endpoint,
    options: &Options,
    timeout: Duration,
) -> Result<OpenStream, String> {
    #[cfg(feature = "sim")]
    if let Some(simulation) = &options.simulation {
        return greet_simulated(endpoint, simulation).await;
    }
    let to = transport::Endpoint::from_shared(endpoint.uri())
        .and_then(|to| to.user_agent(concat!("ringfence-client/", env!("CARGO_PKG_VERSION"))))
        .map_err(|fault| in_full(&fault))?
        .connect_timeout(timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(options.probe_interval())
        .keep_alive_timeout(options.probe_timeout())
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    #[cfg(feature = "tls")]
    let connected = match &options.tls {
        Some(connector) if !endpoint.is_local() => {
            let origin = endpoint.origin().map_err(|fault| in_full(&fault))?;
            let connector = connector.clone().connect_timeout(timeout);
            to.origin(origin).connect_with_connector(connector).await
        }
        _ => to.connect().await,
    };
    #[cfg(not(feature = "tls"))]
    let connected = to.connect().await;
    let channel = connected
        .inspect_err(|fault| options.credential.not_connected(fault))
        .map_err(|fault| in_full(&fault))?;
    let channel = options.credential.on(channel);
    let (outbound, frames) = mpsc::unbounded_channel();
    let inbound = ConnectionClient::new(channel.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .stream(Outbound::new(frames))
        .await
        .inspect_err(|status| options.credential.failed(status))
        .map_err(|status| describe(&status))?
        .into_inner();
    greeted(
        endpoint,
        channel,
        outbound,
        Inbound::Wire(Box::new(inbound)),
    )
    .await
}

/// Where channels of a simulation lead: to a socket that no machine has. So a call fails at once, and
/// no resolver is asked, for which virtual time would stand still.
#[cfg(all(feature = "sim", unix))]
const NOWHERE: &str = "unix:/nonexistent/simulated";
#[cfg(all(feature = "sim", not(unix)))]
const NOWHERE: &str = "http://simulated";

/// The same in a simulation, where a channel leads nowhere.
#[cfg(feature = "sim")]
async fn greet_simulated(
    endpoint: &Endpoint,
    simulation: &crate::sim::Simulation,
) -> Result<OpenStream, String> {
    let (outbound, frames) = mpsc::unbounded_channel();
    let outgoing = Box::pin(Outbound::new(frames));
    let incoming = simulation
        .network
        .connect(&endpoint.to_string(), outgoing)
        .await?;
    let channel = transport::Endpoint::from_shared(NOWHERE)
        .map_err(|fault| in_full(&fault))?
        .connect_lazy();
    let channel = Credential::default().on(channel);
    greeted(endpoint, channel, outbound, Inbound::Simulated(incoming)).await
}

/// Waits for the greeting.
async fn greeted(
    endpoint: &Endpoint,
    channel: Channel,
    outbound: UnboundedSender<ClientFrame>,
    mut inbound: Inbound,
) -> Result<OpenStream, String> {
    let first = inbound
        .message()
        .await
        .map_err(|status| describe(&status))?;
    let greeting = first
        .and_then(|message| message.frames.into_iter().next())
        .and_then(|frame| match frame.body {
            Some(server_frame::Body::Greeting(greeting)) => Some(greeting),
            _ => None,
        })
        .ok_or("it did not begin with a greeting; is it a Ringfence client port?")?;
    Ok(OpenStream {
        endpoint: endpoint.clone(),
        channel,
        outbound,
        inbound,
        greeting,
    })
}

/// A status in one line, with what is behind it: the message of one that this side has made says
/// only that the transport failed.
pub(crate) fn describe(status: &tonic::Status) -> String {
    let mut text = format!("{:?}", status.code());
    if !status.message().is_empty() {
        text = format!("{text}: {}", status.message());
    }
    with_causes(text, std::error::Error::source(status))
}

/// An error with its causes: tonic's transport errors say only "transport error" by themselves.
fn in_full(error: &dyn std::error::Error) -> String {
    with_causes(error.to_string(), error.source())
}

fn with_causes(mut text: String, mut cause: Option<&dyn std::error::Error>) -> String {
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
