//! Connections of callers, and what becomes of each request.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use ringfence_guard::follow::FloorFollower;
use ringfence_guard::tower::TurnedAway;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::answer::{AnswerBody, failed, is_grpc, turned_away};
use crate::forward::{Service, forward, service};
use crate::judge::fence_of;
use crate::passage::Passages;
use crate::{Failure, Marks, Options};

/// How long a connection waits after one that could not be accepted: this process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a connection of HTTP/2 that says nothing is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(20);

/// A proxy before a service.
pub struct Proxy {
    options: Options,
    passages: Passages,
    service: Service,
    floors: Option<FloorFollower>,
}

impl Proxy {
    /// A proxy with these marks. With `floors` a fence is compared with what the cluster has granted, too.
    #[must_use]
    pub fn new(options: Options, marks: Marks, floors: Option<FloorFollower>) -> Self {
        Self {
            passages: Passages::new(marks, options.drain, options.undrained),
            service: service(&options.upstream),
            options,
            floors,
        }
    }

    /// Serves until `stop` is ready, and then until what is inside has ended, for [`Options::drain`] at the
    /// most.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (drain, connections) = (self.options.drain, self.options.limits.connections);
        let proxy = Arc::new(self);
        let room = Arc::new(Semaphore::new(connections));
        let ending = GracefulShutdown::new();
        let accepting = async {
            loop {
                let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((connection, caller)) => {
                        proxy.clone().connected(connection, caller, &ending, place);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop => {}
        }
        drop(listener);
        if timeout(drain, ending.shutdown()).await.is_err() {
            tracing::warn!("requests are still inside; whether the service does them is not known");
        }
    }

    fn connected(
        self: Arc<Self>,
        connection: TcpStream,
        caller: SocketAddr,
        ending: &GracefulShutdown,
        place: OwnedSemaphorePermit,
    ) {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection has ended before its first request");
            return;
        }
        let limits = self.options.limits;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.head_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
        let answer = service_fn(move |request: Request<Incoming>| {
            let proxy = Arc::clone(&self);
            async move { Ok::<_, Infallible>(proxy.answer(request, caller.ip()).await) }
        });
        let served = builder
            .serve_connection(TokioIo::new(connection), answer)
            .into_owned();
        let served = ending.watch(served);
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection has failed");
            }
            drop(place);
        });
    }

    async fn answer(&self, request: Request<Incoming>, caller: IpAddr) -> Response<AnswerBody> {
        let is_grpc = is_grpc(request.headers());
        match self.passed(request, caller).await {
            Ok(answer) => answer,
            Err(Rejected::TurnedAway(away)) => {
                tracing::info!(reason = away.reason(), %caller, "{away}");
                turned_away(is_grpc, &away)
            }
            Err(Rejected::Failed(failure)) => {
                tracing::warn!(reason = failure.reason(), %caller, "{failure}");
                failed(is_grpc, &failure)
            }
        }
    }

    async fn passed(
        &self,
        request: Request<Incoming>,
        caller: IpAddr,
    ) -> Result<Response<AnswerBody>, Rejected> {
        if request.method() == Method::CONNECT || leaves_http(request.headers()) {
            return Err(Failure::Upgrade.into());
        }
        let permit = match fence_of(&self.options, &request)? {
            None => None,
            Some(fence) => {
                if let Some(floors) = &self.floors {
                    floors.check(&fence).await.map_err(TurnedAway::from)?;
                }
                Some(self.passages.enter(&fence).await?)
            }
        };
        let service = self.service.clone();
        Ok(forward(service, &self.options, request, caller, permit).await?)
    }
}

/// Why the service has no part in an answer.
enum Rejected {
    TurnedAway(TurnedAway),
    Failed(Failure),
}

impl From<TurnedAway> for Rejected {
    fn from(away: TurnedAway) -> Self {
        Self::TurnedAway(away)
    }
}

impl From<Failure> for Rejected {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Whether another protocol is asked for. HTTP/2 in the clear is HTTP: the question is not passed on, and
/// the answer comes as HTTP/1.1.
fn leaves_http(headers: &HeaderMap) -> bool {
    headers.get_all(UPGRADE).iter().any(|value| {
        value.to_str().map_or(true, |names| {
            names
                .split(',')
                .any(|name| !name.trim().eq_ignore_ascii_case("h2c"))
        })
    })
}
