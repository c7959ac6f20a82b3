//! The guard in MariaDB against the conformance suite, at every isolation level.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, IsolationLevel};
use ringfence_guard::conformance::{AsyncConnection, AsyncStore, Rule, Step, Stop};
use ringfence_guard::mysql::{Connection, MysqlError, MysqlGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName, Refused};

use tokio::sync::Mutex;

use crate::servers::Disk;
use crate::servers::mysql::Mysql;
use crate::{fails, passes, run_to_end, withstands_a_crowd};

/// Between two looks at the server's lock waits.
const LOOK: Duration = Duration::from_millis(1);

pub(crate) const LEVELS: [IsolationLevel; 4] = [
    IsolationLevel::ReadUncommitted,
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

/// How a holder goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With [`MysqlGuard`]; it advances in a transaction whose commit is a step of its own.
    Guard,
    /// With [`MysqlGuard`]; it advances with [`MysqlGuard::advance`], which commits on its own.
    AdvanceAtOnce,
    /// With the procedures, as a service in another language.
    Sql,
    /// The same, on sessions with `autocommit = 0`.
    SqlWithoutAutocommit,
    /// Every other connection with the procedures.
    Mixed,
    /// Wrong: an equal mark is read, and not written.
    EqualMarkOnlyRead,
}

/// One server and database for all the stores of a run, each with a lease and a row of its own.
struct Whole {
    server: RefCell<Mysql>,
    /// Looks at locks. Made again when the server is.
    watcher: Arc<Mutex<Conn>>,
    /// Connections without a transaction, for the next caller.
    idle: RefCell<Vec<Connection>>,
    connected: Cell<u64>,
    level: IsolationLevel,
    way: Way,
}

const DATABASE: &str = "store";

impl Whole {
    async fn start(level: IsolationLevel, way: Way) -> Option<Rc<Self>> {
        let server = Mysql::start(Disk::Memory)?;
        let mut conn = server.connect("mysql").await;
        let create = format!("CREATE DATABASE {DATABASE}");
        conn.query_drop(create).await.unwrap();
        let mut conn = server.connect(DATABASE).await;
        MysqlGuard::install(&mut conn).await.unwrap();
        let table = "CREATE TABLE datum (name VARCHAR(255) PRIMARY KEY, value BIGINT NOT NULL)";
        conn.query_drop(table).await.unwrap();
        Some(Rc::new(Self {
            server: RefCell::new(server),
            watcher: Arc::new(Mutex::new(conn)),
            idle: RefCell::default(),
            connected: Cell::new(0),
            level,
            way,
        }))
    }

    fn part(self: &Rc<Self>, name: &LeaseName) -> Part {
        Part {
            guard: MysqlGuard::new(name.clone()).isolation(self.level),
            whole: Rc::clone(self),
        }
    }

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "the server is only replaced when no connection is being made"
    )]
    async fn reconnect(&self) {
        self.idle.borrow_mut().clear();
        let conn = self.server.borrow().connect(DATABASE).await;
        *self.watcher.lock().await = conn;
    }
}

struct Part {
    guard: MysqlGuard,
    whole: Rc<Whole>,
}

