//! PostgreSQL behind a proxy that disturbs each message of a guarded write.

use std::sync::Arc;
use std::time::Duration;

use ringfence_guard::conformance::{
    Aside, Disturbed, Fault, Held, Hit, HostileStore, Rule, Shadow, Since, Written,
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

/// Another schema with all that a search path can find in place of what the guard means, as in a database
/// that several services have installed into.
const ELSEWHERE: &str = "
    CREATE SCHEMA elsewhere;
    CREATE TABLE elsewhere.marks (name text PRIMARY KEY, mark bigint NOT NULL);
    CREATE TABLE elsewhere.ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL);
    CREATE FUNCTION elsewhere.always(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE OPERATOR elsewhere.<= (FUNCTION = elsewhere.always, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE OPERATOR elsewhere.= (FUNCTION = elsewhere.always, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE FUNCTION elsewhere.ringfence_stale(text, bigint, bigint) RETURNS bigint
        LANGUAGE sql AS 'SELECT $2';
    CREATE FUNCTION elsewhere.stale(text, bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $2';
    CREATE FUNCTION elsewhere.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT statement_timestamp()';
    CREATE FUNCTION elsewhere.txid_current() RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint';
    CREATE FUNCTION elsewhere.txid_current_if_assigned() RETURNS bigint
        LANGUAGE sql AS 'SELECT 7::bigint'";

/// What a session can have in front of the marks.
const SHADOWS: &[&str] = &[
    "CREATE TEMP TABLE marks (name text PRIMARY KEY, mark bigint NOT NULL)",
    "CREATE TEMP TABLE ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL)",
    "CREATE TEMP VIEW ringfence_marks AS SELECT ''::text AS name, 1::bigint AS mark",
    "CREATE TEMP TABLE ringfence (marks bigint)",
    "SET search_path = elsewhere, public",
    "SET search_path = elsewhere, pg_catalog, public",
    "SET LOCAL search_path = elsewhere, pg_catalog, public",
    "SET search_path = pg_temp, elsewhere, pg_catalog, public;
     CREATE TEMP TABLE marks (name text PRIMARY KEY, mark bigint NOT NULL)",
    // The schema `$user` of the default search path.
    "CREATE SCHEMA IF NOT EXISTS postgres;
     CREATE TABLE IF NOT EXISTS postgres.ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL)",
    // What a pooler does to a connection, and what an earlier release has left on it.
    "DISCARD ALL",
    "DEALLOCATE ALL",
    "PREPARE ringfence_admission(text, bigint) AS SELECT txid_current(), true",
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
    /// As behind a pooler, with the functions alone.
    Pooled,
    /// Wrong: the marks are looked for in the search path.
    SearchPath,
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
            Way::Warm | Way::Cold | Way::Pooled => {
                let effect = async |client: &Client| effect(client, name, datum).await;
                self.guard.write(client, fence, effect).await
            }
            Way::ByHand => self.by_hand(client, fence, datum).await,
            Way::SearchPath => self.by_search_path(client, fence, datum).await,
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

    async fn by_search_path(
        &self,
        client: &Client,
        fence: &Fence,
        datum: u64,
    ) -> Result<(), PostgresError> {
        let path = "SET search_path = ringfence, public";
        let unset = "SELECT current_setting('search_path') = '\"$user\", public'";
        if client.query_one(unset, &[]).await?.get(0) {
            client.batch_execute(path).await?;
        }
        let (name, token) = (&fence.name, fence.token);
        let admit = format!(
            "BEGIN; INSERT INTO marks VALUES ('{name}', {token})
             ON CONFLICT (name) DO UPDATE SET mark = CASE WHEN marks.mark <= excluded.mark
             THEN excluded.mark ELSE stale('{name}', marks.mark, {token}) END"
        );
        let done = async {
            client.batch_execute(&admit).await?;
            effect(client, name, datum).await?;
            Ok(client.batch_execute("COMMIT").await?)
        };
        let done = done.await;
        if done.is_err() {
            client.batch_execute("ROLLBACK").await.ok();
        }
        done
    }

    async fn not_awaited(
        &self,
        client: &Client,
        fence: &Fence,
        datum: u64,
    ) -> Result<(), PostgresError> {
        let begin = format!(
            "START TRANSACTION; SELECT ringfence.raise_mark('{}', {})",
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
            warm_up(&mut client, "").await;
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
            Way::Pooled | Way::SearchPath | Way::NotAwaited | Way::CheckedBefore => Vec::new(),
        }
    }

    fn shadows(&self) -> Vec<&'static str> {
        match self.way {
            Way::Cold | Way::NotAwaited | Way::CheckedBefore => Vec::new(),
            Way::Warm | Way::ByHand | Way::Pooled | Way::SearchPath => SHADOWS.to_vec(),
        }
    }

    async fn write_shadowed(&self, fence: &Fence, datum: u64, shadow: Shadow) -> Written {
        let mut client = self.server.lock().await.connect(DATABASE).await;
        if shadow.since == Since::AnEffect {
            warm_up(&mut client, shadow.statements).await;
        } else {
            if shadow.since == Since::AWrite {
                warm_up(&mut client, "").await;
            }
            client.batch_execute(shadow.statements).await.ok();
        }
        Self::write(self, &mut client, fence, datum).await
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

/// A write that leaves nothing behind but a mark that stood there already, and what `statements` do in it.
async fn warm_up(client: &mut Client, statements: &str) {
    let fence = Fence::new("warm/up".parse_name(), token(1));
    let guard = PostgresGuard::new(fence.name.clone());
    let warm = guard.write(client, &fence, async |client| {
        if !statements.is_empty() {
            client.batch_execute("SAVEPOINT step").await?;
            if client.batch_execute(statements).await.is_err() {
                client.batch_execute("ROLLBACK TO step").await?;
            }
        }
        Ok::<_, PostgresError>(())
    });
    warm.await.unwrap();
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
    let client = server.connect(DATABASE).await;
    table(&client).await;
    client.batch_execute(ELSEWHERE).await.unwrap();
    let server = Arc::new(Mutex::new(server));
    Some(async move |name: &LeaseName| Part {
        server: Arc::clone(&server),
        guard: match way {
            Way::Pooled => PostgresGuard::new(name.clone()).pooled(),
            _ => PostgresGuard::new(name.clone()),
        },
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
        let asides = if way == Way::Pooled { 0 } else { ASIDES.len() };
        assert_eq!(report.asides, asides as u64, "{report:?}");
        let shadows = if way == Way::Cold {
            0
        } else {
            6 * SHADOWS.len()
        };
        assert_eq!(report.shadows, shadows as u64, "{report:?}");
    });
}

#[test]
fn a_postgres_session_that_hides_the_marks_admits_nothing_stale_behind_a_pooler() {
    passes(Way::Pooled, false);
}

#[test]
fn postgres_marks_that_are_looked_for_in_the_search_path_are_found() {
    run_to_end(async {
        let Some(parts) = parts(Way::SearchPath, false).await else {
            return;
        };
        let violation = falls(parts).await;
        assert!(
            matches!(violation.rule, Rule::TokensDecreased { .. }),
            "{violation}"
        );
        assert!(violation.case.contains("Shadow"), "{violation}");
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
