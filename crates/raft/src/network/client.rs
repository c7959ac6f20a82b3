//! The sending side: three connections to each peer, so that neither a full log stream nor a
//! snapshot delays a heartbeat.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
    StreamAppendResult, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::{RaftNetworkV2, Snapshot};
use ringfence_proto::raft as pb;
use ringfence_proto::raft::peers_client::PeersClient;
use ringfence_tls::Connector;
use ringfence_wal::Fs;
use tonic::{Code, Status, Streaming};

use super::MESSAGE_BYTES_MAX;
use super::coalesce::coalesce_commit_updates;
use super::condition::{Condition, Heard};
use super::header::{Caller, Header};
use super::in_flight::InFlightTracker;
use super::reversion::Watermark;
use super::wire::Wire;
use crate::platform::clock;
use crate::platform::files::Through;
use crate::platform::place;
use crate::platform::runtime;
use crate::store::snapshot_file::SnapshotFile;
use crate::types::codec::{self, Malformed};
use crate::types::type_config::{Peer, TypeConfig, Vote};

/// Bytes of a snapshot in one message.
const SNAPSHOT_PART_BYTES: usize = 1 << 20;
/// The same at a simulated place, where states are small: what is sent as a whole cannot break off.
const SIMULATED_PART_BYTES: usize = 512;

/// The connections to one peer.
pub(crate) struct Link {
    header: Header,
    /// The log, and calls for the leader.
    log: PeersClient<Wire>,
    /// Heartbeats, votes, hand-overs: small messages with a time limit.
    control: PeersClient<Wire>,
    /// Snapshots and history: large transfers that nothing waits behind.
    bulk: PeersClient<Wire>,
    /// See [`Link::condition`].
    heard: Heard,
    /// Where this node keeps its files.
    files: Arc<dyn Fs>,
    /// What the peer has acknowledged to this node as its leader.
    watermark: Watermark,
}

/// A client of the peer port at `address`, host:port. It connects when it is first used, and
/// again whenever it has to. `None` if that is no address.
pub(crate) fn connect(address: &str, tls: Option<&Connector>) -> Option<PeersClient<Wire>> {
    let client = PeersClient::new(Wire::to(address, tls)?);
    Some(
        client
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX),
    )
}

impl Link {
    pub(super) fn new(
        caller: &Caller,
        files: Arc<dyn Fs>,
        tls: Option<&Connector>,
        node_id: u64,
        peer: &Peer,
        watermark: Watermark,
    ) -> Self {
        // An address that is none behaves like a peer that is never there.
        let open = || {
            connect(&peer.peer_address, tls)
                .or_else(|| connect("0.0.0.0:0", tls))
                .expect("a fixed, valid address")
        };
        Self {
            header: Header::new(caller, node_id, peer),
            log: open(),
            control: open(),
            bulk: open(),
            heard: Heard::default(),
            files,
            watermark,
        }
    }

    /// What the peer has announced of itself, with 0 as its version of log commands if it was not
    /// heard yet.
    pub(crate) fn condition(&self) -> Condition {
        self.condition_and_age()
            .map_or_else(Condition::default, |(condition, _)| condition)
    }

    /// The same once it was heard, and how long ago the message was sent that it answered with this.
    pub(crate) fn condition_and_age(&self) -> Option<(Condition, Duration)> {
        self.heard.newest(clock::since_boot())
    }

    /// Opens the stream of calls for a leader.
    pub(crate) async fn forward(
        &self,
        calls: impl Stream<Item = pb::Calls> + Send + 'static,
    ) -> Result<Streaming<pb::Answers>, Status> {
        Ok(self
            .log
            .clone()
            .forward(self.header.stamp(calls))
            .await?
            .into_inner())
    }

    /// Asks for the history of a range of log indices.
    pub(crate) async fn fetch_history(
        &self,
        request: pb::FetchHistoryRequest,
    ) -> Result<Streaming<pb::HistoryPart>, Status> {
        Ok(self
            .bulk
            .clone()
            .fetch_history(self.header.stamp(request))
            .await?
            .into_inner())
    }

    /// Asks who the peer is and what it knows of this node.
    pub(crate) async fn hello(
        &self,
        request: pb::HelloRequest,
    ) -> Result<pb::HelloResponse, Status> {
        Ok(self.control.clone().hello(request).await?.into_inner())
    }
}

/// openraft's client of one peer.
pub(crate) struct PeerClient {
    target: u64,
    link: Arc<Link>,
    heartbeat: bool,
}

impl PeerClient {
    pub(super) fn new(target: u64, link: Arc<Link>, heartbeat: bool) -> Self {
        Self {
            target,
            link,
            heartbeat,
        }
    }

