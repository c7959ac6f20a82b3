//! The proxy: connections of callers, and what becomes of each request.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use ringfence_guard::follow::{FloorFollower, PATIENCE};
use ringfence_guard::tower::TurnedAway;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{interval, sleep, timeout};

use crate::answer::{AnswerBody, rejected};
use crate::connection::{self, Terms};
use crate::crowd::{Activity, Crowd};
use crate::errand::Errand;
use crate::failure::Rejected;
use crate::judge::Judge;
use crate::passage::Passages;
use crate::pool::Pool;
use crate::request::{check, in_chunks, towards};
use crate::upload::Upload;
use crate::{Failure, Marks, MarksError, Options};

/// How long a connection waits after one that could not be accepted: this process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the file of marks and the connections without a request are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A proxy before a service.
pub struct Proxy {
    options: Options,
    judge: Judge,
    passages: Passages,
    pool: Arc<Pool>,
    floors: Option<FloorFollower>,
    requests: Arc<Semaphore>,
}

impl Proxy {
    /// A proxy with these marks. With `floors` a fence is compared with what the cluster has granted, too.
    /// From here on it counts how long requests of the process before can be at work.
    ///
    /// # Errors
    /// If the file of marks cannot be written.
    pub fn new(
        options: Options,
        marks: Marks,
        floors: Option<FloorFollower>,
    ) -> Result<Self, MarksError> {
        let inherited = marks.begin(options.quiet())?;
        if !inherited.is_zero() {
            tracing::warn!(
                ?inherited,
                "the process before has not said that nothing was inside: leases that have a mark wait"
            );
        }
        Ok(Self {
            judge: Judge::new(&options),
            passages: Passages::new(marks, &options, inherited),
            pool: Arc::new(Pool::new(&options.upstream)),
            requests: Arc::new(Semaphore::new(options.limits.requests)),
            options,
            floors,
        })
    }

    /// Serves until `stop` is ready, and then until what is inside has ended, for [`Options::drain`] at the
    /// most. Returns whether all has.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> bool {
        let proxy = Arc::new(self);
        let connections = proxy.options.limits.connections;
        let crowd = Arc::new(Crowd::new(connections));
        let (stopping, stops) = watch::channel(false);
        tokio::select! {
            () = proxy.accept(&listener, &crowd, &stops) => {}
            () = proxy.look() => {}
            () = stop => {}
        }
        drop(listener);
        stopping.send_replace(true);
        // Those of callers that have gone, too.
        let ended = async {
            let requests = u32::try_from(proxy.options.limits.requests).unwrap_or(u32::MAX);
            crowd.ended(connections).await && proxy.requests.acquire_many(requests).await.is_ok()
        };
        if timeout(proxy.options.drain, ended).await != Ok(true) {
            tracing::warn!("requests are still inside; whether the service does them is not known");
            return false;
        }
        if !proxy.passages.are_quiet() {
            tracing::warn!("the service may be at work on requests whose end was not seen");
            return false;
        }
        proxy.passages.marks().end().await.is_ok()
    }

    async fn accept(
        self: &Arc<Self>,
        listener: &TcpListener,
        crowd: &Arc<Crowd>,
        stops: &watch::Receiver<bool>,
    ) {
        let places = Arc::new(Places::default());
        loop {
            match listener.accept().await {
                Ok((connection, caller)) => {
                    let limit = self.options.limits.connections_of_address;
                    let Some(of_address) = places.enter(caller.ip(), limit) else {
                        tracing::info!(%caller, limit, "its address has too many connections");
                        continue;
                    };
                    let member = crowd.enter().await;
                    let activity = member.activity.clone();
                    let proxy = Arc::clone(self);
                    let served =
                        proxy.connected(connection, caller.ip(), activity.clone(), stops.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            () = served => {}
                            () = activity.gives_way() => {}
                        }
                        drop((member, of_address));
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Looks again and again, for ever.
    async fn look(&self) {
        let mut every = interval(LOOK_EVERY);
        loop {
            every.tick().await;
            self.pool.tidy();
            self.passages.marks().look().await;
        }
    }

    async fn connected(
        self: Arc<Self>,
        connection: TcpStream,
        caller: IpAddr,
        activity: Activity,
        stops: watch::Receiver<bool>,
    ) {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection has ended before its first request");
            return;
        }
        let options = &self.options;
        let terms = Terms {
            limits: options.limits,
            longest: options.limits.idle + PATIENCE + options.drain + options.request_max,
        };
        let answer = move |request: Request<Incoming>| {
            let proxy = Arc::clone(&self);
            async move { proxy.answer(request, caller).await }
        };
        connection::serve(connection, terms, activity, stops, answer).await;
    }

    async fn answer(&self, request: Request<Incoming>, caller: IpAddr) -> Response<AnswerBody> {
        let why = match self.passed(request, caller).await {
            Ok(answer) => return answer,
            Err(why) => why,
        };
        match &why {
            Rejected::TurnedAway(away) => {
                tracing::info!(reason = away.reason(), %caller, "{away}");
            }
            Rejected::Failed(failure) => {
                tracing::warn!(reason = failure.reason(), %caller, "{failure}");
            }
        }
        rejected(&why)
    }

    async fn passed(
        &self,
        request: Request<Incoming>,
        caller: IpAddr,
    ) -> Result<Response<AnswerBody>, Rejected> {
        check(request.method(), request.uri(), request.headers())?;
        let fence = self.judge.fence_of(&request)?;
        let place = Arc::clone(&self.requests).try_acquire_owned();
        let place = place.map_err(|_| Failure::Busy(self.options.limits.requests))?;
        let permit = match fence {
            None => None,
            Some(fence) => {
                if let Some(floors) = &self.floors {
                    floors.check(&fence).await.map_err(TurnedAway::from)?;
                }
                Some(self.passages.enter(&fence).await?)
            }
        };
        let (mut head, body) = request.into_parts();
        towards(&self.options.upstream, &mut head, caller);
        in_chunks(&mut head, &body);
        let (body, whole) = Upload::new(body);
        let errand = Errand {
            request: Request::from_parts(head, body),
            whole,
            permit,
            place,
            request_max: self.options.request_max,
        };
        Ok(errand.run(Arc::clone(&self.pool)).await?)
    }
}

/// How many connections each address has.
#[derive(Default)]
struct Places(Mutex<HashMap<IpAddr, usize>>);

/// A connection of an address, until it is dropped.
struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn enter(self: &Arc<Self>, caller: IpAddr, limit: usize) -> Option<Place> {
        let address = counted_as(caller);
        let mut places = self.0.lock();
        let count = places.entry(address).or_default();
        // Behind an address of this machine are all who come by a proxy on it.
        if *count >= limit && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Place {
            places: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.0.lock();
        if let Some(count) = places.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.address);
            }
        }
    }
}

/// Of IPv6 a network has a whole /64.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}
