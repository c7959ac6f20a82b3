//! The layer and its service.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::body::FenceBody;
use super::policy::{Policy, Routes};
use super::response::grpc_response;
use super::{Door, TurnedAway};
use crate::Fence;

/// Puts a [`Door`] before a service; see the [module](super).
pub struct FenceLayer<D> {
    door: Arc<D>,
    routes: Arc<Routes>,
}

/// A service behind a [`Door`]; made by [`FenceLayer`].
pub struct FenceService<S, D> {
    inner: S,
    door: Arc<D>,
    routes: Arc<Routes>,
}

impl<D: Door> FenceLayer<D> {
    /// A layer that demands a fence of every request.
    #[must_use]
    pub fn new(door: D) -> Self {
        Self {
            door: Arc::new(door),
            routes: Arc::default(),
        }
    }

    /// Sets what a route demands. `pattern` is a path, `/bank.Ledger/Read` for a gRPC method, or the
    /// beginning of one with a `*` behind it. Paths are compared as they come, byte by byte. The most
    /// exact pattern decides: a whole path before a beginning, a long beginning before a short one.
    #[must_use]
    pub fn route(mut self, pattern: impl Into<String>, policy: Policy) -> Self {
        Arc::make_mut(&mut self.routes).add(pattern.into(), policy);
        self
    }

    /// Sets what all other routes demand. [`Policy::Required`] unless set otherwise.
    #[must_use]
    pub fn otherwise(mut self, policy: Policy) -> Self {
        Arc::make_mut(&mut self.routes).set_otherwise(policy);
        self
    }
}

impl<S, D> Layer<S> for FenceLayer<D> {
    type Service = FenceService<S, D>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService {
            inner,
            door: Arc::clone(&self.door),
            routes: Arc::clone(&self.routes),
        }
    }
}

impl<S, D, B, R> Service<Request<B>> for FenceService<S, D>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    D: Door,
    B: Send + 'static,
{
    type Response = Response<FenceBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that is ready goes with the request; its clone has to become ready again.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (door, routes) = (Arc::clone(&self.door), Arc::clone(&self.routes));
        Box::pin(async move {
            let policy = routes.policy_of(request.uri().path());
            // None but the door's is to be found behind it.
            request.extensions_mut().remove::<Fence>();
            match pass(&*door, policy.fence_of(request.headers())).await {
                Ok(fence) => {
                    if let Some(fence) = fence {
                        request.extensions_mut().insert(fence);
                    }
                    let response = inner.call(request).await?;
                    Ok(response.map(FenceBody::of_service))
                }
                Err(away) => Ok(refuse(&away, request.headers())),
            }
        })
    }
}

/// The fence under which a request passes; `None` if it needs and shows none.
async fn pass(
    door: &impl Door,
    shown: Result<Option<Fence>, TurnedAway>,
) -> Result<Option<Fence>, TurnedAway> {
    let shown = shown?;
    if let Some(fence) = &shown {
        door.admit(fence).await?;
    }
    Ok(shown)
}

fn refuse<R>(away: &TurnedAway, headers: &HeaderMap) -> Response<FenceBody<R>> {
    let content = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    if content.is_some_and(|content| content.starts_with(b"application/grpc")) {
        grpc_response(away, FenceBody::default())
    } else {
        away.http_response().map(FenceBody::refusal)
    }
}

impl<D> Clone for FenceLayer<D> {
    fn clone(&self) -> Self {
        Self {
            door: Arc::clone(&self.door),
            routes: Arc::clone(&self.routes),
        }
    }
}

impl<S: Clone, D> Clone for FenceService<S, D> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            door: Arc::clone(&self.door),
            routes: Arc::clone(&self.routes),
        }
    }
}

impl<D> fmt::Debug for FenceLayer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

impl<S, D> fmt::Debug for FenceService<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}
