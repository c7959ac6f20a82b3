//! Who calls: what stands before all services, and proves the caller of each request. The HTTP port
//! has its callers proven here, too.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use ringfence_access::{
    Demand, Grace, InvalidCredentials, NotProven, Peer, Proven, Prover, Rate, Source, Tokens,
    now_unix,
};
use ringfence_core::{ClusterToken, LeaseName, Mode, PodUid, Principal};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::Node;
use ringfence_rest::refuse_page;
use ringfence_services::{
    self as services, ConnectionPrincipals, Identified, ObjectService, ProvenPod, problem,
};
use ringfence_tls::Connection;
use serde_json::Map;
use tonic::body::Body;
use tonic::codegen::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use tonic::codegen::http::{HeaderMap, Method, Request, Response, StatusCode};
use tonic::transport::server::Connected;
use tower::{Layer, Service};

use crate::client_connection::ConnectionInfo;
use crate::config::{Access, Electors};
use crate::lease_api::own_lease;
use crate::reach::Reach;

/// How many seconds' worth of failed proofs one source may have at once.
const FAILED_PROOFS_BURST: u64 = 10;

/// The cluster tokens as this node's state has them.
struct StateTokens(Node);

impl Tokens for StateTokens {
    fn token(&self, id: u64) -> Option<ClusterToken> {
        self.0.access().token(id).cloned()
    }

    fn has_caught_up(&self) -> bool {
        self.0.has_caught_up()
    }
}

/// What counts at the Lease endpoint beside.
struct OfElectors {
    takes: Electors,
    objects: ObjectService,
}

/// Proves who makes each request, and puts it beside the request.
#[derive(Clone)]
pub(crate) struct IdentifyLayer {
    prover: Arc<Prover>,
    node: Node,
    context: services::Context,
    /// The alias of the issuer whose Pods this node watches.
    pods_of: Option<Arc<str>>,
    reach: Reach,
    /// At the Lease endpoint.
    electors: Option<Arc<OfElectors>>,
}

impl IdentifyLayer {
    /// What proves as configured, at a port with this reach; what fails counts in the metrics of
    /// `context`.
    ///
    /// # Errors
    /// [`InvalidCredentials`] if the keys of an issuer cannot be read.
    pub(crate) fn new(
        access: &Access,
        node: &Node,
        context: &services::Context,
        reach: Reach,
    ) -> Result<Self, InvalidCredentials> {
        let tokens = Arc::new(StateTokens(node.clone()));
        let prover = Prover::new(access.credentials.clone(), tokens, now_unix())?;
        let rate = Rate {
            per_second: access.failed_proofs_max,
            burst: access.failed_proofs_max.saturating_mul(FAILED_PROOFS_BURST),
        };
        Ok(Self {
            prover: Arc::new(prover.with_source_limit(rate)),
            node: node.clone(),
            context: context.clone(),
            pods_of: access.pods_of.as_deref().map(Arc::from),
            reach,
            electors: None,
        })
    }

    /// The same at another port; all share the limits of failed proofs.
    pub(crate) fn at(&self, reach: Reach) -> Self {
        let layer = self.clone();
        Self { reach, ..layer }
    }

    /// The same for electors.
    pub(crate) fn of_electors(self, takes: Electors) -> Self {
        let objects = ObjectService::new(self.context.clone());
        let electors = Some(Arc::new(OfElectors { takes, objects }));
        Self { electors, ..self }
    }

    /// Of how many issuers the former keys are in use, because their file cannot be.
    pub(crate) fn key_files_unusable(&self) -> usize {
        self.prover.figures().key_files_unusable
    }

    /// What an accepted connection shows of its caller. Its failed proofs are counted here.
    pub(crate) fn peer(&self, connection: &Connection) -> Peer {
        let from = connection.connect_info().remote_addr();
        let source = from.map(|from| Source::of(from.ip()));
        let peer = self.prover.peer(connection.certificates());
        peer.from_source(source)
    }

