//! Settings of a server by which a mark can be lost.

use ::redis::aio::ConnectionLike;
use ::redis::{FromRedisValue, cmd};

use super::RedisError;

/// The first major version that the script was written for.
const VERSION_MIN: u32 = 6;

/// How a server can lose a mark that it has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hazard {
    /// It may throw the mark away when memory is full: the guard is void.
    #[error("maxmemory-policy {policy} may evict marks; set noeviction or volatile-*")]
    Evicts {
        /// The policy.
        policy: String,
    },
    /// It keeps nothing, or only snapshots.
    #[error("appendonly is off: the end of the process loses what came after the last snapshot")]
    NoAppendOnlyFile,
    /// It acknowledges before it has synced.
    #[error("appendfsync {policy} acknowledges writes that a power failure takes back; set always")]
    SyncsLater {
        /// The policy.
        policy: String,
    },
    /// It syncs nothing while a child of it writes a snapshot or a new append-only file.
    #[error(
        "no-appendfsync-on-rewrite yes: while the server saves or rewrites, it acknowledges writes that a \
         power failure takes back; set no"
    )]
    SyncsLaterOnRewrite,
    /// It has replicas, which receive writes after they are acknowledged.
    #[error("{count} replica(s) receive writes after they are acknowledged; a failover loses some")]
    Replicas {
        /// How many are connected.
        count: u32,
    },
    /// It is itself a replica.
    #[error("the server is a replica; guards write at the primary")]
    IsReplica,
    /// It is older than the script.
    #[error("the server's version {version} is older than 6.0")]
    Old {
        /// The version.
        version: String,
    },
}

pub(super) async fn find(connection: &mut impl ConnectionLike) -> Result<Vec<Hazard>, RedisError> {
    let info: String = cmd("INFO").query_async(connection).await?;
    let told = |key: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().to_owned()
    };
    let mut hazards = Vec::new();
    let version = told("redis_version:");
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major < VERSION_MIN) {
        hazards.push(Hazard::Old { version });
    }
    if told("role:") == "slave" {
        hazards.push(Hazard::IsReplica);
    }
    match told("connected_slaves:").parse() {
        Ok(0) | Err(_) => {}
        Ok(count) => hazards.push(Hazard::Replicas { count }),
    }
    let limited = told("maxmemory:") != "0";
    let policy = told("maxmemory_policy:");
    if limited && policy.starts_with("allkeys-") {
        hazards.push(Hazard::Evicts { policy });
    }
    if setting::<_, String>(connection, "appendonly").await? != "yes" {
        hazards.push(Hazard::NoAppendOnlyFile);
        return Ok(hazards);
    }
    let policy: String = setting(connection, "appendfsync").await?;
    if policy != "always" {
        hazards.push(Hazard::SyncsLater { policy });
    }
    if setting::<_, String>(connection, "no-appendfsync-on-rewrite").await? != "no" {
        hazards.push(Hazard::SyncsLaterOnRewrite);
    }
    Ok(hazards)
}

async fn setting<C: ConnectionLike, T: FromRedisValue>(
    connection: &mut C,
    name: &str,
) -> Result<T, RedisError> {
    let mut ask = cmd("CONFIG");
    let (_, value): (String, T) = ask.arg("GET").arg(name).query_async(connection).await?;
    Ok(value)
}
