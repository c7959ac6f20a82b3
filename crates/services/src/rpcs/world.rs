//! A node that enforces rights, its callers, and calls over the services' own codec.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use ringfence_core::{
    AccessChange, Called, Caller, ChangeAccess, Command, Mode, NamePattern, Outcome, Principal,
    PrincipalPattern, Rule, Verb,
};
use ringfence_proto::v1::Reason;
use ringfence_proto::v1::access_server::AccessServer;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::cluster_server::ClusterServer;
use ringfence_proto::v1::connection_server::ConnectionServer;
use ringfence_proto::v1::leases_server::LeasesServer;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::sessions_server::SessionsServer;
use ringfence_proto::{Refusal, v1};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt;

use crate::alone::{Alone, alone, within};
use crate::caller::Identified;
use crate::{
    AccessService, ClusterService, ConnectionService, LeaseService, SessionService,
    connection::serve,
};

/// Log commands of rights.
const LEVEL_OF_RIGHTS: u32 = 4;

pub(super) struct World {
    pub(super) alone: Alone,
    routes: Routes,
    numbers: AtomicU64,
}

/// What a caller receives.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) refusal: Option<Refusal>,
    /// The first message.
    pub(super) data: Bytes,
}

impl Told {
    pub(super) fn reason(&self) -> Option<Reason> {
        self.refusal.as_ref().map(|refusal| refusal.reason)
    }

    pub(super) fn is_denied(&self) -> bool {
        self.reason() == Some(Reason::PermissionDenied)
    }

    pub(super) fn message<M: Message + Default>(&self) -> M {
        assert!(self.refusal.is_none(), "{self:?}");
        M::decode(self.data.clone()).unwrap()
    }
}

/// A caller with this certificate.
pub(super) fn who(name: &str) -> Identified {
    Identified {
        principal: Principal::parse(&format!("cert:cn:{name}")).unwrap(),
        token: None,
        pod: None,
        process: None,
        expires_unix: None,
    }
}

/// Allows it.
pub(super) fn rule(name: &str, verb: Verb, names: &str) -> Rule {
    Rule {
        principals: PrincipalPattern::Exact(who(name).principal),
        verb,
        names: verb
            .takes_names()
            .then(|| NamePattern::parse(names).unwrap()),
    }
}

