//! The guard of a PostgreSQL database as a holder's client seals it.

use std::pin::Pin;

use tokio_postgres::Client;

use super::{PostgresError, PostgresGuard};
use crate::{Fence, SealAnswer, Sealable, Sealing};

/// What a commit of this connection outlives: the server's settings, and how many replicas receive it
/// or may ask for it.
const DURABILITY: &str = "SELECT current_setting('fsync') = 'on', \
    current_setting('synchronous_commit'), \
    current_setting('synchronous_standby_names') <> '', \
    (SELECT count(*) FROM pg_stat_replication) \
    + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical')";

type Connecting = Pin<Box<dyn Future<Output = Result<Client, tokio_postgres::Error>> + Send>>;

/// A PostgreSQL guard with a way to connect, to be named in an acquire: a
/// [`Sealable`](crate::Sealable). Each seal has a connection of its own.
///
/// A database that can lose what it has committed counts as unsealed: with `fsync` or
/// `synchronous_commit` off, and where there are replicas and none of them is synchronous. The server
/// is asked each time. A standby that is not connected and has no slot is unknown to it.
///
/// ```no_run
/// use ringfence_guard::LeaseName;
/// use ringfence_guard::postgres::{PostgresGuard, PostgresSeal};
/// use tokio_postgres::NoTls;
///
/// # fn f(name: LeaseName) {
/// let guard = PostgresGuard::new(name);
/// let ledger = PostgresSeal::new("ledger", guard, || async {
///     let (client, connection) = tokio_postgres::connect("host=ledger", NoTls).await?;
///     tokio::spawn(connection);
///     Ok(client)
/// });
/// # drop(ledger);
/// # }
/// ```
pub struct PostgresSeal {
    label: String,
    guard: PostgresGuard,
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    vouched: bool,
}

impl PostgresSeal {
    /// The seal of a guard, which errors and logs call `label`. `connect` opens a connection as the
    /// role that writes, and sees to it that it is driven. For connections of a pool see
    /// [`sealable_fn`](crate::sealable_fn).
    pub fn new<C, F>(label: impl Into<String>, guard: PostgresGuard, connect: C) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Client, tokio_postgres::Error>> + Send + 'static,
    {
        Self {
            label: label.into(),
            guard,
            connect: Box::new(move || Box::pin(connect())),
            vouched: false,
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

    async fn advance(&self, fence: &Fence) -> Result<SealAnswer, PostgresError> {
        let mut client = (self.connect)().await?;
        self.guard.advance(&mut client, fence).await?;
        match self.vouched {
            true => Ok(SealAnswer::Durable),
            false => durability(&client).await,
        }
    }
}

impl Sealable for PostgresSeal {
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        Box::pin(async move {
            match self.advance(fence).await {
                Ok(answer) => answer,
                Err(error) => SealAnswer::from(Err::<(), _>(error)),
            }
        })
    }
}

async fn durability(client: &Client) -> Result<SealAnswer, PostgresError> {
    let row = client.query_one(DURABILITY, &[]).await?;
    let (fsync, commit): (bool, String) = (row.get(0), row.get(1));
    let (has_synchronous, replicas): (bool, i64) = (row.get(2), row.get(3));
    let loses = if !fsync {
        Some("fsync is off: a crash takes back the newest commits".to_owned())
    } else if commit == "off" {
        Some("synchronous_commit is off: a crash takes back the newest commits".to_owned())
    } else if replicas > 0 && (!has_synchronous || commit == "local") {
        Some(format!(
            "{replicas} replica(s) or slots receive commits after they are acknowledged; set \
             synchronous_standby_names"
        ))
    } else {
        None
    };
    Ok(match loses {
        None => SealAnswer::Durable,
        Some(why) => SealAnswer::NotDurable { why },
    })
}
