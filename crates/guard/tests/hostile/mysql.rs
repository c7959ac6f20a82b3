//! MariaDB behind a proxy that disturbs each message of a guarded write.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use ringfence_guard::conformance::{
    Aside, Disturbed, Fault, Held, Hit, HostileStore, Rule, Shadow, Since, Written,
};
use ringfence_guard::mysql::{Connection, MysqlError, MysqlGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use tokio::sync::Mutex;

use crate::servers::Disk;
use crate::servers::mysql::Mysql;
use crate::servers::proxy::Outside;
use crate::{falls, run_to_end, withstands};

const DATABASE: &str = "hostile";

/// Kill requests per disturbed step: one alone rarely meets it.
const KILLS: usize = 3;

/// What an effect can do to its transaction.
const ASIDES: &[Aside] = &[
    Aside::Ends("COMMIT"),
    Aside::Ends("ROLLBACK"),
    Aside::Ends("SAVEPOINT step; COMMIT"),
    Aside::Ends("COMMIT AND CHAIN"),
    Aside::Ends("ROLLBACK AND CHAIN"),
    Aside::Ends("COMMIT; START TRANSACTION"),
    Aside::Ends("ROLLBACK; START TRANSACTION READ WRITE"),
    Aside::Ends("ROLLBACK; START TRANSACTION READ WRITE; SAVEPOINT step"),
    // What commits implicitly.
    Aside::Ends("BEGIN"),
    Aside::Ends("START TRANSACTION READ WRITE"),
    Aside::Ends("CREATE TABLE more (value INT)"),
    Aside::Ends("SET autocommit = 0; COMMIT"),
    // Of the marks themselves.
    Aside::Ends("RENAME TABLE ringfence_marks TO other_marks"),
    Aside::Ends("DROP TABLE ringfence_marks"),
    Aside::Ends("TRUNCATE TABLE ringfence_marks"),
    Aside::Ends("DROP TRIGGER ringfence_marks_seen"),
    Aside::Ends("CREATE OR REPLACE TABLE ringfence_marks (name VARCHAR(255), mark BIGINT)"),
    Aside::Stays("SAVEPOINT step; DELETE FROM pair; ROLLBACK TO step"),
    Aside::Stays("SAVEPOINT step; SAVEPOINT inside; RELEASE SAVEPOINT step"),
    Aside::Stays("SET autocommit = 0"),
];

/// What a session can have in front of the marks. A temporary table comes first under its full name, too.
const SHADOWS: &[&str] = &[
    "CREATE TEMPORARY TABLE ringfence_marks (
        name VARCHAR(255) PRIMARY KEY, mark BIGINT, admissions BIGINT DEFAULT 1)",
    "CREATE TEMPORARY TABLE ringfence_marks LIKE elsewhere.ringfence_marks",
    "CREATE TEMPORARY TABLE ringfence_marks ENGINE = MEMORY SELECT * FROM ringfence_marks",
    "CREATE TEMPORARY TABLE ringfence_marks LIKE elsewhere.ringfence_marks; SET @ringfence_seen = 9",
    "USE elsewhere",
    "SET sql_mode = ''",
];

/// How a holder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With [`MysqlGuard::write`].
    Guard,
    /// With [`MysqlGuard::begin`].
    ByHand,
    /// Wrong: the check is a transaction of its own.
    CheckedBefore,
    /// Wrong: whatever table has the name is written.
    AnyTable,
}

struct Part {
    server: Arc<Mutex<Mysql>>,
    guard: MysqlGuard,
    way: Way,
    /// Restarting takes long, and the first messages are the same in several ways.
    restarts: bool,
    /// The server's number of the connection that was disturbed last.
    disturbed: Mutex<u32>,
}

/// Writes both data, each with a statement of its own: one as a text, one prepared.
async fn effect(conn: &mut Conn, name: &LeaseName, datum: u64) -> Result<(), MysqlError> {
    let first = format!(
        "INSERT INTO hostile.pair (name, first) VALUES ('{name}', {datum})
         ON DUPLICATE KEY UPDATE first = {datum}"
    );
    conn.query_drop(&first).await?;
    let second = "INSERT INTO hostile.pair (name, second) VALUES (?, ?)
         ON DUPLICATE KEY UPDATE second = ?";
    conn.exec_drop(second, (name.as_str(), datum, datum))
        .await?;
    Ok(())
}