impl World {
    /// A cluster of one node that enforces rights; no principal has any.
    pub(super) async fn new() -> Self {
        let alone = alone().await;
        let level = async {
            while alone.node.read(|machine| machine.level()) < LEVEL_OF_RIGHTS {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        within("level with rights", level).await;
        let context = &alone.context;
        let mut routes = Routes::builder();
        routes
            .add_service(LeasesServer::new(LeaseService::new(context.clone())))
            .add_service(SessionsServer::new(SessionService::new(context.clone())))
            .add_service(ClusterServer::new(ClusterService::new(context.clone())))
            .add_service(AccessServer::new(AccessService::new(context.clone())))
            .add_service(ConnectionServer::new(ConnectionService::new(
                context.clone(),
            )));
        let world = Self {
            alone,
            routes: routes.routes(),
            numbers: AtomicU64::new(0),
        };
        world
            .change(vec![AccessChange::SetMode(Mode::Enforced)])
            .await;
        world
    }

    /// The principal `local` changes rights.
    pub(super) async fn change(&self, changes: Vec<AccessChange>) -> Option<u64> {
        let (cluster, based_on) = self.alone.node.read(|machine| {
            let set_at = machine.access().set_at();
            (machine.cluster().unwrap(), set_at)
        });
        let caller = Caller {
            principal: Principal::local(),
            token: None,
            node: 1,
        };
        let command = Command::ChangeAccess(ChangeAccess {
            cluster,
            based_on,
            changes,
        });
        let called = Command::Called(Box::new(Called { caller, command }));
        match self.alone.node.propose(called).await.unwrap().outcome {
            Outcome::AccessChanged { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn allow(&self, rule: &Rule) {
        self.change(vec![AccessChange::AddRule(rule.clone())]).await;
    }

    pub(super) async fn remove(&self, rule: &Rule) {
        self.change(vec![AccessChange::RemoveRule(rule.clone())])
            .await;
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A new session of this caller, who needs no right but for this moment.
    pub(super) async fn open(&self, who: &Identified) -> v1::SessionHandle {
        let id = self.number().to_be_bytes().repeat(2);
        let open = v1::OpenRequest {
            id: id.clone().into(),
            secret: id.clone().into(),
            identity: "holder".to_owned(),
            ..v1::OpenRequest::default()
        };
        let to_open = Rule {
            principals: PrincipalPattern::Exact(who.principal.clone()),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse("to-open").unwrap()),
        };
        self.allow(&to_open).await;
        let told = self.call("Sessions/Open", &open.encode_to_vec(), who).await;
        self.remove(&to_open).await;
        v1::SessionHandle {
            session: told.message::<v1::OpenResponse>().session,
            secret: id.into(),
        }
    }

    pub(super) fn acquire(&self, session: &v1::SessionHandle, name: &str) -> v1::AcquireRequest {
        let number = self.number();
        v1::AcquireRequest {
            session: Some(session.clone()),
            number,
            lowest: number,
            name: name.to_owned(),
            ..v1::AcquireRequest::default()
        }
    }

    /// Takes a lease; its token.
    pub(super) async fn take(
        &self,
        who: &Identified,
        session: &v1::SessionHandle,
        name: &str,
    ) -> u64 {
        let acquire = self.acquire(session, name).encode_to_vec();
        let told = self.call("Leases/Acquire", &acquire, who).await;
        told.message::<v1::AcquireResponse>().grant.unwrap().token
    }

    /// Calls a method, and returns what comes first.
    pub(super) async fn call(&self, rpc: &str, message: &[u8], who: &Identified) -> Told {
        let (told, _) = self.begin(rpc, message, who).await;
        told
    }

    /// The same; also what comes behind it.
    pub(super) async fn begin(
        &self,
        rpc: &str,
        message: &[u8],
        who: &Identified,
    ) -> (Told, Coming) {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        let first = stream::iter([Ok::<_, Status>(Frame::data(Bytes::from(framed)))]);
        let body = match rpc {
            "Sessions/KeepAlive" | "Connection/Stream" => {
                Body::new(StreamBody::new(first.chain(stream::pending())))
            }
            _ => Body::new(StreamBody::new(first)),
        };
        let request = http::Request::post(format!("http://node/ringfence.v1.{rpc}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .extension(who.clone())
            .body(body)
            .unwrap();
        let response = within(rpc, self.routes.clone().oneshot(request)).await;
        let (head, body) = response.unwrap().into_parts();
        let mut coming = Coming { body };
        let told = match Status::from_header_map(&head.headers) {
            Some(status) => told(&status),
            None => coming.next().await,
        };
        (told, coming)
    }

    /// Asks the same with a frame of a multiplexed stream, if there is one for it.
    pub(super) async fn frame(&self, rpc: &str, message: &[u8], who: &Identified) -> Option<Told> {
        let message = Bytes::copy_from_slice(message);
        let ask = match rpc {
            "Sessions/Open" => Ask::Open(Message::decode(message).unwrap()),
            "Sessions/Close" => Ask::Close(Message::decode(message).unwrap()),
            "Leases/Acquire" => Ask::Acquire(Message::decode(message).unwrap()),
            "Leases/Cancel" => Ask::Cancel(Message::decode(message).unwrap()),
            "Leases/Release" => Ask::Release(Message::decode(message).unwrap()),
            "Leases/Transfer" => Ask::Transfer(Message::decode(message).unwrap()),
            "Leases/Get" => Ask::Get(Message::decode(message).unwrap()),
            "Leases/Check" => Ask::Check(Message::decode(message).unwrap()),
            _ => return None,
        };
        let frame = v1::ClientFrame {
            id: 1,
            body: Some(ask),
            ..Default::default()
        };
        let frames = vec![frame];
        let incoming = stream::iter([Ok(v1::ClientMessage { frames })]).chain(stream::pending());
        let context = &self.alone.context;
        let account = context.new_account();
        let outgoing = serve(context, account, Some(who.clone()), incoming.boxed(), None);
        let mut outgoing = match outgoing {
            Ok(outgoing) => outgoing,
            Err(refusal) => return Some(refused(refusal)),
        };
        loop {
            let message = match within(rpc, outgoing.next()).await.expect("an open stream") {
                Ok(message) => message,
                Err(status) => return Some(told(&status)),
            };
            for frame in message.frames {
                match frame.body.expect("a body") {
                    Reply::Greeting(_) => {}
                    Reply::Refusal(refusal) => {
                        return Some(refused(Refusal::from_wire(refusal).expect("a reason")));
                    }
                    _ => {
                        return Some(Told {
                            refusal: None,
                            data: Bytes::new(),
                        });
                    }
                }
            }
        }
    }
}

/// What a stream tells further.
pub(super) struct Coming {
    body: Body,
}

impl Coming {
    /// The next message, or how it ends.
    pub(super) async fn next(&mut self) -> Told {
        let mut gathered = Vec::new();
        loop {
            let frame = within("frame", self.body.frame()).await;
            let frame = frame.expect("an end with a status").unwrap();
            let frame = match frame.into_trailers() {
                Ok(trailers) => {
                    return told(&Status::from_header_map(&trailers).expect("a status"));
                }
                Err(frame) => frame,
            };
            gathered.extend(frame.into_data().expect("data"));
            let Some((head, message)) = gathered.split_at_checked(5) else {
                continue;
            };
            let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
            if let Some(message) = message.get(..length) {
                return Told {
                    refusal: None,
                    data: Bytes::copy_from_slice(message),
                };
            }
        }
    }
}

fn refused(refusal: Refusal) -> Told {
    Told {
        refusal: Some(refusal),
        data: Bytes::new(),
    }
}

fn told(status: &Status) -> Told {
    if status.code() == Code::Ok {
        return Told {
            refusal: None,
            data: Bytes::new(),
        };
    }
    let refusal = Refusal::from_status(status);
    refused(refusal.unwrap_or_else(|| panic!("no reason of ours: {status:?}")))
}