impl AsyncStore for Part {
    type Connection = Holder;
    type Backup = Vec<u8>;

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "the server is only replaced when no connection is being made"
    )]
    async fn connect(&self) -> Holder {
        let whole = &self.whole;
        let idle = whole.idle.borrow_mut().pop();
        let connection = match idle {
            Some(idle) => idle,
            None => {
                let mut conn = whole.server.borrow().connect(DATABASE).await;
                let level = format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", whole.level);
                conn.query_drop(level).await.unwrap();
                if whole.way == Way::SqlWithoutAutocommit {
                    conn.query_drop("SET autocommit = 0").await.unwrap();
                }
                Connection::new(conn)
            }
        };
        whole.connected.set(whole.connected.get() + 1);
        let way = match whole.way {
            Way::Mixed if whole.connected.get().is_multiple_of(2) => Way::Sql,
            Way::Mixed => Way::Guard,
            way => way,
        };
        Holder {
            connection: Some(connection),
            way,
            open: false,
            guard: self.guard.clone(),
            whole: Rc::clone(whole),
        }
    }

    async fn reopen(&mut self) {
        self.whole.server.borrow_mut().crash();
        self.whole.reconnect().await;
    }

    async fn backup(&self) -> Vec<u8> {
        self.whole.server.borrow().dump(DATABASE)
    }

    async fn restore(&mut self, backup: Vec<u8>) {
        self.whole.server.borrow().load(DATABASE, &backup);
        self.whole.reconnect().await;
    }

    async fn advance_to(&mut self, floor: FencingToken) {
        let mut holder = self.connect().await;
        let connection = holder.connection.as_mut().unwrap();
        self.guard.advance_to(connection, floor).await.unwrap();
    }

    async fn until_blocked(&self, connection: u64) {
        // The tables of the information schema are a tenth of a second old; this is not.
        let ask = "SHOW ENGINE INNODB STATUS";
        let thread = format!("thread id {connection},");
        loop {
            // A task reads the answer to its end also where this future is dropped meanwhile.
            let watcher = Arc::clone(&self.whole.watcher);
            let look = tokio::spawn(async move { watcher.lock().await.query_first(ask).await });
            let status: Option<(String, String, String)> = look.await.unwrap().unwrap();
            let status = status.unwrap().2;
            let mut transactions = status.split("---TRANSACTION");
            if transactions.any(|one| one.contains("LOCK WAIT") && one.contains(&thread)) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

struct Holder {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    way: Way,
    /// Whether a transaction is open.
    open: bool,
    guard: MysqlGuard,
    whole: Rc<Whole>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One with an open transaction is cut off, as if its process had died.
        if let Some(connection) = self.connection.take().filter(|_| !self.open) {
            self.whole.idle.borrow_mut().push(connection);
        }
    }
}

/// What an error means to the suite's scheduler.
fn stop(error: MysqlError) -> Stop {
    match error {
        MysqlError::Refused(refused) => Stop::Refused(refused),
        MysqlError::Conflict { .. } => Stop::Restart,
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Holder {
    fn conn(&mut self) -> &mut Conn {
        self.connection.as_mut().unwrap().get().unwrap()
    }

    async fn run(&mut self, sql: &str) -> Step {
        let done = self.conn().query_drop(sql).await;
        done.map_err(MysqlError::from).map_err(stop)
    }

    /// Ends the transaction, as [`MysqlGuard::write`] does.
    async fn end(&mut self, statement: &str) -> Step {
        self.run(statement).await?;
        if self.way == Way::SqlWithoutAutocommit {
            return Ok(());
        }
        self.run("SET autocommit = 1").await
    }

    async fn begin_and_admit(&mut self, fence: Option<&str>) -> Step {
        self.abort().await;
        match self.way {
            Way::Sql => {
                self.run("START TRANSACTION READ WRITE").await?;
                self.open = true;
                return self.admit_in_sql(fence).await;
            }
            Way::SqlWithoutAutocommit => {
                self.open = true;
                return self.admit_in_sql(fence).await;
            }
            _ => {}
        }
        let fence = Fence::receive(self.guard.name(), fence)?;
        if self.way == Way::EqualMarkOnlyRead {
            let guard = self.guard.clone();
            self.run("START TRANSACTION READ WRITE").await?;
            self.open = true;
            let mark = guard.mark(self.conn()).await.map_err(stop)?;
            if mark == Some(fence.token) {
                return Ok(());
            }
            self.abort().await;
        }
        let connection = self.connection.as_mut().unwrap();
        let guarded = self.guard.begin(connection, &fence).await;
        // Left open for the steps that follow.
        mem::forget(guarded.map_err(stop)?);
        self.open = true;
        Ok(())
    }

    /// As a service would that knows nothing but the migration.
    async fn admit_in_sql(&mut self, fence: Option<&str>) -> Step {
        let name = self.guard.name().clone();
        let admit = "CALL ringfence_admit_fence(?, ?)";
        let admitted = self.conn().exec_drop(admit, (name.as_str(), fence)).await;
        let Err(error) = admitted else { return Ok(()) };
        let mysql_async::Error::Server(told) = &error else {
            return Err(Stop::Broken(error.to_string()));
        };
        // SQL and this crate must agree on what is wrong with a fence.
        let refused = match Fence::receive(&name, fence) {
            Ok(fence) => Refused::from_message(&fence, &told.message),
            Err(refused) => Some(refused),
        };
        if let Some(refused) = refused
            && told.message.starts_with(refused.reason())
            && told.state == "45000"
        {
            return Err(refused.into());
        }
        Err(stop(error.into()))
    }
}

impl AsyncConnection for Holder {
    fn id(&self) -> u64 {
        let connection = self.connection.as_ref();
        connection.map_or(0, |connection| u64::from(connection.id().unwrap_or(0)))
    }

    async fn admit(&mut self, fence: Option<&str>) -> Step {
        self.begin_and_admit(fence).await
    }

    async fn advance(&mut self, fence: &str) -> Step {
        if self.way != Way::AdvanceAtOnce {
            return self.begin_and_admit(Some(fence)).await;
        }
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        let connection = self.connection.as_mut().unwrap();
        let advanced = self.guard.advance(connection, &fence).await;
        advanced.map(drop).map_err(stop)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        let name = self.guard.name().as_str().to_owned();
        let select = "SELECT value FROM datum WHERE name = ?";
        if !self.open && self.whole.level == IsolationLevel::ReadUncommitted {
            // One who has not advanced would see what a holder that is cut off leaves behind, until the
            // server has rolled it back.
            let level = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
            self.run(level).await?;
        }
        let value = self.conn().exec_first(select, (name,)).await;
        let value = value.map_err(MysqlError::from).map_err(stop)?;
        if !self.open && self.way == Way::SqlWithoutAutocommit {
            // The read has begun a transaction, whose snapshot later ones would see.
            self.run("ROLLBACK").await?;
        }
        Ok(value)
    }

    async fn write(&mut self, datum: Option<u64>) -> Step {
        let name = self.guard.name().as_str().to_owned();
        let done = match datum {
            None => {
                let delete = "DELETE FROM datum WHERE name = ?";
                self.conn().exec_drop(delete, (name,)).await
            }
            Some(value) => {
                let insert = "INSERT INTO datum VALUES (?, ?) ON DUPLICATE KEY UPDATE value = ?";
                self.conn().exec_drop(insert, (name, value, value)).await
            }
        };
        done.map_err(MysqlError::from).map_err(stop)
    }

    async fn commit(&mut self) -> Step {
        if !mem::take(&mut self.open) {
            return Ok(());
        }
        self.end("COMMIT").await
    }

    async fn abort(&mut self) {
        if mem::take(&mut self.open) {
            self.end("ROLLBACK").await.unwrap();
        }
    }
}

fn stepped(level: IsolationLevel, way: Way) {
    run_to_end(async {
        let Some(whole) = Whole::start(level, way).await else {
            return;
        };
        let report = passes(async |name: &LeaseName| whole.part(name)).await;
        assert!(report.blocked > 0, "no step ever met a lock: {report:?}");
    });
}

#[test]
fn mysql_read_uncommitted_passes_the_suite() {
    stepped(IsolationLevel::ReadUncommitted, Way::Guard);
}

#[test]
fn mysql_read_committed_passes_the_suite_with_sql_and_crate_side_by_side() {
    stepped(IsolationLevel::ReadCommitted, Way::Mixed);
}

#[test]
fn mysql_repeatable_read_passes_the_suite() {
    stepped(IsolationLevel::RepeatableRead, Way::AdvanceAtOnce);
}

#[test]
fn mysql_repeatable_read_passes_the_suite_with_sql_alone() {
    stepped(IsolationLevel::RepeatableRead, Way::Sql);
}

#[test]
fn mysql_read_committed_passes_the_suite_without_autocommit() {
    stepped(IsolationLevel::ReadCommitted, Way::SqlWithoutAutocommit);
}

#[test]
fn mysql_serializable_passes_the_suite() {
    stepped(IsolationLevel::Serializable, Way::Guard);
}

#[test]
fn a_crowd_of_writers_to_mysql_loses_nothing_at_any_isolation_level() {
    run_to_end(async {
        for level in LEVELS {
            let Some(whole) = Whole::start(level, Way::Mixed).await else {
                return;
            };
            withstands_a_crowd(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

/// A transaction that is serializable locks what it reads, so it alone gets by with that.
#[test]
fn an_equal_mark_that_is_not_written_to_mysql_is_found() {
    run_to_end(async {
        for level in &LEVELS[..3] {
            let Some(whole) = Whole::start(*level, Way::EqualMarkOnlyRead).await else {
                return;
            };
            let violation = fails(async |name: &LeaseName| whole.part(name)).await;
            assert!(
                matches!(violation.rule, Rule::TokensDecreased { .. }),
                "{violation}"
            );
        }
    });
}
