//! The receiving side of calls between nodes.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::Snapshot;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
};
use parking_lot::Mutex;
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;
use ringfence_proto::raft::peers_server::Peers;
use ringfence_proto::record::RECORD_VERSION;
use ringfence_tls::RarelyEach;
use ringfence_wal::Fs;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::allowed::Refusals;
use super::intake::Intake;
use super::join::answer_join;
use crate::bootstrap::forming;
use crate::network::Condition;
use crate::network::header::{self, Sender};
use crate::peers::receive;
use crate::platform::files::Through;
use crate::platform::runtime;
use crate::shared::inner::{Inner, Running};
use crate::store::identity::Identity;
use crate::store::snapshot_file::{INCOMING_MAX, SnapshotDir, SnapshotFile};
use crate::tasks::{history, superseded};
use crate::types::codec::{self, Malformed};
use crate::types::stop::StopReason;
use crate::types::type_config::{SnapshotMeta, StoredMembership, TypeConfig};

type AnswerStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers the calls of other nodes.
pub(crate) struct PeerService {
    inner: Arc<Inner>,
    /// What is logged of calls that were rejected or not understood.
    lines: Arc<Mutex<RarelyEach>>,
    refusals: Arc<Refusals>,
}

impl PeerService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            lines: Arc::default(),
            refusals: Arc::new(Refusals::new()),
        }
    }

    /// Lets a call pass that comes from a member of this cluster and is meant for this node.
    fn admit(&self, metadata: &MetadataMap) -> Result<Arc<Running>, Status> {
        Ok(self.admit_from(metadata)?.0)
    }

    /// The same, and who sent it.
    fn admit_from(&self, metadata: &MetadataMap) -> Result<(Arc<Running>, Sender), Status> {
        let running = self.inner.running.get().ok_or_else(|| {
            Status::unavailable("this node belongs to no cluster yet, or is still starting")
        })?;
        let sender = header::check(metadata, &running.caller).inspect_err(|refused| {
            self.tell_operator(refused.message());
        })?;
        let known = running.membership();
        if let Some(peer) = known.get_node(&sender.node_id)
            && peer.incarnation != sender.incarnation
        {
            return Err(Status::failed_precondition(format!(
                "node {} is known as incarnation {}, the call comes from {}: an emptied \
                 directory must join as a new node",
                sender.node_id, peer.incarnation, sender.incarnation
            )));
        }
        Ok((running.clone(), sender))
    }

    /// Only a person can help nodes that take each other for another node.
    fn tell_operator(&self, why: &str) {
        if let Some(unsaid) = self.lines.lock().say(why) {
            tracing::warn!(
                why,
                unsaid,
                "a node that calls here is refused; does this one have the right data directory?"
            );
        }
    }
}

#[tonic::async_trait]
impl Peers for PeerService {
    async fn hello(
        &self,
        request: Request<pb::HelloRequest>,
    ) -> Result<Response<pb::HelloResponse>, Status> {
        let request = request.into_inner();
        superseded::asked_by(&self.inner, &request);
        Ok(Response::new(forming::answer_hello(&self.inner, &request)))
    }

    async fn adopt(
        &self,
        request: Request<pb::AdoptRequest>,
    ) -> Result<Response<pb::AdoptResponse>, Status> {
        Ok(Response::new(
            forming::answer_adopt(&self.inner, request.into_inner()).await,
        ))
    }

    async fn join(
        &self,
        request: Request<pb::JoinRequest>,
    ) -> Result<Response<pb::JoinResponse>, Status> {
        Ok(Response::new(
            answer_join(&self.inner, request.into_inner()).await,
        ))
    }

