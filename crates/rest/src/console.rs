//! What the console of a node reads: leases, sessions, their history and the cluster, as JSON.
//!
//! The calls answer as those of the client port do, and are judged by the same rights. They are the
//! console's own: a version of the node and its page belong together, so that they may change with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use ringfence_proto::wire::LEASES_PAGE_MAX;
use ringfence_proto::{Refusal, v1};
use ringfence_raft::Silence;
use ringfence_services::{
    Client, ClusterService, Context, LeaseService, SILENCE_MAX, SessionService,
};
use serde_json::{Value, json};
use tonic::body::Body;
use v1::cluster_server::Cluster;
use v1::sessions_server::Sessions;

use crate::call::{Answer, Call, Refused, respond};
use crate::shown::{self, Members};
use crate::{Rest, heads, other_method, pages, urls};

/// How old a state the console shows at most: it looks again after this time.
const MAX_STALENESS_MS: u64 = 2_000;

/// The calls of the console.
#[derive(Clone)]
pub struct Console {
    rest: Rest,
    cluster: Arc<ClusterService>,
    context: Context,
}

impl Console {
    /// The path that all calls begin with.
    pub const PATH: &str = "/console/v1/";

    /// Calls of the services of this node.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let leases = Arc::new(LeaseService::new(context.clone()));
        let sessions = Arc::new(SessionService::new(context.clone()));
        let stray = Client::new(context.new_account());
        Self {
            rest: Rest::new(leases, sessions, stray),
            cluster: Arc::new(ClusterService::new(context.clone())),
            context: context.clone(),
        }
    }

    /// Answers a request that [`admit_console`](crate::admit_console) has admitted.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (head, _) = request.into_parts();
        if let Some(refused) = heads::strange(&head).or_else(|| pages::by_a_page(&head)) {
            return refused;
        }
        if let Err(refusal) = urls::without_secrets(&head.uri) {
            return respond(Err(refusal.into()));
        }
        if head.method != Method::GET {
            return other_method(&head.method, &Method::GET);
        }
        let path = head.uri.path().to_owned();
        let asked = path.strip_prefix(Self::PATH).unwrap_or_default();
        let (what, rest) = asked.split_once('/').unwrap_or((asked, ""));
        let call = Call::new(head, rest, None);
        let answered = match (what, rest.is_empty()) {
            ("cluster", true) => self.cluster(&call).await,
            ("leases", true) => self.leases(&call).await,
            ("leases", false) => self.rest.get(&call).await,
            ("history", false) => self.rest.history(&call).await,
            ("sessions", true) => self.sessions(&call).await,
            ("watch", true) => {
                let watched = self.rest.watch(&call).await;
                return watched.unwrap_or_else(|refused| respond(Err(refused)));
            }
            _ => {
                let what = format!("call {path:?} of the console; load its page again");
                Err(Refusal::not_found(what).into())
            }
        };
        respond(answered)
    }

    /// `cluster`: what this node says of itself, and the members as the leader knows them.
    async fn cluster(&self, call: &Call) -> Result<Answer, Refused> {
        call.query()?.end()?;
        // First, because it waits for a leader: what the node says of itself is of the moment of the answer.
        let members = self
            .cluster
            .list_members(call.ask(v1::ListMembersRequest {}));
        let members = members.await?.into_inner();
        let status = self.cluster.status(call.ask(v1::StatusRequest {}));
        let status = status.await?.into_inner();
        let silence = self.context.silence(SILENCE_MAX);
        let value = shown_status(&status)
            .with_some("silence", silence.map(shown_silence))
            .with("changing", members.changing)
            .with(
                "members",
                members.members.iter().map(shown_member).collect::<Value>(),
            );
        Ok(Answer::ok(value.value()))
    }

    /// `leases?prefix=P&after=NAME&limit=N`: a page of the present state.
    async fn leases(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let list = v1::ListRequest {
            prefix: query.text("prefix")?.unwrap_or_default(),
            page_size: query.limit(LEASES_PAGE_MAX)?,
            page_token: query.text("after")?.unwrap_or_default(),
            read: fresh_enough(),
        };
        query.end()?;
        let listed = self.rest.leases.list_present(call.ask(list)).await?;
        let (_, listed, extensions) = listed.into_parts();
        let leases: Value = listed.leases.iter().map(shown::lease).collect();
        let value = Members::default()
            .with("leases", leases)
            .with_text("next", &listed.next_page_token)
            .with("at", shown::read_point(listed.at.as_ref()));
        Ok(Answer {
            extensions,
            ..Answer::ok(value.value())
        })
    }

    /// `sessions?after=NUMBER&limit=N`
    async fn sessions(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let list = v1::ListSessionsRequest {
            page_size: query.limit(LEASES_PAGE_MAX)?,
            after: query.number("after")?.unwrap_or_default(),
            read: fresh_enough(),
        };
        query.end()?;
        let listed = Sessions::list(self.rest.sessions.as_ref(), call.ask(list)).await?;
        let (_, listed, extensions) = listed.into_parts();
        let next = listed.sessions.last().filter(|_| listed.more);
        let sessions: Value = listed.sessions.iter().map(shown_session).collect();
        let value = Members::default()
            .with("sessions", sessions)
            .with_number("next", next.map_or(0, |last| last.session))
            .with("at", shown::read_point(listed.at.as_ref()));
        Ok(Answer {
            extensions,
            ..Answer::ok(value.value())
        })
    }
}