    /// Who makes a request with these headers; `None` if it is not proven and need not be.
    ///
    /// In every mode a caller is proven that can be: a stream that begins while the mode is `off`
    /// outlives the mode, and must not be a stranger's then. But a credential that does not hold is
    /// a reason to refuse only where rights bind.
    ///
    /// # Errors
    /// What is wrong with the credential, that this node may not know it yet, or the limit of failed proofs that was reached.
    pub(crate) fn identify(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Option<Identified>, Refusal> {
        self.identify_for(peer, headers, None)
    }

    /// The same for a request at the Lease endpoint, which may be for this lease. A token that has expired
    /// counts if the caller holds it.
    fn identify_for(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        lease: Option<&LeaseName>,
    ) -> Result<Option<Identified>, Refusal> {
        let bind = || self.node.access_mode() == Mode::Enforced;
        let counts = |proven: &Proven| {
            let who = self.identified(proven.clone());
            let objects = self.electors.as_ref().map(|electors| &electors.objects);
            let held = lease.zip(objects);
            if held.is_some_and(|(lease, objects)| objects.is_held_by(&who, lease)) {
                return Ok(());
            }
            // It may not know yet what the caller holds.
            Err(NotProven {
                behind: !self.node.has_caught_up(),
                ..NotProven::EXPIRED
            })
        };
        let mut not = match self.prove(peer, headers, bind(), &counts) {
            Ok(proven) => return Ok(Some(self.identified(proven))),
            Err(not) => not,
        };
        // It does not know either whether rights bind, and a caller that was not proven where they do is
        // not `anonymous`.
        not.behind |= !bind() && !self.node.has_caught_up();
        if not.behind {
            return Err(refusal(&not));
        }
        let binds = bind();
        let source = || {
            peer.source()
                .map_or_else(String::new, |from| from.to_string())
        };
        let metrics = self.context.metrics();
        match &not.reached {
            Some(reached) => metrics.proof_limited(reached.limit, source, binds),
            None => metrics.proof_failed(source, binds),
        }
        // An elector whose token has expired is no stranger: as `anonymous` it would be granted again what it
        // lost inside of its term.
        match binds || (self.electors.is_some() && not.is_expired()) {
            true => Err(refusal(&not)),
            false => Ok(None),
        }
    }

    fn prove(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        binds: bool,
        counts: &dyn Fn(&Proven) -> Result<(), NotProven>,
    ) -> Result<Proven, NotProven> {
        let mut offered = headers.get_all(AUTHORIZATION).iter();
        let header = offered.next();
        if header.is_some() && offered.next().is_some() {
            return Err(NotProven::SEVERAL_HEADERS);
        }
        let header = header.map(|value| value.as_bytes());
        let electors = self.electors.as_ref();
        let demand = Demand {
            binds,
            grace: electors.map(|electors| Grace {
                seconds: electors.takes.token_grace.as_secs(),
                counts,
            }),
        };
        self.prover.prove_as(peer, header, now_unix(), demand)
    }

    /// Puts who makes a request beside it, and what counts its bytes. Says whether a credential proves it.
    ///
    /// # Errors
    /// As [`Self::identify`], a limit of the principal that was reached, and a port that is
    /// [closed](Reach).
    pub(crate) fn admit<B>(
        &self,
        peer: &Peer,
        principals: &ConnectionPrincipals,
        request: &mut Request<B>,
    ) -> Result<bool, Refusal> {
        self.reach.admit(peer, request.uri().path())?;
        let lease = self.electors.as_ref().and_then(|_| own_lease(request));
        let identified = self.identify_for(peer, request.headers(), lease.as_ref())?;
        let principal = identified.as_ref().map(|who| who.principal.clone());
        let principal = principal.unwrap_or_else(Principal::anonymous);
        let path = request.uri().path();
        let meter = self.context.begin_call(&principal, path, principals)?;
        let beside = request.extensions_mut();
        if let Some(identified) = identified {
            beside.insert(identified);
        }
        if let Some(meter) = meter {
            beside.insert(meter);
        }
        Ok(principal.as_str() != Principal::ANONYMOUS)
    }

    fn identified(&self, proven: Proven) -> Identified {
        // Pods of another Kubernetes may have the same names, and no node here sees their ends.
        let process = match (&proven.pod, &self.electors) {
            (Some(pod), _) => PodUid::parse(&pod.uid).ok(),
            (None, Some(electors)) => electors.takes.process_of(&proven.principal),
            (None, None) => None,
        };
        let pod = proven
            .pod
            .filter(|pod| self.pods_of.as_deref() == Some(&pod.issuer));
        Identified {
            principal: proven.principal,
            token: proven.token,
            pod: pod.map(|pod| ProvenPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            }),
            process,
            expires_unix: proven.expires_unix,
        }
    }
}

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, service: S) -> Identify<S> {
        let layer = self.clone();
        Identify { service, layer }
    }
}

/// See [`IdentifyLayer`].
#[derive(Clone)]
pub(crate) struct Identify<S> {
    service: S,
    layer: IdentifyLayer,
}

