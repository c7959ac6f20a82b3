//! Service `ringfence.v1.Cluster`.

use std::time::Duration;

use ringfence_core::{ClusterId, LEVEL_OBJECTS, Rejection, Settings, StateMachine, Verb};
use ringfence_proto::record::RECORD_VERSION;
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{
    ADDRESS_BYTES_MAX, Condition, Incarnation, Member, MembershipError, NAME_BYTES_MAX, Role,
    Silence,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Response, Status};

use super::{Context, backup, deadline};
use crate::address::{HOST_PORT_ALLOWED, is_host_port};
use crate::caller::{Who, since_epoch};
use crate::metrics::Call;
use crate::status::{RETRY_AFTER, not_read};

/// The header of an answer of `Status` with the node's wall clock, in milliseconds since 1970. Unlike the
/// `date` of HTTP, which servers keep for a second by the same clock, it follows a clock that is set back.
pub const WALL_HEADER: &str = "ringfence-wall-ms";

/// The header of an answer of `Status` while no majority stands behind a leader, as far as the node knows:
/// for how many milliseconds, or [`SILENT_SINCE_START`]. What the answer shows is of that node alone, and
/// so old.
pub const SILENCE_HEADER: &str = "ringfence-silence-ms";
/// The value of [`SILENCE_HEADER`] of a node that has heard of no majority since it was started.
pub const SILENT_SINCE_START: &str = "since-start";
/// For how long a node may hear of no majority before it says so. An election is over by then.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Service `ringfence.v1.Cluster`.
pub struct ClusterService {
    context: Context,
}

impl ClusterService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// Refuses a banned caller. What needs no more shows no names, principals or data.
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Refusal> {
        let admitted = self.context.admit(&Who::of(request));
        admitted.inspect_err(|refusal| self.context.metrics.denied(refusal, true))
    }

    /// Makes a membership change until shortly before the caller's deadline.
    async fn change<T>(
        &self,
        metadata: &tonic::metadata::MetadataMap,
        change: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Response<T>, Status> {
        let change = async {
            self.context.is_meant(metadata)?;
            change.await
        };
        let answer = deadline::within(metadata, change).await;
        let answer = self.context.answered(Call::Membership, answer);
        Ok(Response::new(answer?))
    }
}

