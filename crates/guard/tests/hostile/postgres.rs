//! PostgreSQL behind a proxy that disturbs each message of a guarded write.

use std::sync::Arc;
use std::time::Duration;

use ringfence_guard::conformance::{
    Aside, Disturbed, Fault, Held, Hit, HostileStore, Rule, Written,
};
use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use tokio::sync::Mutex;
use tokio_postgres::Client;

use crate::servers::Disk;
use crate::servers::postgres::Postgres;
use crate::servers::proxy::Outside;
use crate::{falls, run_to_end, withstands};

const DATABASE: &str = "postgres";

/// What connections of disturbed writes are called in the server's list.
const DISTURBED: &str = "disturbed";

/// Cancel requests per disturbed step: one alone rarely meets it.
const CANCELS: usize = 3;

/// What an effect can do to its transaction, on a connection that is read-only outside of it.
const ASIDES: &[Aside] = &[
    Aside::Ends("COMMIT"),
    Aside::Ends("ROLLBACK"),
    Aside::Ends("SAVEPOINT step; COMMIT"),
    Aside::Ends("COMMIT AND CHAIN"),
    Aside::Ends("ROLLBACK AND CHAIN"),
    Aside::Ends("COMMIT; BEGIN"),
    Aside::Ends("ROLLBACK; BEGIN READ WRITE"),
    Aside::Ends("ROLLBACK; BEGIN READ WRITE; SAVEPOINT step"),
    Aside::Stays("SAVEPOINT step; DELETE FROM pair; ROLLBACK TO step"),
    Aside::Stays("SAVEPOINT step; SAVEPOINT inside; RELEASE step"),
    Aside::Stays("BEGIN"),
];

/// How a holder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With [`PostgresGuard::write`], on a connection that has written before.
    Warm,
    /// The same on a new connection, whose statement is not prepared yet.
    Cold,
    /// With [`PostgresGuard::begin`].
    ByHand,
    /// Wrong: the effect is sent without waiting for the transaction that was begun.
    NotAwaited,
    /// Wrong: the check is a transaction of its own.
    CheckedBefore,
}

struct Part {
    server: Arc<Mutex<Postgres>>,
    guard: PostgresGuard,
    way: Way,
    /// Restarting takes long, and the first messages are the same in several ways.
    restarts: bool,
}

async fn table(client: &Client) {
    PostgresGuard::install(client).await.unwrap();
    let pair = "CREATE TABLE IF NOT EXISTS pair (
        name text PRIMARY KEY, first bigint, second bigint)";
    client.batch_execute(pair).await.unwrap();
}

/// Writes both data, each with a statement of its own: one in a message of its own, one prepared.
async fn effect(client: &Client, name: &LeaseName, datum: u64) -> Result<(), PostgresError> {
    let first = format!(
        "INSERT INTO pair (name, first) VALUES ('{name}', {datum})
         ON CONFLICT (name) DO UPDATE SET first = excluded.first"
    );
    client.batch_execute(&first).await?;
    let second = "INSERT INTO pair (name, second) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET second = excluded.second";
    let datum = i64::try_from(datum).unwrap();
    client.execute(second, &[&name.as_str(), &datum]).await?;
    Ok(())
}