impl<S> Service<Request<Body>> for Identify<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(refused) = by_a_page(&request) {
            return Either::Right(ready(Ok(refused)));
        }
        let info = request.extensions_mut().remove::<ConnectionInfo>();
        let admitted = info.ok_or_else(from_nowhere).and_then(|info| {
            self.layer
                .admit(&info.peer, &info.principals, &mut request)?;
            Ok(info.client)
        });
        match admitted {
            Ok(client) => {
                request.extensions_mut().insert(client);
                Either::Left(self.service.call(request))
            }
            Err(refused) => {
                let refused = problem::refused(request.headers(), refused);
                Either::Right(ready(Ok(refused)))
            }
        }
    }
}

/// Each port puts what its connection shows beside each request. One without that would pass as
/// `anonymous`, at a closed port and without limits too.
fn from_nowhere() -> Refusal {
    Refusal::new(
        Reason::Fault,
        "this request came without the connection that it belongs to, so its caller cannot be proven; \
         nothing was done: ask another node, and report a bug of this one",
    )
}

/// Refuses what a browser may send to any node for a page of any site: it asks first only before a
/// request that declares gRPC or JSON, or that has headers of its own. A client certificate and a mode
/// that binds no rights would make that page the person who sits there.
fn by_a_page(request: &Request<Body>) -> Option<Response<Body>> {
    let (headers, path) = (request.headers(), request.uri().path());
    let is_grpc = problem::is_grpc(headers);
    if let Err(refusal) = refuse_page(headers, request.uri()) {
        return Some(match is_grpc {
            true => problem::refused(headers, refusal),
            false => problem::problem_as(StatusCode::FORBIDDEN, &refusal, Map::new()),
        });
    }
    if !is_grpc_path(path) {
        return None;
    }
    if request.method() != Method::POST {
        let got = request.method().as_str();
        let refusal = Refusal::invalid("the method", got, "POST for a call of gRPC");
        let mut refused = problem::problem_as(StatusCode::METHOD_NOT_ALLOWED, &refusal, Map::new());
        refused
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(refused);
    }
    if is_grpc {
        return None;
    }
    let got = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let got = got.map_or("none".into(), String::from_utf8_lossy);
    let allowed = "application/grpc for a call of gRPC; /v1/openapi.json lists the calls in JSON";
    let refusal = Refusal::invalid("Content-Type", got, allowed);
    Some(problem::problem_as(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        &refusal,
        Map::new(),
    ))
}

/// Whether a path names a call of gRPC: `/PACKAGE.SERVICE/METHOD`. No other path begins with a name
/// that has a dot.
fn is_grpc_path(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    first.is_some_and(|first| first.contains('.'))
}

/// What was shown proves nothing, or nothing yet; nothing was done.
fn refusal(not: &NotProven) -> Refusal {
    if not.behind {
        return Refusal::unavailable(not, None, services::CAUGHT_UP_AFTER);
    }
    if let Some(reached) = &not.reached {
        return Refusal::new(Reason::Limit, not.to_string())
            .with("limit", reached.limit)
            .with("max", reached.max)
            .retry_after(reached.retry_after);
    }
    let message = format!("{not}; show another credential");
    Refusal::new(Reason::Unauthenticated, message).with("why", not)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use ringfence_raft::NodeConfig;
    use ringfence_testkit::ports::Port;
    use tokio::sync::watch;

    use super::*;
    use crate::metrics::Ports;

    /// Answers each request that comes so far.
    #[derive(Clone)]
    struct Passed;

    impl Service<Request<Body>> for Passed {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            ready(Ok(Response::new(Body::empty())))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_without_its_connection_reaches_no_service() {
        let dir = tempfile::tempdir().unwrap();
        let port = Port::any();
        let node = Node::start(NodeConfig {
            peer_listen: port.address(),
            peer_port_is_local: true,
            initial_cluster: vec![("n1".to_owned(), port.address().to_string())],
            ..NodeConfig::new("n1", dir.path())
        });
        let node = node.await.unwrap();
        let (_stop, stopping) = watch::channel(false);
        let pool = Ports::new().pool;
        let context = services::Context::new(node.clone(), pool, stopping);
        let access = Access::default();
        let reach = Reach::of([], &access, &node);
        let layer = IdentifyLayer::new(&access, &node, &context, reach).unwrap();
        for (kind, path) in [
            ("application/grpc", "/ringfence.v1.Leases/Get"),
            ("application/json", "/v1/leases"),
        ] {
            let request = Request::post(path).header(CONTENT_TYPE, kind);
            let request = request.body(Body::empty()).unwrap();
            let answer = layer.layer(Passed).call(request).await.unwrap();
            let (status, code) = (answer.status(), answer.headers().get("grpc-status"));
            let refused = status == StatusCode::INTERNAL_SERVER_ERROR || code.is_some();
            assert!(refused, "{path}: {status}");
        }
    }
}
