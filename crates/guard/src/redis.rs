//! The guard of data in Redis: one script compares the mark, and sets mark and data.
//!
//! ```no_run
//! use ringfence_guard::Fence;
//! use ringfence_guard::redis::{Changes, RedisError, RedisGuard};
//! use redis::AsyncTypedCommands;
//!
//! # async fn example() -> Result<(), RedisError> {
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut connection = client.get_multiplexed_async_connection().await?;
//!
//! let fence: Fence = "bank/balance#9".parse().expect("from the lease that was granted");
//! let guard = RedisGuard::new(fence.name.clone());
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&mut connection, &fence).await?;
//! let key = guard.key("amount"); // {bank/balance}:amount, in the slot of the mark
//! let amount: i64 = connection.get_int(&key).await?.unwrap_or(0) as i64;
//!
//! // Mark and data at once, or neither.
//! let changes = Changes::new()
//!     .set(&key, (amount + 10).to_string())
//!     .command("LPUSH", guard.key("log"), ["+10"]);
//! guard.admit(&mut connection, &fence, changes).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Redis runs a script alone, so nothing comes between the check and the write, and no lock is
//! needed. Redis 6 or later. The script is [`SCRIPT`] in this crate's `lua/redis.lua`, for services
//! in any language; they and services that use this guard share one mark.
//!
//! # Keys, and clusters
//! A script may only touch keys of one hash slot, so mark and data share a *hash tag*, the part
//! in braces that alone decides the slot. [`RedisGuard::new`] takes the lease's name as the tag:
//! the mark is `{bank/balance}:ringfence-mark:bank/balance`, and [`RedisGuard::key`] makes keys
//! beside it. Keys that exist already keep their names with [`RedisGuard::with_tag`]. A change of
//! a key with another tag is refused before it is sent, also on a server that is not a cluster, where it
//! would work until the day it becomes one.
//!
//! # What Redis itself can lose
//! Mark and data are lost together or not at all, but Redis acknowledges writes that it can lose.
//! Each loss is a restore: a stale holder may be admitted again until the mark is raised with
//! [`RedisGuard::advance_to`]. [`RedisGuard::hazards`] looks for the settings that allow it:
//!
//! | setting | what is lost | when |
//! |---|---|---|
//! | `appendonly no` | everything since the last snapshot, or everything | the process ends |
//! | `appendfsync everysec` (the default) | about the last second | power or the machine fails |
//! | `appendfsync no` | what the system had not written yet | power or the machine fails |
//! | `appendfsync always` | nothing that was acknowledged | |
//! | `no-appendfsync-on-rewrite yes` | what came while the server saved or rewrote its file | power or the machine fails |
//! | replicas, Sentinel, Cluster | what the new primary had not received; `WAIT` makes it rarer, not impossible | failover |
//! | `maxmemory-policy allkeys-*` | the mark alone, at any moment: **the guard is void** | memory is full |
//! | `DEL`, `EXPIRE` of the mark, `FLUSHDB` | the mark | by hand |
//!
//! With `volatile-*` and `noeviction` a mark stays: it has no time to live. Where a lost write is
//! worse than a slow one, keep the mark in a database with transactions.

mod changes;
mod error;
mod hazard;

use ::redis::aio::ConnectionLike;
use ::redis::{FromRedisValue, Script, Value};
use ringfence_core::{FencingToken, LeaseName};

use crate::{Admitted, Ceiling, Fence};

pub use changes::{ARGUMENTS_MAX, CHANGES_MAX, Changes};
pub use error::RedisError;
pub use hazard::Hazard;

/// The script that every write goes through; its head says what it takes and answers.
pub const SCRIPT: &str = crate::sql::REDIS_SCRIPT;

/// Decimal digits of a mark as it is stored and of a token as it is sent.
const DIGITS: usize = 19;

/// A guard whose mark is a key beside the data, bound to one lease.
///
/// All that it guards must be written through it: Redis has nothing that would keep a plain `SET`
/// from passing by. Two guards of one lease with different tags have a mark each, and each protects
/// its own keys.
#[derive(Clone, Debug)]
pub struct RedisGuard {
    name: LeaseName,
    tag: String,
    mark_key: String,
    ceiling: Ceiling,
    script: Script,
}

/// What a call is for, in the words of the script.
#[derive(Clone, Copy)]
enum Mode {
    /// The ceiling was judged here, by this process's clock.
    Judged,
    Floor,
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::Judged => "judged",
            Self::Floor => "floor",
        }
    }
}

impl RedisGuard {
    /// A guard bound to `name`, with the name as its hash tag. It holds no state of its own; any
    /// number may exist.
    #[must_use]
    pub fn new(name: LeaseName) -> Self {
        let tag = name.as_str().to_owned();
        Self::tagged(name, tag)
    }

    /// A guard bound to `name` for keys with the hash tag `tag`: what stands in their braces, or
    /// the whole key if it has none.
    ///
    /// # Errors
    /// [`RedisError::InvalidTag`] if the tag is empty or contains `}`.
    pub fn with_tag(name: LeaseName, tag: &str) -> Result<Self, RedisError> {
        if tag.is_empty() || tag.contains('}') {
            return Err(RedisError::InvalidTag {
                tag: tag.to_owned(),
            });
        }
        Ok(Self::tagged(name, tag.to_owned()))
    }

