//! What was seen beside the operations: signs of life, beliefs, guards, watches, faults.

use serde::{Deserialize, Serialize};

/// A keep-alive was acknowledged: it extended the session. One that was not, or whose reply extended
/// nothing, is not written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepAlive {
    /// The client's number, as its recorder chose it.
    pub client: u32,
    /// Number of the session that was extended.
    pub session: u64,
    /// When its first try was given to the stream, in ns.
    pub sent: u64,
    /// When the answer had come, in ns.
    pub acked: u64,
    /// The session's TTL in milliseconds.
    pub ttl_ms: u64,
}

/// A client learned from the cluster that its session has ended, in a reply or on its stream. A
/// client that only gave up by its own clock writes no such record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEnded {
    /// The client that learned it.
    pub client: u32,
    /// Number of the session that has ended.
    pub session: u64,
    /// When the client learned it, in ns of the recorder's clock.
    pub t: u64,
    /// Why it ended, if that was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<SessionCause>,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionCause {
    /// It ran out of time.
    Expired,
    /// Its client closed it.
    Closed,
    /// An operator ended it.
    Evicted,
    /// The Pod that it was bound to is over.
    PodEnded,
}

/// A client believed that it holds a lease, from `from` to `until`: as long as its library called the
/// grant held. A process that ignores what its library says believes nothing here; what it does
/// shows in [`Guard`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Belief {
    /// The client's number, as its recorder chose it.
    pub client: u32,
    /// Number of the session under which the lease was held.
    pub session: u64,
    /// Name of the lease.
    pub lease: String,
    /// Fencing token of the grant.
    pub token: u64,
    /// When it began to believe, in ns: not before it did.
    pub from: u64,
    /// When it had stopped, in ns: not after it had.
    pub until: u64,
    /// The first reason for which the client stopped believing.
    pub why: BeliefEnd,
}

/// Why a belief ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeliefEnd {
    /// It is about to be released.
    Released,
    /// It is about to be handed over.
    Transferred,
    /// The session is about to be closed.
    Closed,
    /// The client's window ended without an acknowledgement.
    Window,
    /// The cluster said that the grant has ended.
    Told,
    /// A guard refused the token.
    Refused,
    /// The client's process was killed.
    Killed,
    /// The recording ended while the client still believed.
    RecordingEnded,
}

/// A writer came to a guarded store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Name of the store.
    pub store: String,
    /// The client's number, as its recorder chose it.
    pub client: u32,
    /// The lease that the guard is bound to; with `store` it names the mark.
    pub lease: String,
    /// The token that was shown.
    pub token: u64,
    /// What was to be done.
    pub act: GuardAct,
    /// When it began, in ns.
    pub begin: u64,
    /// When it had been answered, in ns.
    pub end: u64,
    /// Its place among the commits of this store, if the store counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// Whether the guard let it in.
    pub admission: Admission,
    /// What was read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether there really was a guard; `false` in a control run without one, of which nothing is
    /// promised.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub guarded: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_true(value: &bool) -> bool {
    *value
}

/// What a writer wanted of a guarded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAct {
    /// To raise the mark.
    Advance,
    /// To read; reads need no admission.
    Read,
    /// To write, in one transaction with the check of the mark.
    Write,
}

/// What a guard answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Admission {
    /// It was let in, and committed.
    Admitted,
    /// The guard refused it, without effect.
    Refused {
        /// The greatest token that was admitted before.
        mark: u64,
    },
    /// It is unknown whether it was committed.
    Unknown,
    /// It failed without effect.
    Failed,
}

/// A watch began, or went on after a break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchStarted {
    /// The watch's number, the same after a break.
    pub watcher: u32,
    /// The client that watches.
    pub client: u32,
    /// When the watch began, in ns of the recorder's clock.
    pub t: u64,
    /// Leases whose names begin so; all if empty.
    pub prefix: String,
    /// The position after which it goes on, an index and a place within the entry; left out if it
    /// begins at the present, or if the history before it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<(u64, u32)>,
}

/// A watch reported a grant or of an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchEvent {
    /// Number of the watch.
    pub watcher: u32,
    /// When the client received it, in ns of the recorder's clock.
    pub t: u64,
    /// The log index of the entry.
    pub index: u64,
    /// Its place among the events of that entry.
    pub n: u32,
    /// Whether it is a grant or an end.
    pub kind: WatchKind,
    /// Name of the lease.
    pub lease: String,
    /// Fencing token of the grant.
    pub token: u64,
    /// Session of the holder, if it was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Identity of the holder, if it was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// What a watch reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchKind {
    /// The lease was granted.
    Granted,
    /// The end of a grant, for this cause.
    Ended(WatchCause),
}

/// Why a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchCause {
    /// Its holder released it.
    Released,
    /// Its holder's session ran out of time.
    Expired,
    /// Its holder closed the session.
    Closed,
    /// An operator revoked it.
    Revoked,
    /// An operator ended the holder's session.
    Evicted,
    /// Its holder handed it over.
    Transferred,
    /// The Pod that the holder's session was bound to is over.
    PodEnded,
}

/// A watch reported that everything up to an index was reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchProgress {
    /// Number of the watch.
    pub watcher: u32,
    /// When the client received it, in ns of the recorder's clock.
    pub t: u64,
    /// Log index up to which everything was reported, inclusive.
    pub index: u64,
}

/// A fault that was made, and has ended or lasts until the end of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What: `kill`, `partition`, `pause` and so on.
    pub kind: String,
    /// To what: a node's name, a client, a link such as `n1>n2`.
    pub target: String,
    /// When it began, in ns.
    pub begin: u64,
    /// When it had ended, in ns; left out if it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// How often it was seen to have an effect: packets dropped, calls failed, processes killed.
    /// 0 means that nothing shows it had any.
    pub effects: u64,
    /// More of it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A node was seen to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSeen {
    /// Name of the node.
    pub node: String,
    /// When it was seen, in ns of the recorder's clock.
    pub t: u64,
    /// The state from this time on.
    pub state: NodeState,
    /// Its term, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It runs, and follows.
    Follower,
    /// It runs for leader.
    Candidate,
    /// It runs, and leads its term.
    Leader,
    /// It runs, and does not vote.
    Learner,
    /// It is stopped for a while.
    Paused,
    /// It does not run.
    Down,
}

/// A remark for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// When, in ns, if it belongs to a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t: Option<u64>,
    /// Free text; no checker reads it.
    pub text: String,
}
