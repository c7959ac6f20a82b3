//! The replicated lease state machine: commands in, outcomes and events out.
//!
//! It reads no clock, draws no random number and does no I/O: time arrives as data in each
//! [`Entry`]. It is total, since no entry makes it panic or fail: a refused command is an
//! [`Outcome`] like any other. It is deterministic: equal entries make equal states on every
//! replica.
#![no_std]

extern crate alloc;

mod access;
mod acts;
mod answer;
mod asks;
mod audit;
mod backing_up;
mod backup;
mod budget;
mod changing;
mod command;
mod deadlines;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod decoders;
mod ended;
mod ending;
mod event;
mod fence;
mod few;
mod forming;
mod granting;
mod id;
mod judging;
mod keep_alive;
mod keeping;
mod lease;
mod level;
mod looks;
mod machine;
mod name;
mod objects;
mod opening;
mod operator;
mod outcome;
mod pod;
mod query;
mod records;
mod refused;
mod requests;
mod sealable;
mod session;
mod settings;
pub mod snapshot;
mod state;
mod time;
mod tokens;
mod tree;
mod ttls;

pub use access::change::{
    ACCESS_CHANGES_MAX, AccessChange, BANS_MAX, CLUSTER_TOKENS_MAX, Caller, ChangeAccess,
    ClusterToken, InvalidAccess, Mode, PrincipalLimits,
};
pub use access::pattern::{InvalidPattern, NamePattern, PrincipalPattern};
pub use access::principal::{InvalidPrincipal, PRINCIPAL_BYTES_MAX, Principal};
pub use access::rules::{InvalidRule, RULES_MAX, Rule, Scope};
pub use access::verb::{UnknownVerb, Verb};
pub use access::{Access, AccessRecord};
pub use audit::{AUDIT_RECORDS_MAX, AUDIT_TEXT_BYTES_MAX, AuditRecord};
pub use backup::{
    BackupContents, BackupDigest, BackupHeader, BackupRecord, BadBackup, HeldByPod, InvalidDigest,
};
pub use command::{
    Acquire, Ask, Called, Command, Configure, Entry, Evict, Form, OPERATE_BYTES_MAX, ObjectSpec,
    ObjectWrite, Open, OpenForPod, PodEnded, Renew, Request, Restored, Revoke, Seed, WriteObject,
};
pub use event::{EndCause, Event, Granted, SessionEnd, WaitEnd};
pub use fence::{Fence, FloorNews, InvalidFence};
pub use id::{ClusterId, FencingToken, OpenId, RequestNumber, Secret, SessionId};
pub use level::{LEVEL_ACCESS, LEVEL_FIRST, LEVEL_OBJECTS, LEVEL_REPEATS, LEVEL_RESTORE};
pub use machine::StateMachine;
pub use name::{
    HOLDER_DATA_BYTES_MAX, HolderData, IDENTITY_BYTES_MAX, Identity, InvalidName, InvalidText,
    LEASE_NAME_BYTES_MAX, LeaseName,
};
pub use objects::object::{
    Candidate, GONE_OBJECTS_MAX, GoneObject, LeaseObject, NAMESPACE_OBJECTS_MAX,
    OBJECT_METADATA_BYTES_MAX, OBJECTS_MAX, OWING_MAX, OWING_TOTAL_MAX, ObjectMetadata, ObjectView,
    Owing, PRINCIPAL_OBJECTS_MAX, Term,
};

pub use outcome::{
    Acquired, Cancelled, Holder, Limit, LostGrant, ObjectWritten, Opened, Outcome, Rejection,
    Renewed,
};
pub use pod::{
    CONTAINER_BYTES_MAX, InvalidPod, POD_NAME_BYTES_MAX, POD_NAMESPACE_BYTES_MAX,
    POD_UID_BYTES_MAX, Pod, PodSeen, PodText, PodUid,
};
pub use query::{LeaseView, SessionView, Summary, Verdict};
pub use refused::{EndsBelief, Refused};
pub use sealable::{SealAnswer, Sealable, SealableFn, Sealing, sealable_fn};
pub use settings::{
    ENDS_PER_ENTRY_MAX, GRANTS_PER_ENTRY_MAX, InvalidSetting, LEAD_MAX, LEAD_PART,
    LEASE_API_FACTOR_MAX, LEASE_API_FACTOR_MIN, LINEAGE_MAX, LOCK_DELAY_MAX, OPEN_AGE_MAX,
    QUIET_TIME_MAX, REASON_BYTES_MAX, RESTORE_TOKEN_GAP, Settings, TOKEN_FLOOR_MAX,
    TTL_MAX_CEILING, TTL_MIN_FLOOR, UNCONFIRMED_MAX, WAIT_MAX,
};
pub use state::Frozen;
pub use time::{ClusterTime, Millis, WallTime};
