//! The client: one per program is enough.

use std::sync::Arc;

use rand::Rng;
use ringfence_core::LeaseName;

use crate::clock::Moment;
use crate::session::hub::Hub;
use crate::session::keepalive;
use crate::transport::chance;
use crate::transport::driver::{self, AbortOnDrop, Tether};
use crate::transport::endpoint::Endpoint;
use crate::transport::error::ConnectError;
use crate::transport::follow::Follow;
use crate::transport::options::Options;
use crate::transport::unary;
use crate::transport::upkeep;
use crate::watch::info::GrantInfo;
use crate::watch::observer::Observer;

/// A connection to a cluster. Cheap to clone; all clones share one stream and one thread.
#[derive(Clone)]
pub struct Client {
    pub(crate) hub: Arc<Hub>,
    pub(crate) tether: Arc<Tether>,
}

impl Client {
    pub(crate) async fn start(
        endpoints: Vec<Endpoint>,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let (thread, tether) = driver::start(&options).map_err(ConnectError::Thread)?;
        let first = chance::rng().random_range(0..endpoints.len());
        let hub = Hub::new(options, thread, Follow::new(endpoints, first));
        // These hold what they keep, and end with the thread; only the tether keeps that running.
        let transport = &hub.transport;
        let running = Arc::clone(transport);
        drop(
            transport
                .thread
                .spawn(async move { upkeep::run(&running).await }),
        );
        let running = Arc::clone(&hub);
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
            hub,
            tether: Arc::new(tether),
        };
        client.greeted().await?;
        Ok(client)
    }

    /// The present moment on the clock that windows are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.hub.transport.now()
    }

    /// Completes at `moment`, on any executor, also if the machine was suspended meanwhile.
    pub fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + Send + 'static {
        let transport = &self.hub.transport;
        let (clock, tether) = (
            Arc::clone(&transport.options.clock),
            Arc::clone(&self.tether),
        );
        let sleeping = transport
            .thread
            .spawn(async move { clock.sleep_until(moment).await });
        let mut sleeping = AbortOnDrop(sleeping);
        async move {
            // The tether keeps the thread running, so the task ends only when it has slept.
            (&mut sleeping.0).await.ok();
            drop(tether);
        }
    }

    /// The address of the member that the stream is connected to, if it is connected.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        let current = self.hub.transport.link.current();
        current
            .borrow()
            .as_ref()
            .map(|current| current.endpoint.to_string())
    }

    /// Follows a lease; see [`Streams::observe`](crate::watch::observer::Streams::observe).
    pub(crate) fn observe(
        &self,
        name: LeaseName,
        saw: impl Fn(Option<GrantInfo>) + Send + Sync + 'static,
    ) -> Observer {
        self.hub.streams.observe(&self.tether, name, saw)
    }

    /// Waits for the first greeting.
    async fn greeted(&self) -> Result<(), ConnectError> {
        let transport = Arc::clone(&self.hub.transport);
        let deadline = transport.now() + transport.options.connect_timeout;
        let waiting = async move { unary::channel(&transport, deadline).await };
        let link = &self.hub.transport.link;
        let answered = driver::on_thread(&self.hub.transport.thread, waiting).await;
        let refusal = self.hub.transport.options.credential.refusal();
        match (answered, refusal) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(refusal)) => Err(ConnectError::Refused(Box::new(refusal))),
            (Err(error), None) => Err(ConnectError::Unreachable {
                why: link.trouble().unwrap_or_else(|| error.to_string()),
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
