//! Who calls: what stands before all services, and proves the caller of each request.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use ringfence_access::{InvalidCredentials, NotProven, Proven, Prover, Tokens, now_unix};
use ringfence_core::{ClusterToken, Mode};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::Node;
use ringfence_services::{self as services, Identified, ProvenPod};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

use crate::client_connection::ConnectionInfo;
use crate::config::Access;

/// The cluster tokens as this node's state has them.
struct StateTokens(Node);

impl Tokens for StateTokens {
    fn token(&self, id: u64) -> Option<ClusterToken> {
        self.0.read(|state| state.access().token(id).cloned())
    }
}

/// Proves who makes each request, and puts it beside the request.
#[derive(Clone)]
pub(crate) struct IdentifyLayer {
    prover: Arc<Prover>,
    node: Node,
    context: services::Context,
    /// The alias of the issuer whose Pods this node watches.
    pods_of: Option<Arc<str>>,
}

impl IdentifyLayer {
    /// What proves as configured; what fails counts in the metrics of `context`.
    ///
    /// # Errors
    /// [`InvalidCredentials`] if the keys of an issuer cannot be read.
    pub(crate) fn new(
        access: &Access,
        node: &Node,
        context: &services::Context,
    ) -> Result<Self, InvalidCredentials> {
        let tokens = Arc::new(StateTokens(node.clone()));
        let prover = Prover::new(access.credentials.clone(), tokens, now_unix())?;
        Ok(Self {
            prover: Arc::new(prover),
            node: node.clone(),
            context: context.clone(),
            pods_of: access.pods_of.as_deref().map(Arc::from),
        })
    }

    pub(crate) fn prover(&self) -> Arc<Prover> {
        Arc::clone(&self.prover)
    }

    /// Who makes a request; `None` if it is not proven and need not be.
    ///
    /// In every mode a caller is proven that can be: a stream that begins while the mode is `off`
    /// outlives the mode, and must not be a stranger's then. But a credential that does not hold is
    /// a reason to refuse only where rights bind.
    fn identify(
        &self,
        info: &ConnectionInfo,
        request: &Request<Body>,
    ) -> Result<Option<Identified>, NotProven> {
        match self.prove(info, request) {
            Ok(proven) => Ok(Some(self.identified(proven))),
            Err(not) => {
                self.context.metrics().proof_failed();
                let mode = self.node.read(|state| state.access().mode());
                match mode {
                    Mode::Enforced => Err(not),
                    Mode::Permissive | Mode::Off => Ok(None),
                }
            }
        }
    }

    fn prove(&self, info: &ConnectionInfo, request: &Request<Body>) -> Result<Proven, NotProven> {
        let mut offered = request.headers().get_all(AUTHORIZATION).iter();
        let header = offered.next();
        if header.is_some() && offered.next().is_some() {
            return Err(NotProven::SEVERAL_HEADERS);
        }
        let header = header.map(|value| value.as_bytes());
        self.prover.prove(&info.peer, header, now_unix())
    }

    fn identified(&self, proven: Proven) -> Identified {
        // Pods of another Kubernetes may have the same names, and no node here sees their ends.
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
        if let Some(info) = request.extensions_mut().remove::<ConnectionInfo>() {
            match self.layer.identify(&info, &request) {
                Ok(Some(identified)) => drop(request.extensions_mut().insert(identified)),
                Ok(None) => {}
                Err(not) => {
                    let refused = Status::from(refusal(&not)).into_http();
                    return Either::Right(ready(Ok(refused)));
                }
            }
            request.extensions_mut().insert(info.client);
        }
        Either::Left(self.service.call(request))
    }
}

/// What was shown proves nothing; nothing was done.
fn refusal(not: &NotProven) -> Refusal {
    let message = format!("{not}; show another credential");
    Refusal::new(Reason::Unauthenticated, message).with("why", not)
}