    type AppendStream = AnswerStream<pb::AppendResponse>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let running = self.admit(request.metadata())?;
        let inner = self.inner.clone();
        let config = &inner.config;
        let (unflushed_max, segment_bytes) = (config.log_unflushed_max, config.wal_segment_bytes);
        let (intake, answered) = Intake::new(running.log.clone(), unflushed_max, segment_bytes);
        let entry_limit = running.log.entry_limit();
        let checked = running.clone();
        let lines = self.lines.clone();
        let requests = request.into_inner().then(move |message| {
            // On arrival: whether this disk takes the entries says nothing about the leader.
            inner.heard_leader();
            let (intake, inner, running) = (intake.clone(), inner.clone(), checked.clone());
            async move {
                let message = message?;
                // Before anything of the message is appended, since that would hide the loss.
                notice_forgotten(&inner, &running, &message).await;
                intake.take(message).await
            }
        });
        let requests = Box::pin(requests).scan((), move |(), message| {
            // A request that cannot be read ends the stream; the leader opens another one.
            let decoded = message.ok().and_then(|message| {
                match within_limit(message, entry_limit).and_then(append_from_pb) {
                    Ok(request) => Some(request),
                    Err(error) => {
                        let error = error.to_string();
                        if let Some(unsaid) = lines.lock().say(&error) {
                            tracing::warn!(error, unsaid, "an append was not understood");
                        }
                        None
                    }
                }
            });
            std::future::ready(decoded)
        });
        let answers = running.raft.stream_append(requests).map(move |answer| {
            let _held = &answered;
            match answer {
                Ok(result) => Ok(stream_result_to_pb(result)),
                Err(fatal) => Err(Status::unavailable(fatal.to_string())),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn heartbeat(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let running = self.admit(request.metadata())?;
        let append = append_from_pb(request.into_inner()).map_err(invalid)?;
        let answer = running
            .raft
            .append_entries(append)
            .await
            .map_err(unavailable)?;
        if answer.is_success() {
            self.inner.heard_leader();
        }
        let mut answer = Response::new(append_to_pb(answer));
        let authenticated = self.inner.config.peer_authenticated();
        let condition = Condition::of(&running.log, authenticated);
        condition.announce(answer.metadata_mut());
        Ok(answer)
    }

    async fn vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        let running = self.admit(request.metadata())?;
        let message = request.into_inner();
        let vote = codec::vote_from_pb(message.vote).map_err(invalid)?;
        let mut ask = VoteRequest::new(vote, message.last.map(codec::log_id_from_pb));
        ask.leadership_transfer = message.leadership_transfer;
        let answer = if message.pre_vote {
            running.raft.pre_vote(ask).await
        } else {
            running.raft.vote(ask).await
        };
        let answer = answer.map_err(unavailable)?;
        Ok(Response::new(pb::VoteResponse {
            vote: Some(codec::vote_to_pb(answer.vote)),
            granted: answer.vote_granted,
            last: answer.last_log_id.map(codec::log_id_to_pb),
        }))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotPart>>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        let running = self.admit(request.metadata())?;
        let mut parts = request.into_inner();
        let first = parts.message().await?;
        let offer = first
            .and_then(|part| part.offer)
            .ok_or_else(|| Status::invalid_argument("a snapshot begins with its offer"))?;
        let vote = codec::vote_from_pb(offer.vote).map_err(invalid)?;
        let membership =
            codec::membership_from_pb(offer.membership.unwrap_or_default()).map_err(invalid)?;
        let at = offer.membership_at.map(codec::log_id_from_pb);
        let meta = SnapshotMeta {
            last_log_id: offer.last.map(codec::log_id_from_pb),
            last_membership: StoredMembership::new(at, membership),
        };
        let dir = self.inner.state.snapshots().map_err(unavailable)?;
        let incoming = dir.incoming().ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{INCOMING_MAX} snapshots are being received here; retry later"
            ))
        })?;
        receive_file(dir.files(), &mut parts, incoming.path()).await?;
        verify(dir.clone(), incoming.path(), &meta, &self.lines).await?;
        // From here on the file is openraft's: a caller that goes away must not take it from under
        // the installation, which would count as a failure of this node's disk.
        let install = runtime::spawn(async move {
            let path = incoming.path().to_owned();
            let snapshot = SnapshotFile { path };
            let snapshot = Snapshot { meta, snapshot };
            let installed = running.raft.install_full_snapshot(vote, snapshot).await;
            drop(incoming);
            installed
        });
        let installed = install.await.map_err(unavailable)?;
        let installed = installed.map_err(|fatal| Status::unavailable(fatal.to_string()))?;
        Ok(Response::new(pb::SnapshotResponse {
            vote: Some(codec::vote_to_pb(installed.vote)),
        }))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let running = self.admit(request.metadata())?;
        let message = request.into_inner();
        let from = codec::vote_from_pb(message.from).map_err(invalid)?;
        let last = message.last.map(codec::log_id_from_pb);
        let request = TransferLeaderRequest::new(from, message.to, last);
        let answer = running.raft.handle_transfer_leader(request).await;
        let answer = answer.map_err(|fatal| Status::unavailable(fatal.to_string()))?;
        Ok(Response::new(transfer_to_pb(answer)))
    }

    type ForwardStream = AnswerStream<pb::Answers>;

    async fn forward(
        &self,
        request: Request<Streaming<pb::Calls>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        // Whether this node leads is checked per call: it may change while the stream is open.
        let (_, sender) = self.admit_from(request.metadata())?;
        let newer = header::announced(request.metadata()) > RECORD_VERSION;
        Ok(Response::new(receive::serve_calls(
            self.inner.clone(),
            request.into_inner(),
            sender.node_id,
            newer,
            self.refusals.clone(),
        )))
    }

    type FetchHistoryStream = AnswerStream<pb::HistoryPart>;

    async fn fetch_history(
        &self,
        request: Request<pb::FetchHistoryRequest>,
    ) -> Result<Response<Self::FetchHistoryStream>, Status> {
        drop(self.admit(request.metadata())?);
        let request = request.into_inner();
        Ok(Response::new(history::serve(
            &self.inner.history,
            request.first,
            request.last,
        )))
    }
}

