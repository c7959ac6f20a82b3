//! The guard of a PostgreSQL database as a holder's client seals it.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;

use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use super::{PostgresError, PostgresGuard};
use crate::{Fence, SealAnswer, Sealable, Sealing};

/// Whatever the role has set: a wait for a standby that was cancelled is a warning.
const WARNINGS: &str = "SET client_min_messages = warning";

/// What a commit of this connection outlives: the server's settings, how many replicas receive it or may ask for
/// it, and whether one that was waited for can take over.
///
/// A logical subscriber cannot: it has the tables that were published. Where a commit waits for any of several,
/// one of which is such a subscriber, it alone may have answered. What a role without the rights of `pg_monitor`
/// asks of a replica is NULL.
const DURABILITY: &str = "WITH replicas AS ( \
     SELECT sync_state, EXISTS (SELECT FROM pg_catalog.pg_replication_slots s \
     WHERE s.active_pid OPERATOR(pg_catalog.=) r.pid AND s.slot_type OPERATOR(pg_catalog.=) 'logical') AS logical \
     FROM pg_catalog.pg_stat_replication r) \
     SELECT pg_catalog.current_setting('fsync') OPERATOR(pg_catalog.=) 'on', \
     pg_catalog.current_setting('synchronous_commit'), \
     pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '', \
     (SELECT pg_catalog.count(*) FROM replicas) \
     OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots \
     WHERE slot_type OPERATOR(pg_catalog.=) 'physical'), \
     EXISTS (SELECT FROM replicas WHERE NOT logical AND (sync_state OPERATOR(pg_catalog.=) 'sync' \
     OR sync_state OPERATOR(pg_catalog.=) 'quorum' AND NOT EXISTS \
     (SELECT FROM replicas WHERE logical AND sync_state OPERATOR(pg_catalog.=) 'quorum'))), \
     EXISTS (SELECT FROM replicas WHERE sync_state IS NULL), \
     EXISTS (SELECT FROM pg_catalog.pg_class WHERE relpersistence OPERATOR(pg_catalog.<>) 'p' \
     AND oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('ringfence.marks'))";

/// A seal under way.
type Running = Pin<Box<dyn Future<Output = SealAnswer> + Send>>;

/// What a seal takes: the guard, the fence, and whether failovers lose nothing.
type Run = dyn Fn(PostgresGuard, Fence, bool) -> Running + Send + Sync;

/// A PostgreSQL guard with a way to connect, to be named in an acquire: a
/// [`Sealable`](crate::Sealable). Each seal has a connection of its own.
///
/// A database that can lose what it has committed counts as unsealed: with `fsync` or
/// `synchronous_commit` off, with an unlogged table of marks, and where there are replicas and no physical
/// standby is synchronous, or `synchronous_commit` is `local` or `remote_write`. A logical subscriber is no such
/// standby. The server is asked each time; where there are replicas it tells a role with the rights of
/// `pg_monitor` alone, and to others the database counts as unsealed. A standby that is not connected and has no
/// slot is unknown to it. Unsealed is also
/// a commit whose wait for a synchronous standby was cancelled: the server warns of it.
///
/// A seal that is dropped while it waits for the transaction of a former holder keeps its connection, and
/// the next seal waits for its end first: there is one at most. A seal that runs at the same time fails.
///
/// ```no_run
/// use ringfence_guard::LeaseName;
/// use ringfence_guard::postgres::{PostgresGuard, PostgresSeal};
/// use tokio_postgres::NoTls;
///
/// # fn f(name: LeaseName) {
/// let guard = PostgresGuard::new(name);
/// let connect = || tokio_postgres::connect("host=ledger", NoTls);
/// let ledger = PostgresSeal::new("ledger", guard, connect);
/// # drop(ledger);
/// # }
/// ```
pub struct PostgresSeal {
    label: String,
    guard: PostgresGuard,
    run: Box<Run>,
    vouched: bool,
    slot: Mutex<Slot>,
}

/// Where the one seal is that may be under way.
enum Slot {
    Free,
    /// A call of [`Sealable::seal`] drives it.
    Driven,
    /// Its call was dropped; the server may still carry it out.
    Left(Fence, Running),
}

