//! The way of calls to one peer: a gRPC channel, or what a simulated place has instead.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_tls::Connector;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::channel::ResponseFuture;
use tonic::transport::{Channel, Endpoint};

use super::{CONNECTION_WINDOW, KEEP_ALIVE_EVERY, KEEP_ALIVE_MAX, STREAM_WINDOW};
use crate::platform::place::{self, Dial, Exchange};

/// How long a connection attempt may take.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// It connects when it is first used, and again whenever it has to. Clones share the connection.
#[derive(Clone)]
pub(crate) enum Wire {
    Real(Channel),
    Placed(Arc<dyn Dial>),
}

impl Wire {
    /// The way to `address`, host:port; `None` if that is none.
    pub(super) fn to(address: &str, tls: Option<&Connector>) -> Option<Self> {
        if let Some(dial) = place::ask(|place| place.dial(address)) {
            return Some(Self::Placed(dial));
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_MAX)
            .keep_alive_while_idle(true);
        let channel = match tls {
            None => endpoint.connect_lazy(),
            Some(connector) => {
                let origin = format!("https://{address}").parse().ok()?;
                let connector = connector.clone().connect_timeout(CONNECT_MAX);
                endpoint
                    .origin(origin)
                    .connect_with_connector_lazy(connector)
            }
        };
        Some(Self::Real(channel))
    }
}

impl Service<http::Request<Body>> for Wire {
    type Response = http::Response<Body>;
    type Error = tonic::codegen::StdError;
    type Future = Answered;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::Real(channel) => channel.poll_ready(context).map_err(Into::into),
            Self::Placed(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Answered {
        match self {
            Self::Real(channel) => Answered::Real(channel.call(request)),
            Self::Placed(dial) => Answered::Placed(dial.exchange(request)),
        }
    }
}

/// The head of an answer.
pub(crate) enum Answered {
    Real(ResponseFuture),
    Placed(Exchange),
}

impl Future for Answered {
    type Output = Result<http::Response<Body>, tonic::codegen::StdError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Real(answer) => Pin::new(answer).poll(context).map_err(Into::into),
            Self::Placed(answer) => answer.as_mut().poll(context).map_err(Into::into),
        }
    }
}