    fn tagged(name: LeaseName, tag: String) -> Self {
        Self {
            mark_key: format!("{{{tag}}}:ringfence-mark:{name}"),
            name,
            tag,
            ceiling: Ceiling::Clock,
            script: Script::new(SCRIPT),
        }
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// The key `{TAG}:suffix`, which is in the slot of the mark.
    #[must_use]
    pub fn key(&self, suffix: &str) -> String {
        format!("{{{}}}:{suffix}", self.tag)
    }

    /// The key of the mark, to be named in the access rules of the server.
    #[must_use]
    pub fn mark_key(&self) -> &str {
        &self.mark_key
    }

    /// Admits the fence if no greater token was admitted before, and applies `changes` together
    /// with the mark. One round trip.
    ///
    /// # Errors
    /// [`RedisError::Refused`], [`RedisError::DamagedMark`], [`RedisError::OtherTag`],
    /// [`RedisError::MarkIsNoData`] and [`RedisError::TooMany`]: nothing was written; after
    /// [`Refused::StaleToken`](crate::Refused::StaleToken) the lease is lost;
    /// [`Refused::TokenTooHigh`](crate::Refused::TokenTooHigh) says nothing about it, see [`Ceiling`].
    /// [`RedisError::Server`]: a change failed, and those before it stay. [`RedisError::Unknown`]:
    /// whether it was written is not known.
    pub async fn admit(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
        changes: Changes,
    ) -> Result<Admitted, RedisError> {
        self.query::<Vec<Value>>(connection, fence, changes).await?;
        Ok(Admitted::new(fence.token))
    }

    /// As [`RedisGuard::admit`], and answers what the changes answered, in their order: a tuple of
    /// as many types, or a `Vec`. A read among the changes sees the ones before it.
    ///
    /// # Errors
    /// As [`RedisGuard::admit`]. [`RedisError::Unknown`] also if `T` does not fit the answers;
    /// the changes were made then.
    pub async fn query<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
        changes: Changes,
    ) -> Result<T, RedisError> {
        fence.check_lease(&self.name)?;
        changes.check(&self.tag, &self.mark_key)?;
        if self.ceiling.judge(fence, None).is_err() {
            // The mark may be this very token, raised by an operator or before the clock was set
            // back. It only grows, so what is read here can become too low, never too high.
            let mark = self.mark(connection).await?;
            self.ceiling.judge(fence, mark)?;
        }
        self.run(connection, fence, Mode::Judged, &changes).await
    }

    /// Tells the guard that `fence` is the grant in force: once it has returned, every older token
    /// is refused. A new holder calls it **before its first read** of what is guarded. Advancing
    /// twice changes nothing.
    ///
    /// # Errors
    /// As [`RedisGuard::admit`]; after [`RedisError::Unknown`] advance again.
    pub async fn advance(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
    ) -> Result<Admitted, RedisError> {
        self.admit(connection, fence, Changes::new()).await
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After any loss of what Redis
    /// had acknowledged, call it with the lease's newest token before writes are served. The
    /// [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// [`RedisError::DamagedMark`], [`RedisError::Server`] or [`RedisError::Unknown`].
    pub async fn advance_to(
        &self,
        connection: &mut impl ConnectionLike,
        floor: FencingToken,
    ) -> Result<(), RedisError> {
        let fence = Fence::new(self.name.clone(), floor);
        let nothing = Changes::new();
        self.run::<Vec<Value>>(connection, &fence, Mode::Floor, &nothing)
            .await?;
        Ok(())
    }

    /// The greatest token admitted so far. Advice for people: only [`RedisGuard::admit`] decides.
    ///
    /// # Errors
    /// [`RedisError::DamagedMark`], [`RedisError::Server`] or [`RedisError::Unknown`].
    pub async fn mark(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> Result<Option<FencingToken>, RedisError> {
        let mut get = ::redis::cmd("GET");
        let get = get.arg(&self.mark_key);
        let Some(digits) = get.query_async::<Option<String>>(connection).await? else {
            return Ok(None);
        };
        let whole = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        let mark = digits.parse().ok().and_then(FencingToken::new);
        match mark.filter(|_| whole) {
            Some(mark) => Ok(Some(mark)),
            None => Err(self.damaged()),
        }
    }

    /// Settings of this server by which it can lose or void a mark; empty if none was found.
    ///
    /// It asks with `INFO` and `CONFIG GET`, which some providers forbid.
    ///
    /// # Errors
    /// [`RedisError::Server`] if it may not ask, or [`RedisError::Unknown`].
    pub async fn hazards(connection: &mut impl ConnectionLike) -> Result<Vec<Hazard>, RedisError> {
        hazard::find(connection).await
    }

    async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
        mode: Mode,
        changes: &Changes,
    ) -> Result<T, RedisError> {
        let mut call = self.script.prepare_invoke();
        call.key(&self.mark_key);
        call.arg(format!("{:0DIGITS$}", fence.token.get()));
        call.arg(mode.word());
        changes.add_to(&mut call);
        let replied = call.invoke_async(connection).await;
        replied.map_err(|source| RedisError::of_script(source, fence))
    }

    fn damaged(&self) -> RedisError {
        RedisError::DamagedMark {
            name: self.name.clone(),
        }
    }
}