impl PostgresSeal {
    /// The seal of a guard, which errors and logs call `label`. `connect` opens a connection as the
    /// role that writes, as [`tokio_postgres::connect`] does; the seal drives it. For connections of a pool
    /// see [`sealable_fn`](crate::sealable_fn).
    pub fn new<C, F, T>(label: impl Into<String>, guard: PostgresGuard, connect: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<(Client, Connection<Socket, T>), tokio_postgres::Error>>
            + Send
            + 'static,
        T: TlsStream + Unpin + Send + 'static,
    {
        let connect = Arc::new(connect);
        Self {
            label: label.into(),
            guard,
            run: Box::new(move |guard, fence, vouched| {
                let connect = Arc::clone(&connect);
                Box::pin(async move {
                    let answer = seal(connect(), &guard, &fence, vouched).await;
                    answer.unwrap_or_else(|error| SealAnswer::from(Err::<(), _>(error)))
                })
            }),
            vouched: false,
            slot: Mutex::new(Slot::Free),
        }
    }

    /// Takes it that a failover of the database loses no commit, and does not ask the server: where
    /// the storage underneath is replicated, or all that receives its log are consumers of logical
    /// replication.
    #[must_use]
    pub fn survives_failover(mut self) -> Self {
        self.vouched = true;
        self
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives a seal to its end; puts it back if this future is dropped before.
    async fn drive(&self, fence: Fence, running: Running) -> SealAnswer {
        let mut driven = Driven {
            seal: self,
            left: Some((fence, running)),
        };
        poll_fn(|context| {
            let Some((_, running)) = &mut driven.left else {
                unreachable!("it has not ended");
            };
            let answer = running.as_mut().poll(context);
            if answer.is_ready() {
                driven.left = None;
            }
            answer
        })
        .await
    }
}

/// Frees the slot, or leaves in it what has not ended.
struct Driven<'a> {
    seal: &'a PostgresSeal,
    left: Option<(Fence, Running)>,
}

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        *self.seal.slot() = match self.left.take() {
            // One that has panicked is not to be driven again.
            Some((fence, running)) if !thread::panicking() => Slot::Left(fence, running),
            _ => Slot::Free,
        };
    }
}

impl Sealable for PostgresSeal {
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        Box::pin(async move {
            loop {
                let found = mem::replace(&mut *self.slot(), Slot::Driven);
                match found {
                    Slot::Free => break,
                    Slot::Driven => {
                        let why = "an earlier seal has not come back".into();
                        return SealAnswer::Failed { why };
                    }
                    Slot::Left(earlier, running) => {
                        let is_this = earlier == *fence;
                        let answer = self.drive(earlier, running).await;
                        // Another answer may be that of a connection which has ended meanwhile.
                        if is_this && answer == SealAnswer::Durable {
                            return answer;
                        }
                    }
                }
            }
            let running = (self.run)(self.guard.clone(), fence.clone(), self.vouched);
            self.drive(fence.clone(), running).await
        })
    }
}

/// Raises the mark on a connection of its own, and asks whether the database can lose it.
async fn seal<T: TlsStream + Unpin>(
    connecting: impl Future<Output = Result<(Client, Connection<Socket, T>), tokio_postgres::Error>>,
    guard: &PostgresGuard,
    fence: &Fence,
    vouched: bool,
) -> Result<SealAnswer, PostgresError> {
    let (mut client, connection) = connecting.await?;
    let advance = async {
        client.batch_execute(WARNINGS).await?;
        guard.advance(&mut client, fence).await?;
        match vouched {
            true => Ok(SealAnswer::Durable),
            false => durability(&client).await,
        }
    };
    let (answer, warning) = driven(connection, advance).await;
    Ok(match (answer?, warning) {
        (SealAnswer::Durable, Some(warning)) if !vouched => SealAnswer::NotDurable {
            why: format!("the server warned: {}", warning.message()),
        },
        (answer, _) => answer,
    })
}

/// Drives a connection until `work` is done, and keeps the first warning that it brings.
async fn driven<T: TlsStream + Unpin, R>(
    connection: Connection<Socket, T>,
    work: impl Future<Output = R>,
) -> (R, Option<DbError>) {
    let (mut work, mut warning) = (pin!(work), None);
    let mut connection = Some(connection);
    let done = poll_fn(|context| {
        // What came with an answer is seen before it.
        while let Some(open) = &mut connection {
            match open.poll_message(context) {
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    if warning.is_none() && *notice.code() == SqlState::WARNING {
                        warning = Some(notice);
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                // Its client fails once it is gone.
                Poll::Ready(Some(Err(_)) | None) => connection = None,
                Poll::Pending => break,
            }
        }
        work.as_mut().poll(context)
    })
    .await;
    (done, warning)
}

async fn durability(client: &Client) -> Result<SealAnswer, PostgresError> {
    let row = client.query_one(DURABILITY, &[]).await?;
    let (fsync, commit): (bool, String) = (row.get(0), row.get(1));
    let (names, replicas): (bool, i64) = (row.get(2), row.get(3));
    let (synchronous, hidden, unlogged): (bool, bool, bool) = (row.get(4), row.get(5), row.get(6));
    let late =
        format!("{replicas} replica(s) or slots receive commits after they are acknowledged");
    let loses = if !fsync {
        Some("fsync is off: a crash takes back the newest commits".to_owned())
    } else if unlogged {
        Some("ringfence.marks is unlogged: a crash empties it".to_owned())
    } else if commit == "off" {
        Some("synchronous_commit is off: a crash takes back the newest commits".to_owned())
    } else if replicas == 0 {
        None
    } else if !names {
        Some(format!("{late}; set synchronous_standby_names"))
    } else if commit == "local" || commit == "remote_write" {
        Some(format!(
            "{late}, as synchronous_commit is {commit}; set it to on"
        ))
    } else if hidden {
        Some(
            "this role cannot see whether a replica is a synchronous standby: grant it pg_monitor, or use \
             survives_failover"
                .to_owned(),
        )
    } else if !synchronous {
        Some(format!(
            "{late}; no synchronous one is a physical standby: name one in synchronous_standby_names, and \
             no logical subscriber"
        ))
    } else {
        None
    };
    Ok(match loses {
        None => SealAnswer::Durable,
        Some(why) => SealAnswer::NotDurable { why },
    })
}