async fn receive_file(
    files: &Arc<dyn Fs>,
    parts: &mut Streaming<pb::SnapshotPart>,
    path: &std::path::Path,
) -> Result<(), Status> {
    let failed = |error: std::io::Error| {
        Status::resource_exhausted(format!("keeping the snapshot failed: {error}"))
    };
    let mut file = Through::write(files.as_ref(), path).map_err(failed)?;
    while let Some(part) = parts.message().await? {
        let written = runtime::blocking(move || file.write_all(&part.data).map(|()| file));
        file = written.await.map_err(unavailable)?.map_err(failed)?;
    }
    let synced = runtime::blocking(move || file.sync());
    synced.await.map_err(unavailable)?.map_err(failed)
}

/// A damaged snapshot is the sender's trouble; installing it would be taken for this node's own.
async fn verify(
    dir: SnapshotDir,
    path: &std::path::Path,
    meta: &SnapshotMeta,
    lines: &Mutex<RarelyEach>,
) -> Result<(), Status> {
    let (path, last) = (path.to_owned(), meta.last_log_id);
    let verified = crate::platform::runtime::blocking(move || dir.verify(&path, last)).await;
    match verified.map_err(unavailable)? {
        Ok(()) => Ok(()),
        Err(error) => {
            let error = error.to_string();
            if let Some(unsaid) = lines.lock().say(&error) {
                tracing::warn!(error, unsaid, "a snapshot from a peer cannot be used");
            }
            Err(Status::data_loss(error))
        }
    }
}

/// An entry that this node's log cannot hold is the sender's mistake; appending it would be taken
/// for a failure of this node's disk.
fn within_limit(message: pb::AppendRequest, limit: u64) -> Result<pb::AppendRequest, Malformed> {
    let longest = message
        .entries
        .iter()
        .map(|entry| entry.payload.len())
        .max();
    match longest.unwrap_or(0) as u64 {
        bytes if bytes > limit => {
            let why = format!("it has {bytes} bytes, the log here takes {limit}");
            Err(Malformed::new("entry", why))
        }
        _ => Ok(message),
    }
}

