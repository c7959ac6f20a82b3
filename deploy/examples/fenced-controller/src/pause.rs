//! The worst moment: this process is stopped after it has looked at its lease, and before its write
//! leaves. No look could prevent that write; only the API server can refuse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request};
use nix::sys::signal::{Signal, raise};
use tower_layer::Layer;
use tower_service::Service;

/// Stops the process, with SIGSTOP, when a certain patch is about to be sent.
#[derive(Clone)]
pub(crate) struct StopBeforeSending {
    at: Option<u64>,
    sent: Arc<AtomicU64>,
}

impl StopBeforeSending {
    /// Before the patch with this number, from 1; `None`: never.
    pub(crate) fn new(at: Option<u64>) -> Self {
        let sent = Arc::default();
        Self { at, sent }
    }
}

impl<S> Layer<S> for StopBeforeSending {
    type Service = Stopping<S>;

    fn layer(&self, inner: S) -> Stopping<S> {
        let pause = self.clone();
        Stopping { inner, pause }
    }
}

/// A service that may be stopped.
#[derive(Clone)]
pub(crate) struct Stopping<S> {
    inner: S,
    pause: StopBeforeSending,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Stopping<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        if *request.method() == Method::PATCH {
            let number = self.pause.sent.fetch_add(1, Ordering::Relaxed) + 1;
            if self.pause.at == Some(number) {
                println!("stopping before patch {number} is sent");
                // To this very thread, which would else go on until another one has taken it. All
                // stand until SIGCONT; then the request goes its way.
                let stopped = raise(Signal::SIGSTOP);
                println!("continued: {stopped:?}");
            }
        }
        self.inner.call(request)
    }
}
