//! The layer: asks the clock, puts the token on, and heeds what the API server says of it.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use kube::client::{Body, ClientBuilder};
use kube::core::Status;
use kube::{Client, Config};
use tower_layer::Layer;
use tower_service::Service;

use super::carrier::Carrier;
use super::held::Held;
use super::refusal::Unsent;
use super::request::{Bare, is_write};
use super::sequence::{self, Numbers};
use crate::policy::Refusal;

/// The longest refusal that is looked into; the API server's are of some hundred bytes.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// Whatever the service that sends fails with.
type BoxError = Box<dyn StdError + Send + Sync>;

/// A client whose writes carry the token of a held lease, and which sends none once that is lost. It
/// sends each request once: [`Config::default_retry`] is turned off, see [`Fencing`].
///
/// # Errors
/// As [`Client::try_from`]: the configuration cannot be used.
pub fn client<H: Held>(
    mut config: Config,
    held: H,
    carrier: Carrier,
) -> Result<Client, kube::Error> {
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&Fencing::new(held, carrier)).build())
}

/// A layer that fences the writes of a Kubernetes client with a held lease; see the
/// [module](super). [`client`] puts it where it belongs: on the outside.
///
/// Nothing below it may send a request twice: the clock is asked once for each that comes from above,
/// and a repetition with the same number would be refused though the first one took effect. So
/// a caller that builds a client with this layer sets [`Config::default_retry`] to `false`, as
/// [`client`] does. A call that is repeated above it is judged again, and has a number of its own.
pub struct Fencing<H> {
    fence: Arc<Fence<H>>,
}

struct Fence<H> {
    held: H,
    carrier: Carrier,
    numbers: Numbers,
}

impl<H: Held> Fencing<H> {
    /// A layer for one grant.
    #[must_use]
    pub fn new(held: H, carrier: Carrier) -> Self {
        let numbers = Numbers::default();
        Self {
            fence: Arc::new(Fence {
                held,
                carrier,
                numbers,
            }),
        }
    }
}

impl<H: Held> Fence<H> {
    /// The write with its token, or why it is not sent. The clock is asked last.
    fn put(&self, request: Request<Body>) -> Result<Request<Body>, Unsent> {
        let (mut parts, mut body) = request.into_parts();
        let (name, token) = (self.held.name(), self.held.token());
        let fence = format!("{name}#{token}");
        if !Bare::is(&parts) {
            self.carrier.put(&mut parts, &fence)?;
            let mark = match self.carrier {
                Carrier::Sequence => Some(None),
                Carrier::SequenceWithMark => Some(Some(token)),
                Carrier::Impersonate { .. } | Carrier::FieldManager => None,
            };
            if let Some(mark) = mark {
                body = sequence::put(&mut parts, body, &fence, &self.numbers, mark)?;
            }
        }
        match self.held.loss() {
            None => Ok(Request::from_parts(parts, body)),
            Some(loss) => Err(Unsent::Lost {
                name: name.clone(),
                token,
                loss,
            }),
        }
    }

    /// Whether this refusal ends the lease.
    fn heed(&self, refusal: &[u8]) {
        let Ok(status) = serde_json::from_slice::<Status>(refusal) else {
            return;
        };
        let refusal = Refusal::of(StatusCode::FORBIDDEN.as_u16(), &status.message);
        let fence = format!("{}#{}", self.held.name(), self.held.token());
        if refusal.is_some_and(|refusal| refusal.is_stale_for(&fence)) {
            tracing::warn!(
                fence,
                message = status.message,
                "the API server refuses this fence"
            );
            self.held.report_stale();
        }
    }
}

/// A service that fences writes; made by [`Fencing`].
pub struct Fenced<S, H> {
    inner: S,
    fence: Arc<Fence<H>>,
}

impl<S, H> Layer<S> for Fencing<H> {
    type Service = Fenced<S, H>;

    fn layer(&self, inner: S) -> Fenced<S, H> {
        Fenced {
            inner,
            fence: Arc::clone(&self.fence),
        }
    }
}

impl<S: Clone, H> Clone for Fenced<S, H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            fence: Arc::clone(&self.fence),
        }
    }
}

impl<S, B, H> Service<Request<Body>> for Fenced<S, H>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    H: Held,
{
    type Response = Response<Either<Full<Bytes>, B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let writes = is_write(&parts);
        let request = Request::from_parts(parts, body);
        if !writes {
            let sent = self.inner.call(request);
            return Box::pin(async move { Ok(sent.await.map_err(Into::into)?.map(Either::Right)) });
        }
        // Asked here, when the service is ready, and not before it waited for that.
        let request = match self.fence.put(request) {
            Ok(request) => request,
            Err(unsent) => return Box::pin(async move { Err(unsent.into()) }),
        };
        let (fence, sent) = (Arc::clone(&self.fence), self.inner.call(request));
        Box::pin(async move {
            let response = sent.await.map_err(Into::into)?;
            if response.status() != StatusCode::FORBIDDEN {
                return Ok(response.map(Either::Right));
            }
            let (parts, body) = response.into_parts();
            let refusal = Limited::new(body, REFUSAL_BYTES_MAX).collect().await?;
            let refusal = refusal.to_bytes();
            fence.heed(&refusal);
            Ok(Response::from_parts(
                parts,
                Either::Left(Full::new(refusal)),
            ))
        })
    }
}

impl<H: Held> fmt::Debug for Fencing<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fence.fmt(f)
    }
}

impl<S, H: Held> fmt::Debug for Fenced<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fence.fmt(f)
    }
}

impl<H: Held> fmt::Debug for Fence<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({}#{})", self.held.name(), self.held.token())
    }
}
