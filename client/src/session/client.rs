//! The client: one per program is enough.

use std::sync::Arc;

use rand::Rng;
use ringfence_core::LeaseName;

use crate::clock::Moment;
use crate::session::client_inner::ClientInner;
use crate::session::keepalive;
use crate::transport::connection_loop;
use crate::transport::driver::{self, AbortOnDrop, KeepRunning};
use crate::transport::endpoint::Endpoint;
use crate::transport::endpoint_selector::EndpointSelector;
use crate::transport::error::{CallError, ConnectError};
use crate::transport::options::Options;
use crate::transport::random;
use crate::transport::unary;
use crate::watch::info::GrantInfo;
use crate::watch::observer::Observer;

/// A connection to a cluster. Cheap to clone; all clones share one stream and one thread.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) keep_running: Arc<KeepRunning>,
}

impl Client {
    pub(crate) async fn start(
        endpoints: Vec<Endpoint>,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let (thread, keep_running) = driver::start(&options).map_err(ConnectError::Thread)?;
        let first = random::rng().random_range(0..endpoints.len());
        let inner = ClientInner::new(options, thread, EndpointSelector::new(endpoints, first));
        // These hold what they keep, and end with the thread; only the tether keeps that running.
        let transport = &inner.transport;
        let running = Arc::clone(transport);
        drop(
            transport
                .thread
                .spawn(async move { connection_loop::run(&running).await }),
        );
        let running = Arc::clone(&inner);
        drop(
            transport
                .thread
                .spawn(async move { keepalive::run(&running).await }),
        );
        let running = Arc::clone(transport);
        drop(
            transport
                .thread
                .spawn(async move { running.link.run_timers().await }),
        );
        let running = Arc::clone(transport);
        drop(transport.thread.spawn(async move {
            let options = &running.options;
            options.credential.follow(&*options.clock).await;
        }));
        let client = Self {
            inner,
            keep_running: Arc::new(keep_running),
        };
        client.greeted().await?;
        Ok(client)
    }

    /// The present moment on the clock that windows are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.inner.transport.now()
    }

    /// Completes at `moment`, on any executor, also if the machine was suspended meanwhile.
    pub fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + Send + 'static {
        let transport = &self.inner.transport;
        let (clock, keep_running) = (
            Arc::clone(&transport.options.clock),
            Arc::clone(&self.keep_running),
        );
        let sleeping = transport
            .thread
            .spawn(async move { clock.sleep_until(moment).await });
        let mut sleeping = AbortOnDrop(sleeping);
        async move {
            // The tether keeps the thread running, so the task ends only when it has slept.
            (&mut sleeping.0).await.ok();
            drop(keep_running);
        }
    }

    /// The address of the member that the stream is connected to, if it is connected.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        let current = self.inner.transport.link.current();
        current
            .borrow()
            .as_ref()
            .map(|current| current.endpoint.to_string())
    }

    /// Follows a lease; see [`SharedWatches::observe`](crate::watch::observer::SharedWatches::observe).
    pub(crate) fn observe(
        &self,
        name: LeaseName,
        saw: impl Fn(Option<GrantInfo>) + Send + Sync + 'static,
    ) -> Observer {
        self.inner.watches.observe(&self.keep_running, name, saw)
    }

    /// Waits for the first greeting.
    async fn greeted(&self) -> Result<(), ConnectError> {
        let transport = Arc::clone(&self.inner.transport);
        let deadline = transport.now() + transport.options.connect_timeout;
        let waiting = async move {
            crate::sync::select! {
                channel = unary::channel(&transport, deadline) => channel,
                // It would not be another answer until the deadline.
                () = transport.options.credential.refused_by_all() => {
                    let why = "every endpoint refuses who this client is".to_owned();
                    Err(CallError::Unavailable { why })
                }
            }
        };
        let link = &self.inner.transport.link;
        let answered = driver::on_thread(&self.inner.transport.thread, waiting).await;
        let refusal = self.inner.transport.options.credential.refusal();
        match (answered, refusal) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(refusal)) => Err(ConnectError::Refused(Box::new(refusal))),
            (Err(error), None) => Err(ConnectError::Unreachable {
                why: link.last_error().unwrap_or_else(|| error.to_string()),
            }),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}