fn fresh_enough() -> Option<v1::ReadOptions> {
    Some(v1::ReadOptions {
        max_staleness_ms: MAX_STALENESS_MS,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown_status(status: &v1::StatusResponse) -> Members {
    Members::default()
        .with_text("cluster", &hex(&status.cluster_id))
        .with("node", status.node_id)
        .with("name", status.name.as_str())
        .with("role", status.role.as_str())
        .with_number("leader", status.leader_id)
        .with("term", status.term)
        .with("last_log_index", status.last_log_index)
        .with("index", status.applied_index)
        .with("cluster_time_ms", status.cluster_time_ms)
        .with("sessions", status.sessions)
        .with("leases", status.leases)
        .with_number("last_token", status.last_token)
        .with("version", status.version.as_str())
        .with("level", status.level)
        .with("log_version", status.log_version)
        .with_number("quiet_ms", status.quiet_ms)
}

/// Without a number if the node has heard of no majority since it started.
fn shown_silence(silence: Silence) -> Value {
    let millis = silence.since.map(|since| json!(millis(since)));
    Members::default().with_some("ms", millis).value()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn shown_member(member: &v1::Member) -> Value {
    Members::default()
        .with("node", member.node_id)
        .with("name", member.name.as_str())
        .with("peer_address", member.peer_address.as_str())
        .with("client_address", member.client_address.as_str())
        .with("voter", member.voter)
        .with("leader", member.leader)
        .with_number("matched_index", member.matched_index)
        .with_some("condition", member.condition.as_ref().map(shown_condition))
        .value()
}

fn shown_condition(condition: &v1::MemberCondition) -> Value {
    Members::default()
        .with_text("version", &condition.version)
        .with("no_room", condition.no_room)
        .with_number("last_fsync_us", condition.last_fsync_us)
        .with("age_ms", condition.age_ms)
        .value()
}

fn shown_session(session: &v1::Session) -> Value {
    let members = Members::default()
        .with("session", session.session)
        .with("identity", session.identity.as_str())
        .with_number("waits", session.waits.into());
    // Bound to a Pod it has no TTL.
    let members = match &session.pod {
        None => members
            .with("ttl_ms", session.ttl_ms)
            .with("left_ms", session.remaining_ms),
        Some(pod) => members.with("pod", json!(format!("{}/{}", pod.namespace, pod.name))),
    };
    members.value()
}