pub(crate) fn written(done: Result<(), PostgresError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(PostgresError::Refused(refused)) => Written::Refused(refused),
        Err(error @ PostgresError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

impl Part {
    async fn write(&self, client: &mut Client, fence: &Fence, datum: u64) -> Written {
        let name = self.guard.name();
        let done = match self.way {
            Way::Warm | Way::Cold => {
                let effect = async |client: &Client| effect(client, name, datum).await;
                self.guard.write(client, fence, effect).await
            }
            Way::ByHand => self.by_hand(client, fence, datum).await,
            Way::NotAwaited => self.not_awaited(client, fence, datum).await,
            Way::CheckedBefore => match self.guard.advance(client, fence).await {
                Ok(_) => effect(client, name, datum).await,
                Err(error) => Err(error),
            },
        };
        written(done)
    }

    async fn by_hand(
        &self,
        client: &mut Client,
        fence: &Fence,
        datum: u64,
    ) -> Result<(), PostgresError> {
        let guarded = self.guard.begin(client, fence).await?;
        effect(&guarded, &fence.name, datum).await?;
        guarded.commit().await
    }

    async fn not_awaited(
        &self,
        client: &Client,
        fence: &Fence,
        datum: u64,
    ) -> Result<(), PostgresError> {
        let begin = format!(
            "START TRANSACTION; SELECT ringfence_raise('{}', {})",
            fence.name, fence.token
        );
        let begun = client.batch_execute(&begin);
        let both = async { tokio::join!(biased; begun, effect(client, &fence.name, datum)) };
        let (begun, done) = both.await;
        if let Err(error) = begun.map_err(PostgresError::from).and(done) {
            client.batch_execute("ROLLBACK").await.ok();
            return Err(error);
        }
        Ok(client.batch_execute("COMMIT").await?)
    }
}

/// What the faults need from outside of the connection.
async fn outside(server: &Arc<Mutex<Postgres>>, hit: Hit, client: &Client) -> Outside {
    match hit {
        Hit::Cancelled => {
            let token = client.cancel_token();
            Arc::new(move || {
                let token = token.clone();
                Box::pin(async move {
                    for _ in 0..CANCELS {
                        token.cancel_query(tokio_postgres::NoTls).await.ok();
                    }
                })
            })
        }
        Hit::Restart => {
            let server = Arc::clone(server);
            Arc::new(move || {
                let server = Arc::clone(&server);
                Box::pin(async move {
                    let mut server = server.lock().await;
                    tokio::task::block_in_place(|| server.crash());
                })
            })
        }
        _ => nothing_outside(),
    }
}

pub(crate) fn nothing_outside() -> Outside {
    Arc::new(|| Box::pin(async {}))
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        let all = Hit::ALL.iter().copied();
        all.filter(|&hit| self.restarts || hit != Hit::Restart)
            .collect()
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let connecting = async { self.server.lock().await.connect_through(DATABASE).await };
        let (mut client, hand) = connecting.await;
        let called = format!("SET application_name = {DISTURBED}");
        client.batch_execute(&called).await.unwrap();
        if self.way != Way::Cold {
            // A write of nothing leaves nothing behind but a mark that stood there already.
            let nothing = Fence::new("warm/up".parse_name(), token(1));
            let guard = PostgresGuard::new(nothing.name.clone());
            let nothing = guard.write(&mut client, &nothing, async |_| Ok::<_, PostgresError>(()));
            nothing.await.unwrap();
        }
        if let Some(fault) = fault {
            hand.arm(fault, outside(&self.server, fault.hit, &client).await);
        }
        let written = Self::write(self, &mut client, fence, datum).await;
        let reached = hand.disarm();
        drop(client);
        hand.ended().await;
        Disturbed { written, reached }
    }

    fn asides(&self) -> Vec<Aside> {
        match self.way {
            Way::Warm | Way::Cold | Way::ByHand => ASIDES.to_vec(),
            Way::NotAwaited | Way::CheckedBefore => Vec::new(),
        }
    }

    async fn write_aside(
        &self,
        fence: &Fence,
        datum: u64,
        aside: Aside,
        meanwhile: impl AsyncFn(),
    ) -> Written {
        let mut client = self.server.lock().await.connect(DATABASE).await;
        PostgresGuard::only_guarded(&client).await.unwrap();
        let effect = async |client: &Client| {
            client.batch_execute(aside.statements()).await.ok();
            meanwhile().await;
            effect(client, &fence.name, datum).await.ok();
            Ok(())
        };
        if self.way != Way::ByHand {
            return written(self.guard.write(&mut client, fence, effect).await);
        }
        written(match self.guard.begin(&mut client, fence).await {
            Err(error) => Err(error),
            Ok(guarded) => {
                let done: Result<(), PostgresError> = effect(&guarded).await;
                done.unwrap();
                guarded.commit().await
            }
        })
    }

    async fn look(&self) -> Held {
        let client = self.server.lock().await.connect(DATABASE).await;
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        while client
            .query_one(gone, &[&DISTURBED])
            .await
            .unwrap()
            .get::<_, i64>(0)
            > 0
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let name = self.guard.name().as_str();
        let pair = "SELECT first, second FROM pair WHERE name = $1";
        let row = client.query_opt(pair, &[&name]).await.unwrap();
        let datum = |at: usize| {
            let value: Option<i64> = row.as_ref().and_then(|row| row.get(at));
            value.map(|value| u64::try_from(value).unwrap())
        };
        Held {
            mark: self.guard.mark(&client).await.unwrap(),
            first: datum(0),
            second: datum(1),
        }
    }
}

trait ParseName {
    fn parse_name(&self) -> LeaseName;
}

impl ParseName for str {
    fn parse_name(&self) -> LeaseName {
        LeaseName::parse(self).unwrap()
    }
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

/// Makes parts of one server for the suite.
async fn parts(way: Way, restarts: bool) -> Option<impl AsyncFn(&LeaseName) -> Part> {
    let server = Postgres::start(Disk::Memory)?;
    table(&server.connect(DATABASE).await).await;
    let server = Arc::new(Mutex::new(server));
    Some(async move |name: &LeaseName| Part {
        server: Arc::clone(&server),
        guard: PostgresGuard::new(name.clone()),
        way,
        restarts,
    })
}

fn passes(way: Way, restarts: bool) {
    run_to_end(async {
        let Some(parts) = parts(way, restarts).await else {
            return;
        };
        let kinds = if restarts { Hit::ALL } else { &Hit::ALL[..5] };
        let report = withstands(parts, kinds).await;
        assert!(report.failed > 0 && report.unknown > 0, "{report:?}");
        assert_eq!(report.asides, ASIDES.len() as u64, "{report:?}");
    });
}

#[test]
fn a_postgres_write_that_fails_at_any_message_has_committed_nothing() {
    passes(Way::Warm, true);
}

#[test]
fn the_first_postgres_write_of_a_connection_is_no_exception() {
    passes(Way::Cold, false);
}

#[test]
fn a_postgres_transaction_by_hand_that_fails_has_committed_nothing() {
    passes(Way::ByHand, false);
}

#[test]
fn postgres_effects_that_are_not_in_the_admitted_transaction_are_found() {
    for way in [Way::NotAwaited, Way::CheckedBefore] {
        run_to_end(async {
            let Some(parts) = parts(way, false).await else {
                return;
            };
            let violation = falls(parts).await;
            assert!(
                matches!(violation.rule, Rule::CommittedAfterAll { .. }),
                "{way:?}: {violation}"
            );
        });
    }
}