#[tonic::async_trait]
impl v1::cluster_server::Cluster for ClusterService {
    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        self.admit(&request)?;
        let silence = self.context.silence(SILENCE_MAX);
        let mut response = Response::new(status(&self.context));
        let wall = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        response.metadata_mut().insert(WALL_HEADER, wall.into());
        if let Some(silence) = silence {
            let shown = silence_shown(silence);
            response.metadata_mut().insert(SILENCE_HEADER, shown);
        }
        Ok(response)
    }

    async fn list_members(
        &self,
        request: Request<v1::ListMembersRequest>,
    ) -> Result<Response<v1::ListMembersResponse>, Status> {
        self.admit(&request)?;
        // Only the leader knows how far each has come; without one, what this node knows will do.
        let members = match self.context.node.members_of_leader().await {
            Ok(members) => members,
            Err(_) => self.context.node.members(),
        };
        let members = members.into_iter().map(member_to_wire).collect();
        let voters = self.context.node.voters();
        Ok(Response::new(v1::ListMembersResponse {
            members,
            changing: voters.is_some_and(|voters| !voters.is_settled()),
        }))
    }

    async fn add_member(
        &self,
        request: Request<v1::AddMemberRequest>,
    ) -> Result<Response<v1::AddMemberResponse>, Status> {
        let who = Who::of(&request);
        let (metadata, _, request) = request.into_parts();
        let add = async {
            self.context.demand(&who, Verb::Operate)?;
            let caller = self.context.proven_caller(&who)?;
            let incarnation = checked(&request)?;
            let v1::AddMemberRequest {
                name,
                peer_address,
                client_address,
                ..
            } = request;
            let added = self.context.node.add_member(
                name,
                peer_address,
                client_address,
                incarnation,
                caller,
            );
            let node_id = added.await.map_err(refusal)?;
            Ok(v1::AddMemberResponse { node_id })
        };
        self.change(&metadata, add).await
    }

    async fn promote_member(
        &self,
        request: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        let who = Who::of(&request);
        let (metadata, _, request) = request.into_parts();
        let promote = async {
            self.context.demand(&who, Verb::Operate)?;
            let caller = self.context.proven_caller(&who)?;
            let node_id = node_id(request.node_id)?;
            let replaces = (request.replaces != 0).then_some(request.replaces);
            let node = &self.context.node;
            let promoted = if request.force {
                node.force_promote_member(node_id, replaces, caller).await
            } else {
                node.promote_member(node_id, replaces, caller).await
            };
            promoted.map_err(refusal)?;
            Ok(v1::PromoteMemberResponse {})
        };
        self.change(&metadata, promote).await
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        let who = Who::of(&request);
        let (metadata, _, request) = request.into_parts();
        let remove = async {
            self.context.demand(&who, Verb::Operate)?;
            let caller = self.context.proven_caller(&who)?;
            let node_id = node_id(request.node_id)?;
            let node = &self.context.node;
            let removed = if request.force {
                node.force_remove_member(node_id, caller).await
            } else {
                node.remove_member(node_id, caller).await
            };
            removed.map_err(refusal)?;
            Ok(v1::RemoveMemberResponse {})
        };
        self.change(&metadata, remove).await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        let who = Who::of(&request);
        let (metadata, _, request) = request.into_parts();
        let transfer = async {
            self.context.demand(&who, Verb::Operate)?;
            let caller = self.context.proven_caller(&who)?;
            let to = (request.node_id != 0).then_some(request.node_id);
            let leader_id = self
                .context
                .node
                .transfer_leader(to, caller)
                .await
                .map_err(refusal)?;
            Ok(v1::TransferLeaderResponse { leader_id })
        };
        self.change(&metadata, transfer).await
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureResponse>, Status> {
        let meant = self.context.is_meant(request.metadata());
        let may = meant.and_then(|()| self.context.demand(&Who::of(&request), Verb::Configure));
        self.context.answered(Call::Configure, may)?;
        let (metadata, extensions, asked) = request.into_parts();
        let whole = deadline::within(&metadata, whole(&self.context, asked)).await?;
        self.context
            .answered(Call::Configure, check_factor(&self.context, &whole))?;
        self.context
            .call(Request::from_parts(metadata, extensions, whole))
            .await
    }

    type BackupStream = ReceiverStream<Result<v1::BackupResponse, Status>>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let who = Who::of(&request);
        let begun = deadline::within(request.metadata(), backup::begin(&self.context, &who)).await;
        let begun = self.context.answered(Call::Backup, begun);
        Ok(Response::new(begun?))
    }
}

/// The request with all settings, where it says which are to change, and where a client of an older
/// release does not know the factor of the Lease endpoint: that stays as it is. If they change
/// meanwhile, the log refuses it.
async fn whole(
    context: &Context,
    mut request: v1::ConfigureRequest,
) -> Result<v1::ConfigureRequest, Refusal> {
    let Some(change) = request.change.take() else {
        let settings = request.settings.as_mut();
        if let Some(settings) = settings.filter(|all| all.lease_api_factor_per_mille == 0) {
            context.node.read_barrier().await.map_err(not_read)?;
            let factor = context
                .node
                .read(|machine| machine.settings().lease_api_factor);
            settings.lease_api_factor_per_mille = factor;
        }
        return Ok(request);
    };
    if request.settings.is_some() {
        let offered = "both `settings` and `change`";
        return Err(Refusal::invalid("change", offered, "exactly one of them"));
    }
    context.node.read_barrier().await.map_err(not_read)?;
    let (before, set_at) = context
        .node
        .read(|machine| (*machine.settings(), machine.settings_set_at()));
    match request.based_on {
        0 => request.based_on = set_at,
        based_on if based_on != set_at => {
            return Err(Refusal::from_rejection(&Rejection::StaleSettings {
                set_at,
            }));
        }
        _ => {}
    }
    let after = wire::settings_changed(&before, &change);
    request.settings = Some(wire::settings_to_wire(&after));
    Ok(request)
}