pub(crate) fn written(done: Result<(), MysqlError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(MysqlError::Refused(refused)) => Written::Refused(refused),
        Err(error @ MysqlError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

async fn by_name(conn: &mut Conn, fence: &Fence, datum: u64) -> Result<(), MysqlError> {
    let (name, token) = (&fence.name, fence.token);
    let admit = format!(
        "INSERT INTO hostile.ringfence_marks (name, mark) VALUES ('{name}', {token})
         ON DUPLICATE KEY UPDATE mark = GREATEST(mark, {token})"
    );
    let look = format!("SELECT mark FROM hostile.ringfence_marks WHERE name = '{name}'");
    conn.query_drop("START TRANSACTION").await?;
    conn.query_drop(admit).await?;
    let mark: Option<u64> = conn.query_first(look).await?;
    let mark = FencingToken::new(mark.unwrap()).unwrap();
    if mark > token {
        return Err(fence.overtaken_by(mark).into());
    }
    effect(conn, name, datum).await?;
    Ok(conn.query_drop("COMMIT").await?)
}

/// A write of another lease, and what `statements` do in it.
async fn warm_up(connection: &mut Connection, statements: &'static str) {
    let fence: Fence = "warm/up#1".parse().unwrap();
    let guard = MysqlGuard::new(fence.name.clone());
    let warm = guard.write(connection, &fence, async |conn| {
        if !statements.is_empty() {
            conn.query_drop(statements).await.ok();
        }
        Ok::<_, MysqlError>(())
    });
    warm.await.unwrap();
}

impl Part {
    async fn write(&self, connection: &mut Connection, fence: &Fence, datum: u64) -> Written {
        let name = self.guard.name();
        written(match self.way {
            Way::Guard => {
                let effect = async |conn: &mut Conn| effect(conn, name, datum).await;
                self.guard.write(connection, fence, effect).await
            }
            Way::ByHand => self.by_hand(connection, fence, datum).await,
            Way::CheckedBefore => match self.guard.advance(connection, fence).await {
                Ok(_) => effect(connection.get().unwrap(), name, datum).await,
                Err(error) => Err(error),
            },
            Way::AnyTable => {
                let conn = connection.get().unwrap();
                let done = by_name(conn, fence, datum).await;
                if done.is_err() {
                    conn.query_drop("ROLLBACK").await.unwrap();
                }
                done
            }
        })
    }

    async fn by_hand(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        datum: u64,
    ) -> Result<(), MysqlError> {
        let mut guarded = self.guard.begin(connection, fence).await?;
        effect(guarded.conn()?, &fence.name, datum).await?;
        guarded.commit().await
    }
}

/// What the faults need from outside of the connection.
async fn outside(server: &Arc<Mutex<Mysql>>, hit: Hit, id: u32) -> Outside {
    match hit {
        Hit::Cancelled => {
            let killer = server.lock().await.connect(DATABASE).await;
            let killer = Arc::new(Mutex::new(killer));
            Arc::new(move || {
                let killer = Arc::clone(&killer);
                Box::pin(async move {
                    for _ in 0..KILLS {
                        let kill = format!("KILL QUERY {id}");
                        killer.lock().await.query_drop(kill).await.ok();
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
        let (conn, hand) = connecting.await;
        let mut connection = Connection::new(conn);
        let id = connection.id().unwrap();
        *self.disturbed.lock().await = id;
        if let Some(fault) = fault {
            hand.arm(fault, outside(&self.server, fault.hit, id).await);
        }
        let written = Self::write(self, &mut connection, fence, datum).await;
        let reached = hand.disarm();
        drop(connection);
        hand.ended().await;
        Disturbed { written, reached }
    }

    fn asides(&self) -> Vec<Aside> {
        match self.way {
            Way::Guard | Way::ByHand => ASIDES.to_vec(),
            Way::CheckedBefore | Way::AnyTable => Vec::new(),
        }
    }

    fn shadows(&self) -> Vec<&'static str> {
        match self.way {
            Way::Guard | Way::ByHand | Way::AnyTable => SHADOWS.to_vec(),
            Way::CheckedBefore => Vec::new(),
        }
    }

    async fn write_shadowed(&self, fence: &Fence, datum: u64, shadow: Shadow) -> Written {
        let conn = self.server.lock().await.connect(DATABASE).await;
        let mut connection = Connection::new(conn);
        if shadow.since == Since::AnEffect {
            warm_up(&mut connection, shadow.statements).await;
        } else {
            if shadow.since == Since::AWrite {
                warm_up(&mut connection, "").await;
            }
            let conn = connection.get().unwrap();
            conn.query_drop(shadow.statements).await.ok();
        }
        Self::write(self, &mut connection, fence, datum).await
    }

    async fn write_aside(
        &self,
        fence: &Fence,
        datum: u64,
        aside: Aside,
        meanwhile: impl AsyncFn(),
    ) -> Written {
        let conn = self.server.lock().await.connect(DATABASE).await;
        let mut connection = Connection::new(conn);
        let effect = async |conn: &mut Conn| {
            conn.query_drop(aside.statements()).await.ok();
            meanwhile().await;
            effect(conn, &fence.name, datum).await.ok();
            Ok(())
        };
        if self.way == Way::Guard {
            return written(self.guard.write(&mut connection, fence, effect).await);
        }
        written(match self.guard.begin(&mut connection, fence).await {
            Err(error) => Err(error),
            Ok(mut guarded) => {
                let done: Result<(), MysqlError> = effect(guarded.conn().unwrap()).await;
                done.unwrap();
                guarded.commit().await
            }
        })
    }

    async fn look(&self) -> Held {
        let mut conn = self.server.lock().await.connect(DATABASE).await;
        let id = *self.disturbed.lock().await;
        // After a restart this connection may have the number.
        let gone = "SELECT COUNT(*) FROM information_schema.processlist
            WHERE id = ? AND id <> CONNECTION_ID()";
        while conn.exec_first(gone, (id,)).await.unwrap() != Some(0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let name = self.guard.name().as_str();
        let pair = "SELECT first, second FROM pair WHERE name = ?";
        let row: Option<(Option<u64>, Option<u64>)> = conn.exec_first(pair, (name,)).await.unwrap();
        let (first, second) = row.unwrap_or_default();
        Held {
            mark: self.guard.mark(&mut conn).await.unwrap(),
            first,
            second,
        }
    }
}

/// Makes parts of one server for the suite.
async fn parts(way: Way, restarts: bool) -> Option<impl AsyncFn(&LeaseName) -> Part> {
    let server = Mysql::start(Disk::Memory)?;
    let mut conn = server.connect("mysql").await;
    let create = format!("CREATE DATABASE {DATABASE}");
    conn.query_drop(create).await.unwrap();
    let mut conn = server.connect(DATABASE).await;
    MysqlGuard::install(&mut conn).await.unwrap();
    let pair = "CREATE TABLE pair (name VARCHAR(255) PRIMARY KEY, first BIGINT, second BIGINT)";
    conn.query_drop(pair).await.unwrap();
    let elsewhere =
        "CREATE DATABASE elsewhere; CREATE TABLE elsewhere.ringfence_marks LIKE ringfence_marks";
    conn.query_drop(elsewhere).await.unwrap();
    let server = Arc::new(Mutex::new(server));
    Some(async move |name: &LeaseName| Part {
        server: Arc::clone(&server),
        guard: MysqlGuard::new(name.clone()),
        way,
        restarts,
        disturbed: Mutex::new(0),
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
        assert_eq!(report.shadows, 6 * SHADOWS.len() as u64, "{report:?}");
    });
}

#[test]
fn a_mysql_write_that_fails_at_any_message_has_committed_nothing() {
    passes(Way::Guard, true);
}

#[test]
fn a_mysql_transaction_by_hand_that_fails_has_committed_nothing() {
    passes(Way::ByHand, false);
}

#[test]
fn mysql_effects_that_are_not_in_the_admitted_transaction_are_found() {
    run_to_end(async {
        let Some(parts) = parts(Way::CheckedBefore, false).await else {
            return;
        };
        let violation = falls(parts).await;
        assert!(
            matches!(violation.rule, Rule::CommittedAfterAll { .. }),
            "{violation}"
        );
    });
}

#[test]
fn mysql_marks_of_any_table_of_the_name_are_found() {
    run_to_end(async {
        let Some(parts) = parts(Way::AnyTable, false).await else {
            return;
        };
        let violation = falls(parts).await;
        let stale = matches!(violation.rule, Rule::TokensDecreased { .. });
        assert!(stale && violation.case.contains("Shadow"), "{violation}");
    });
}

/// Tokens are exact to the greatest that there is.
#[test]
fn the_greatest_token_comes_back_from_mysql_as_it_went() {
    run_to_end(async {
        let Some(parts) = parts(Way::Guard, false).await else {
            return;
        };
        let part = parts(&LeaseName::parse("a").unwrap()).await;
        let most = FencingToken::new(FencingToken::MAX).unwrap();
        let conn = part.server.lock().await.connect(DATABASE).await;
        let mut connection = Connection::new(conn);
        part.guard.advance_to(&mut connection, most).await.unwrap();
        assert_eq!(part.look().await.mark, Some(most));
    });
}