/// Stops this node if its leader says that it had acknowledged an entry in this very term, and its
/// log ends before that: within a term a log only grows, so the disk has lost it.
async fn notice_forgotten(inner: &Arc<Inner>, running: &Running, message: &pb::AppendRequest) {
    let (Some(forgotten), Some(vote)) = (message.forgotten, message.vote) else {
        return;
    };
    let forgotten = codec::log_id_from_pb(forgotten);
    let present = running.raft.server_metrics().borrow_watched().vote;
    let last = running.log.last_log_id();
    if present.leader_id.term != vote.term || last >= Some(forgotten) {
        return;
    }
    if planted(Bug::ForgetfulVotesOn) {
        return;
    }
    let (term, acknowledged) = (forgotten.leader_id.term, forgotten.index);
    let identity = Identity {
        forgot: Some((term, acknowledged)),
        ..inner.identity.lock().clone()
    };
    *inner.identity.lock() = identity.clone();
    let saving = inner.clone();
    let saved = runtime::blocking(move || identity.save(saving.files(), &saving.config.data_dir));
    // Without the mark it would be found out once more after its next start.
    if let Ok(Err(error)) = saved.await {
        tracing::error!(%error, "that this node forgot its log could not be written down");
    }
    inner.stop.stop(StopReason::LogReverted {
        term,
        acknowledged,
        last: last.map_or(0, |last| last.index),
    });
}

fn invalid(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

fn unavailable<E: std::fmt::Display>(error: E) -> Status {
    Status::unavailable(error.to_string())
}

fn append_from_pb(
    request: pb::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let entries = request.entries.into_iter().map(codec::entry_from_pb);
    Ok(AppendEntriesRequest {
        vote: codec::vote_from_pb(request.vote)?,
        prev_log_id: request.previous.map(codec::log_id_from_pb),
        entries: entries.collect::<Result<_, _>>()?,
        leader_commit: request.committed.map(codec::log_id_from_pb),
    })
}

fn append_to_pb(answer: AppendEntriesResponse<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::Kind;
    let (kind, log_id, vote) = match answer {
        AppendEntriesResponse::Success => (Kind::Success, None, None),
        AppendEntriesResponse::PartialSuccess(log_id) => (Kind::Partial, log_id, None),
        AppendEntriesResponse::Conflict => (Kind::Conflict, None, None),
        AppendEntriesResponse::HigherVote(vote) => (Kind::HigherVote, None, Some(vote)),
    };
    pb::AppendResponse {
        kind: kind.into(),
        log_id: log_id.map(codec::log_id_to_pb),
        vote: vote.map(codec::vote_to_pb),
    }
}

fn stream_result_to_pb(result: StreamAppendResult<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::Kind;
    let (kind, log_id, vote) = match result {
        Ok(log_id) => (Kind::Success, log_id, None),
        Err(StreamAppendError::Conflict(log_id)) => (Kind::Conflict, Some(log_id), None),
        Err(StreamAppendError::HigherVote(vote)) => (Kind::HigherVote, None, Some(vote)),
    };
    pb::AppendResponse {
        kind: kind.into(),
        log_id: log_id.map(codec::log_id_to_pb),
        vote: vote.map(codec::vote_to_pb),
    }
}

fn transfer_to_pb(answer: TransferLeaderResponse<TypeConfig>) -> pb::TransferLeaderResponse {
    use pb::transfer_leader_response::Refused;
    let mut message = pb::TransferLeaderResponse::default();
    match answer {
        Ok(()) => {}
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            message.set_refused(Refused::VoteChanged);
            message.expected_vote = Some(codec::vote_to_pb(expected));
            message.actual_vote = Some(codec::vote_to_pb(actual));
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            message.set_refused(Refused::NotFlushed);
            message.expected_log = expected.map(codec::log_id_to_pb);
            message.actual_log = actual.map(codec::log_id_to_pb);
        }
    }
    message
}