/// Refuses a factor of the Lease endpoint before the level that it begins with: the entry would be
/// applied without it, as older releases do.
fn check_factor(context: &Context, request: &v1::ConfigureRequest) -> Result<(), Refusal> {
    let factor = request
        .settings
        .as_ref()
        .map_or(0, |settings| settings.lease_api_factor_per_mille);
    let level = context.node.read(|machine| machine.level());
    if level >= LEVEL_OBJECTS || [0, Settings::STANDARD.lease_api_factor].contains(&factor) {
        return Ok(());
    }
    let why = format!(
        "a factor of the Lease endpoint begins with level {LEVEL_OBJECTS}, and the level of the \
         cluster is {level}: it is raised once every node runs this release"
    );
    Err(Refusal::unavailable(why, None, RETRY_AFTER))
}

fn status(context: &Context) -> v1::StatusResponse {
    let status = context.node.status();
    let (leader_id, leader_client_address) = match status.leader {
        Some(leader) => (leader.node_id, leader.client_address),
        None => (0, String::new()),
    };
    context.node.read(|machine| {
        let summary = machine.summary();
        v1::StatusResponse {
            cluster_id: formed_cluster(machine).map_or_else(Default::default, |cluster| {
                wire::cluster_id_to_wire(&cluster)
            }),
            node_id: status.node_id.unwrap_or_default(),
            name: status.name,
            leader_id,
            leader_client_address,
            term: status.term,
            last_log_index: status.last_log_index,
            applied_index: machine.index(),
            cluster_time_ms: summary.time.0,
            sessions: summary.sessions,
            leases: summary.leases,
            last_token: summary.last_token,
            settings: Some(wire::settings_to_wire(machine.settings())),
            settings_index: machine.settings_set_at(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role(status.role).to_owned(),
            token_floor_set: machine.token_floor().is_some(),
            level: summary.level,
            log_version: RECORD_VERSION,
            lineage: machine
                .lineage()
                .iter()
                .map(wire::cluster_id_to_wire)
                .collect(),
            quiet_ms: summary.quiet.0,
        }
    })
}

fn silence_shown(silence: Silence) -> AsciiMetadataValue {
    match silence.since {
        Some(since) => u64::try_from(since.as_millis()).unwrap_or(u64::MAX).into(),
        None => AsciiMetadataValue::from_static(SILENT_SINCE_START),
    }
}

/// The cluster, once it is formed and, if it is restored, has all of its state: nothing is served
/// before that.
fn formed_cluster(machine: &StateMachine) -> Option<ClusterId> {
    machine.cluster().filter(|_| machine.is_formed())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Forming => "forming",
    }
}

fn member_to_wire(member: Member) -> v1::Member {
    v1::Member {
        node_id: member.node_id,
        name: member.name,
        peer_address: member.peer_address,
        client_address: member.client_address,
        voter: member.voter,
        leader: member.leader,
        incarnation: bytes::Bytes::copy_from_slice(member.incarnation.as_bytes()),
        matched_index: member.matched.unwrap_or_default(),
        condition: member.condition.zip(member.heard).map(condition_to_wire),
    }
}

fn condition_to_wire((condition, heard): (Condition, Duration)) -> v1::MemberCondition {
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    v1::MemberCondition {
        version: condition.version.to_string(),
        no_room: condition.no_room,
        last_fsync_us: whole(condition.last_sync.as_micros()),
        age_ms: whole(heard.as_millis()),
    }
}

