//! The fence of a lease in the headers of requests: the client's side of a guarded service.
//!
//! An [`Attach`] is a tower layer around anything that sends HTTP requests, a tonic channel for
//! example. It puts the lease's name and token into two headers, [`LEASE_HEADER`] and
//! [`TOKEN_HEADER`], which in gRPC are metadata, and the layer of the guard crate reads them on the
//! other side.
//!
//! - **It stops sending at loss.** Each request asks the clock first; once the lease is lost nothing
//!   is sent any more, and the request fails with [`Unsent::Lost`].
//! - **It hides nothing.** A request that is under way when the lease is lost goes on, and its answer
//!   comes through, for it may have taken effect. A call that streams messages goes on sending them:
//!   run it in [`Term::run`], which drops it.
//! - **It believes a refusal.** An answer that says that this fence is stale, in the header
//!   [`STALE_HEADER`], ends belief in the lease, as [`Term::report_stale`] does. Another fence
//!   in that header changes nothing.
//! - **It keeps nothing alive.** The layer outlives the [`HeldLease`](crate::HeldLease); when that is dropped, the lease
//!   is released and requests fail.
//!
//! Between the question to the clock and the arrival of the request any time can pass. What makes
//! that harmless is the guard in the service's store.
//!
//! ```no_run
//! use ringfence_client::HeldLease;
//! use tonic::transport::Channel;
//! use tower_layer::Layer;
//!
//! # async fn f(lease: HeldLease) -> Result<(), Box<dyn std::error::Error>> {
//! let channel = Channel::from_static("http://10.0.0.9:9000").connect().await?;
//! // What `tonic` generates takes it in the place of the channel: `LedgerClient::new(fenced)`.
//! let fenced = lease.attach().layer(channel);
//! # drop(fenced);
//! # Ok(())
//! # }
//! ```

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use ringfence_core::{FencingToken, LeaseName};
use ringfence_proto::refusal::Refusal;
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;

use crate::lease::term::Term;
use crate::session::loss::Loss;

/// The header, or gRPC metadata, with the token in decimal digits.
pub const TOKEN_HEADER: &str = "ringfence-token";

/// The header, or gRPC metadata, with the lease name.
pub const LEASE_HEADER: &str = "ringfence-lease";

/// The header of an answer that says that a fence is stale: `name#token`.
pub const STALE_HEADER: &str = "ringfence-stale";

impl Term {
    /// A layer that attaches this lease's fence to requests, and sends none once the lease is lost.
    ///
    /// # Panics
    /// Never: a lease name has no character that a header could not carry.
    #[must_use]
    pub fn attach(&self) -> Attach {
        let lease_header = HeaderValue::from_str(self.name().as_str());
        Attach {
            held: Arc::new(Held {
                term: self.clone(),
                fence: self.fence().to_string(),
                lease_header: lease_header.expect("a lease name is visible ASCII"),
                token_header: HeaderValue::from(self.token().get()),
            }),
        }
    }
}

/// A layer that attaches the fence of a lease; see the [module](self). Made by
/// [`Term::attach`].
#[derive(Clone)]
pub struct Attach {
    held: Arc<Held>,
}

struct Held {
    term: Term,
    fence: String,
    lease_header: HeaderValue,
    token_header: HeaderValue,
}

impl Held {
    /// Why nothing may be sent.
    fn loss(&self) -> Option<Loss> {
        self.term.loss()
    }

    fn unsent(&self, loss: Loss) -> Unsent {
        let (name, token) = (self.term.name().clone(), self.term.token());
        let mut refusal = Refusal::ended(&name, token, None);
        refusal.message = format!(
            "not sent: lease {name} with token {token} is lost: {loss}; stop working under it"
        );
        Unsent::Lost(Box::new(LostLease {
            name,
            token,
            loss,
            status: refusal.into(),
        }))
    }
}

/// A service that attaches the fence of a lease; made by [`Attach`].
#[derive(Clone)]
pub struct Attached<S> {
    inner: S,
    held: Arc<Held>,
}

/// Why a request was not answered.
#[derive(Debug)]
pub enum Unsent {
    /// The lease is lost, so nothing was sent. To a gRPC caller it is a status `ABORTED` with the
    /// reason `ENDED`.
    Lost(Box<LostLease>),
    /// The service that sends has failed: see there what became of the request.
    Inner(BoxError),
}

/// Whatever the service that sends fails with.
type BoxError = Box<dyn Error + Send + Sync>;

/// The lease under which something was not sent.
#[derive(Debug)]
pub struct LostLease {
    /// The lease's name, 1 to 255 bytes of visible ASCII.
    pub name: LeaseName,
    /// The token of the grant that was lost.
    pub token: FencingToken,
    /// Why it was lost.
    pub loss: Loss,
    status: Status,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => f.write_str(lost.status.message()),
            Self::Inner(_) => f.write_str("the request failed on its way"),
        }
    }
}

impl Error for Unsent {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // So that tonic finds it, and makes it the outcome of the call.
            Self::Lost(lost) => Some(&lost.status),
            Self::Inner(error) => Some(&**error),
        }
    }
}

impl<S> Layer<S> for Attach {
    type Service = Attached<S>;

    fn layer(&self, inner: S) -> Attached<S> {
        Attached {
            inner,
            held: Arc::clone(&self.held),
        }
    }
}

impl<S, B, R> Service<Request<B>> for Attached<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = Unsent;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, Unsent>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| Unsent::Inner(error.into()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let held = Arc::clone(&self.held);
        // Asked here, when the service is ready, and not before it waited for that.
        if let Some(loss) = held.loss() {
            return Box::pin(async move { Err(held.unsent(loss)) });
        }
        let headers = request.headers_mut();
        headers.insert(LEASE_HEADER, held.lease_header.clone());
        headers.insert(TOKEN_HEADER, held.token_header.clone());
        let sent = self.inner.call(request);
        Box::pin(async move {
            let response = sent.await.map_err(|error| Unsent::Inner(error.into()))?;
            let stale = response.headers().get(STALE_HEADER);
            if stale.is_some_and(|stale| stale.as_bytes() == held.fence.as_bytes()) {
                held.term.report_stale();
            }
            Ok(response)
        })
    }
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attach({})", self.held.fence)
    }
}

impl<S> fmt::Debug for Attached<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attached({})", self.held.fence)
    }
}