    /// One exchange on the control connection.
    async fn within<T>(
        &self,
        limit: Duration,
        exchange: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RPCError<TypeConfig>> {
        let sent = clock::since_boot();
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(response)) => {
                // Only some answers announce anything.
                if let Some(announced) = Condition::announced(response.metadata()) {
                    self.link.heard.note(announced, sent);
                }
                Ok(response.into_inner())
            }
            Ok(Err(status)) => Err(rpc_error(&status)),
            Err(_) => {
                let why = format!("node {} did not answer within {limit:?}", self.target);
                Err(NetworkError::from_string(why).into())
            }
        }
    }

    async fn ask_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        pre_vote: bool,
        option: &RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = pb::VoteRequest {
            vote: Some(codec::vote_to_pb(request.vote)),
            last: request.last_log_id.map(codec::log_id_to_pb),
            leadership_transfer: request.leadership_transfer,
            pre_vote,
        };
        let mut client = self.link.control.clone();
        let exchange = client.vote(self.link.header.stamp(message));
        let answer = self.within(option.hard_ttl(), exchange).await?;
        let vote = codec::vote_from_pb(answer.vote).map_err(|error| malformed(&error))?;
        let last = answer.last.map(codec::log_id_from_pb);
        Ok(VoteResponse::new(vote, last, answer.granted))
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let (term, previous) = (rpc.vote.leader_id.term, rpc.prev_log_id);
        let message = append_to_pb(rpc);
        let mut client = self.link.control.clone();
        let exchange = client.heartbeat(self.link.header.stamp(message));
        let answer = self.within(option.hard_ttl(), exchange).await?;
        let answer = append_from_pb(answer).map_err(|error| malformed(&error))?;
        if let (AppendEntriesResponse::Conflict, Some(lacks)) = (&answer, previous) {
            // A heartbeat names the last entry that the peer is known to have. When openraft hears
            // of this it sends again what lies before, and no stream would meet the conflict.
            self.link.watermark.conflicted(term, self.target, lacks);
        }
        Ok(answer)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<
            BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>,
            RPCError<TypeConfig>,
        >,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        if self.heartbeat {
            return stream_append_sequential(self, input, option);
        }
        // The option's limit is that of one round trip: the stream lives as long as it is alive.
        Box::pin(async move {
            let input = coalesce_commit_updates(input, |append| append.entries.is_empty());
            let (in_flight, input) = InFlightTracker::keep(input);
            // All requests of a stream are of one term.
            let term = Arc::new(AtomicU64::new(0));
            let (sending, link) = (term.clone(), self.link.clone());
            let input = input.map(move |append| {
                let term = append.vote.leader_id.term;
                sending.store(term, Ordering::Relaxed);
                pb::AppendRequest {
                    forgotten: link.watermark.sending(term).map(codec::log_id_to_pb),
                    ..append_to_pb(append)
                }
            });
            let requests = self.link.header.stamp(input);
            let opened = self.link.log.clone().append(requests).await;
            let answers = opened.map_err(|status| rpc_error(&status))?.into_inner();
            let (link, target) = (self.link.clone(), self.target);
            let results = in_flight.settle(answers).map(move |answer| {
                let answer = answer.map_err(|status| rpc_error(&status))?;
                let result = stream_result(answer).map_err(|error| malformed(&error))?;
                let term = term.load(Ordering::Relaxed);
                match &result {
                    Ok(log_id) => link.watermark.acknowledged(term, *log_id),
                    Err(StreamAppendError::Conflict(log_id)) => {
                        link.watermark.conflicted(term, target, *log_id);
                    }
                    Err(StreamAppendError::HigherVote(_)) => {}
                }
                Ok(result)
            });
            Ok(Box::pin(results) as BoxStream<'s, _>)
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(rpc, false, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(rpc, true, &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let Snapshot {
            meta,
            snapshot: SnapshotFile { path },
        } = snapshot;
        let files = self.link.files.clone();
        let file = Through::read(files.as_ref(), &path);
        let file = file.map_err(|error| NetworkError::new(&error))?;
        let offer = pb::SnapshotOffer {
            vote: Some(codec::vote_to_pb(vote)),
            last: meta.last_log_id.map(codec::log_id_to_pb),
            membership_at: meta.last_membership.log_id().map(codec::log_id_to_pb),
            membership: Some(codec::membership_to_pb(meta.last_membership.membership())),
        };
        let first = pb::SnapshotPart {
            offer: Some(offer),
            data: Bytes::new(),
        };
        let parts = futures_util::stream::once(async move { first }).chain(file_parts(file));
        let mut client = self.link.bulk.clone();
        let exchange = client.snapshot(self.link.header.stamp(parts));
        let answer = tokio::select! {
            answer = exchange => answer.map_err(|status| streaming_error(&status))?.into_inner(),
            closed = cancel => return Err(closed.into()),
        };
        let vote = codec::vote_from_pb(answer.vote).map_err(|error| NetworkError::new(&error))?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let message = pb::TransferLeaderRequest {
            from: Some(codec::vote_to_pb(*req.from_leader())),
            to: *req.to_node_id(),
            last: req.last_log_id().copied().map(codec::log_id_to_pb),
        };
        let mut client = self.link.control.clone();
        let exchange = client.transfer_leader(self.link.header.stamp(message));
        let answer = self.within(option.hard_ttl(), exchange).await?;
        transfer_from_pb(answer).map_err(|error| malformed(&error))
    }
}

/// The file's bytes in messages; it ends early at a read error, which the receiver notices.
fn file_parts(file: Through) -> impl Stream<Item = pb::SnapshotPart> + Send {
    futures_util::stream::unfold(file, |mut file| async move {
        let bytes = match place::ask(|place| place.disk_time()) {
            None => SNAPSHOT_PART_BYTES,
            Some(takes) => {
                tokio::time::sleep(takes).await;
                SIMULATED_PART_BYTES
            }
        };
        let read = runtime::blocking(move || {
            let mut data = Vec::with_capacity(bytes);
            let read = (&mut file).take(bytes as u64).read_to_end(&mut data);
            read.map(|_| (data, file))
        });
        match read.await.map_err(std::io::Error::other).flatten() {
            Ok((data, _)) if data.is_empty() => None,
            Ok((data, file)) => {
                let data = data.into();
                Some((pb::SnapshotPart { offer: None, data }, file))
            }
            Err(error) => {
                tracing::error!(%error, "reading the snapshot to send failed");
                None
            }
        }
    })
}

fn append_to_pb(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(codec::vote_to_pb(request.vote)),
        previous: request.prev_log_id.map(codec::log_id_to_pb),
        entries: request.entries.iter().map(codec::entry_to_pb).collect(),
        committed: request.leader_commit.map(codec::log_id_to_pb),
        forgotten: None,
    }
}

fn append_from_pb(
    answer: pb::AppendResponse,
) -> Result<AppendEntriesResponse<TypeConfig>, Malformed> {
    use pb::append_response::Kind;
    Ok(match answer.kind() {
        Kind::Success => AppendEntriesResponse::Success,
        Kind::Partial => {
            AppendEntriesResponse::PartialSuccess(answer.log_id.map(codec::log_id_from_pb))
        }
        Kind::Conflict => AppendEntriesResponse::Conflict,
        Kind::HigherVote => AppendEntriesResponse::HigherVote(codec::vote_from_pb(answer.vote)?),
        Kind::Unspecified => return Err(Malformed::new("append answer", "its kind is unknown")),
    })
}

fn stream_result(answer: pb::AppendResponse) -> Result<StreamAppendResult<TypeConfig>, Malformed> {
    use pb::append_response::Kind;
    let log_id = answer.log_id.map(codec::log_id_from_pb);
    Ok(match answer.kind() {
        Kind::Success | Kind::Partial => Ok(log_id),
        Kind::Conflict => Err(StreamAppendError::Conflict(log_id.ok_or_else(|| {
            Malformed::new("append answer", "a conflict without a log id")
        })?)),
        Kind::HigherVote => Err(StreamAppendError::HigherVote(codec::vote_from_pb(
            answer.vote,
        )?)),
        Kind::Unspecified => return Err(Malformed::new("append answer", "its kind is unknown")),
    })
}

fn transfer_from_pb(
    answer: pb::TransferLeaderResponse,
) -> Result<TransferLeaderResponse<TypeConfig>, Malformed> {
    use pb::transfer_leader_response::Refused;
    Ok(match answer.refused() {
        Refused::Unspecified => Ok(()),
        Refused::VoteChanged => Err(TransferLeaderError::VoteChanged {
            expected: codec::vote_from_pb(answer.expected_vote)?,
            actual: codec::vote_from_pb(answer.actual_vote)?,
        }),
        Refused::NotFlushed => Err(TransferLeaderError::LogNotFlushed {
            expected: answer.expected_log.map(codec::log_id_from_pb),
            actual: answer.actual_log.map(codec::log_id_from_pb),
        }),
    })
}

/// Whether a peer is to be left alone for a while: it is not there, is not the one it should be, or
/// refuses handshakes.
fn leave_alone(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::FailedPrecondition => true,
        Code::Unknown => handshake_failed(status),
        _ => false,
    }
}

/// Whether the connection ended with an error of TLS, as the first read from a peer does that has
/// refused this node's certificate.
fn handshake_failed(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(|error| {
        let error = error.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData)
    })
}

/// After any other error a peer is tried again soon.
fn rpc_error(status: &Status) -> RPCError<TypeConfig> {
    let why = format!("{:?}: {}", status.code(), status.message());
    match leave_alone(status) {
        true => Unreachable::from_string(why).into(),
        false => NetworkError::from_string(why).into(),
    }
}

fn streaming_error(status: &Status) -> StreamingError<TypeConfig> {
    let why = format!("{:?}: {}", status.code(), status.message());
    match leave_alone(status) {
        true => Unreachable::from_string(why).into(),
        false => NetworkError::from_string(why).into(),
    }
}

fn malformed(error: &Malformed) -> RPCError<TypeConfig> {
    NetworkError::new(error).into()
}