/// The incarnation of a node to add, of which nothing else may be missing.
fn checked(request: &v1::AddMemberRequest) -> Result<Incarnation, Refusal> {
    let texts = [
        ("name", &request.name),
        ("peer_address", &request.peer_address),
        ("client_address", &request.client_address),
    ];
    if let Some((field, _)) = texts.into_iter().find(|(_, text)| text.is_empty()) {
        return Err(Refusal::missing(field, "what the node was started with"));
    }
    // They would stand in the error, which a client could not read then.
    let limits = [NAME_BYTES_MAX, ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX];
    let too_long = texts.into_iter().zip(limits);
    if let Some(((field, text), max)) = too_long
        .into_iter()
        .find(|((_, text), max)| text.len() > *max)
    {
        let got = format!("a text of {} bytes", text.len());
        return Err(Refusal::invalid(field, got, format!("at most {max} bytes")));
    }
    let addresses = [
        ("peer_address", &request.peer_address),
        ("client_address", &request.client_address),
    ];
    if let Some((field, offered)) = addresses.into_iter().find(|(_, text)| !is_host_port(text)) {
        return Err(Refusal::invalid(field, offered, HOST_PORT_ALLOWED));
    }
    Incarnation::from_slice(&request.incarnation).ok_or_else(|| {
        let offered = format!("a value of {} bytes", request.incarnation.len());
        Refusal::invalid(
            "incarnation",
            offered,
            "the 16 bytes that the node has drawn",
        )
    })
}

fn node_id(offered: u64) -> Result<u64, Refusal> {
    if offered == 0 {
        return Err(Refusal::missing(
            "node_id",
            "the id of a member, as ListMembers shows it",
        ));
    }
    Ok(offered)
}

fn refusal(error: MembershipError) -> Refusal {
    match error {
        MembershipError::Refused { why } => Refusal::membership(why),
        MembershipError::Denied(rejection) => Refusal::from_rejection(&rejection),
        MembershipError::NotDone { why } => Refusal::unavailable(why, None, RETRY_AFTER),
        MembershipError::Unknown { why } => Refusal::outcome_unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{
        BackupDigest, ClusterTime, Command, Entry, Form, Millis, Mode, Outcome, Restored, Secret,
        Seed, Settings, WallTime,
    };

    use super::*;

    #[test]
    fn a_restored_cluster_is_named_once_its_last_part_is_in() {
        let (cluster, digest) = (ClusterId::new([9; 16]), BackupDigest::new([7; 32]));
        let form = Command::Form(Form {
            cluster,
            token_floor: Some(0),
            settings: Settings::STANDARD,
            mode: Mode::Off,
            quiet_time: Millis(0),
            restored: Some(Restored {
                lineage: Vec::new(),
                digest,
                parts: 2,
                tokens: 0,
                token_floor: None,
                sessions: 1,
                versions: 0,
                ttl_greatest: Millis(0),
                drill: true,
            }),
        });
        let seed = |part| {
            Command::Seed(Seed {
                digest,
                part,
                access: Vec::new(),
                held: Vec::new(),
                secret: Secret::new([1; 16]),
            })
        };
        let mut machine = StateMachine::new();
        let start = Command::TermStart { unix_seconds: None };
        let expected = [None, None, None, Some(cluster)];
        for (index, command) in (1..).zip([start, form, seed(0), seed(1)]) {
            let entry = Entry {
                index,
                term: 1,
                time: ClusterTime(0),
                wall: WallTime(0),
                command,
            };
            let outcome = machine.apply(&entry, &mut Vec::new());
            assert!(matches!(outcome, Outcome::Done), "{index}: {outcome:?}");
            let at = usize::try_from(index).unwrap_or_default() - 1;
            assert_eq!(formed_cluster(&machine), expected[at], "{index}");
        }
    }
}
