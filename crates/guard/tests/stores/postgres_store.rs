//! The guard in PostgreSQL against the conformance suite, at every isolation level.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::time::Duration;

use ringfence_guard::conformance::{AsyncConnection, AsyncStore, Rule, Step, Stop};
use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName, Refused};
use tokio_postgres::{Client, IsolationLevel};

use crate::servers::Disk;
use crate::servers::postgres::Postgres;
use crate::{fails, passes, run_to_end, withstands_a_crowd};

/// Between two looks at the server's lock table.
const LOOK: Duration = Duration::from_millis(1);

/// How a holder goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With [`PostgresGuard`]; it advances in a transaction whose commit is a step of its own.
    Guard,
    /// With [`PostgresGuard`]; it advances with [`PostgresGuard::advance`], which commits on its
    /// own.
    AdvanceAtOnce,
    /// With the SQL functions, as a service in another language.
    Sql,
    /// Every other connection with the SQL functions.
    Mixed,
    /// Wrong: an equal mark is read, and not written.
    EqualMarkOnlyRead,
}

/// One server and database for all the stores of a run, each with a lease and a row of its own.
struct Whole {
    server: RefCell<Postgres>,
    /// Looks at locks. Made again when the server is.
    watcher: RefCell<Rc<Client>>,
    /// Connections without a transaction, for the next caller.
    idle: RefCell<Vec<(Client, u64)>>,
    connected: Cell<u64>,
    level: IsolationLevel,
    way: Way,
}

const DATABASE: &str = "store";

impl Whole {
    async fn start(level: IsolationLevel, way: Way) -> Option<Rc<Self>> {
        let server = Postgres::start(Disk::Memory)?;
        let client = server.connect("postgres").await;
        let create = format!("CREATE DATABASE {DATABASE}");
        client.batch_execute(&create).await.unwrap();
        let client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        let table = "CREATE TABLE datum (name text PRIMARY KEY, value bigint NOT NULL)";
        client.batch_execute(table).await.unwrap();
        Some(Rc::new(Self {
            server: RefCell::new(server),
            watcher: RefCell::new(Rc::new(client)),
            idle: RefCell::default(),
            connected: Cell::new(0),
            level,
            way,
        }))
    }

    fn part(self: &Rc<Self>, name: &LeaseName) -> Part {
        Part {
            guard: PostgresGuard::new(name.clone()),
            whole: Rc::clone(self),
        }
    }

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "the server is only replaced when no connection is being made"
    )]
    async fn reconnect(&self) {
        self.idle.borrow_mut().clear();
        let client = self.server.borrow().connect(DATABASE).await;
        *self.watcher.borrow_mut() = Rc::new(client);
    }
}

struct Part {
    guard: PostgresGuard,
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
        let (client, id) = match idle {
            Some(idle) => idle,
            None => {
                let client = whole.server.borrow().connect(DATABASE).await;
                let ask = "SELECT pg_backend_pid()";
                let pid: i32 = client.query_one(ask, &[]).await.unwrap().get(0);
                (client, u64::from(pid.unsigned_abs()))
            }
        };
        whole.connected.set(whole.connected.get() + 1);
        let way = match whole.way {
            Way::Mixed if whole.connected.get().is_multiple_of(2) => Way::Sql,
            Way::Mixed => Way::Guard,
            way => way,
        };
        Holder {
            client: Some(client),
            id,
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
        let client = holder.client.as_mut().unwrap();
        self.guard.advance_to(client, floor).await.unwrap();
    }

    async fn until_blocked(&self, connection: u64) {
        let watcher = Rc::clone(&self.whole.watcher.borrow());
        let pid = i32::try_from(connection).unwrap();
        let ask = "SELECT cardinality(pg_blocking_pids($1)) > 0";
        while !watcher
            .query_one(ask, &[&pid])
            .await
            .unwrap()
            .get::<_, bool>(0)
        {
            tokio::time::sleep(LOOK).await;
        }
    }
}

struct Holder {
    /// `None` only while it is dropped.
    client: Option<Client>,
    id: u64,
    way: Way,
    /// Whether a transaction is open.
    open: bool,
    guard: PostgresGuard,
    whole: Rc<Whole>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One with an open transaction is cut off, as if its process had died.
        if let Some(client) = self.client.take().filter(|_| !self.open) {
            self.whole.idle.borrow_mut().push((client, self.id));
        }
    }
}

/// What an error means to the suite's scheduler.
fn stop(error: PostgresError) -> Stop {
    match error {
        PostgresError::Refused(refused) => Stop::Refused(refused),
        PostgresError::Conflict { .. } => Stop::Restart,
        other => Stop::Broken(format!("{other:?}")),
    }
}

impl Holder {
    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    /// Leaves the transaction open for the steps that follow.
    async fn begin(&mut self) -> Step {
        self.abort().await;
        let level = self.whole.level;
        let client = self.client.as_mut().unwrap();
        let transaction = client.build_transaction().isolation_level(level).start();
        mem::forget(
            transaction
                .await
                .map_err(PostgresError::from)
                .map_err(stop)?,
        );
        self.open = true;
        Ok(())
    }

    async fn begin_and_admit(&mut self, fence: Option<&str>) -> Step {
        if self.way == Way::Sql {
            self.begin().await?;
            return self.admit_in_sql(fence).await;
        }
        let fence = Fence::receive(self.guard.name(), fence)?;
        if self.way == Way::EqualMarkOnlyRead {
            self.begin().await?;
            let mark = self.guard.mark(self.client()).await.map_err(stop)?;
            if mark == Some(fence.token) {
                return Ok(());
            }
        }
        self.abort().await;
        let guard = self.guard.clone().isolation(self.whole.level);
        let guarded = guard.begin(self.client.as_mut().unwrap(), &fence).await;
        // Left open for the steps that follow.
        mem::forget(guarded.map_err(stop)?);
        self.open = true;
        Ok(())
    }

    /// As a service would that knows nothing but the migration.
    async fn admit_in_sql(&self, fence: Option<&str>) -> Step {
        let name = self.guard.name();
        let admit = "SELECT ringfence.admit($1, ringfence.token($1, $2))";
        let admitted = self.client().query(admit, &[&name.as_str(), &fence]).await;
        let Err(error) = admitted else { return Ok(()) };
        let Some(told) = error.as_db_error() else {
            return Err(Stop::Broken(error.to_string()));
        };
        // SQL and this crate must agree on what is wrong with a fence.
        let refused = match Fence::receive(name, fence) {
            Ok(fence) => Refused::from_sqlstate(&fence, told.code().code(), told.detail()),
            Err(refused) => Some(refused),
        };
        if let Some(refused) = refused
            && told.message().starts_with(refused.reason())
        {
            return Err(refused.into());
        }
        Err(stop(error.into()))
    }

    async fn run(&self, sql: &str, value: Option<i64>) -> Step {
        let name = self.guard.name().as_str();
        let done = match &value {
            Some(value) => self.client().execute(sql, &[&name, value]).await,
            None => self.client().execute(sql, &[&name]).await,
        };
        done.map(drop).map_err(PostgresError::from).map_err(stop)
    }
}

impl AsyncConnection for Holder {
    fn id(&self) -> u64 {
        self.id
    }

    async fn admit(&mut self, fence: Option<&str>) -> Step {
        self.begin_and_admit(fence).await
    }

    async fn advance(&mut self, fence: &str) -> Step {
        if self.way != Way::AdvanceAtOnce {
            return self.begin_and_admit(Some(fence)).await;
        }
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        let client = self.client.as_mut().unwrap();
        let advanced = self.guard.advance(client, &fence).await;
        advanced.map(drop).map_err(stop)
    }

    async fn read(&mut self) -> Step<Option<u64>> {
        let name = self.guard.name().as_str();
        let select = "SELECT value FROM datum WHERE name = $1";
        let row = self.client().query_opt(select, &[&name]).await;
        let row = row.map_err(PostgresError::from).map_err(stop)?;
        Ok(row.map(|row| row.get::<_, i64>(0).unsigned_abs()))
    }

    async fn write(&mut self, datum: Option<u64>) -> Step {
        let Some(value) = datum else {
            return self.run("DELETE FROM datum WHERE name = $1", None).await;
        };
        let insert = "INSERT INTO datum VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.run(insert, i64::try_from(value).ok()).await
    }

    async fn commit(&mut self) -> Step {
        if !mem::take(&mut self.open) {
            return Ok(());
        }
        let committed = self.client().batch_execute("COMMIT").await;
        committed.map_err(PostgresError::from).map_err(stop)
    }

    async fn abort(&mut self) {
        if mem::take(&mut self.open) {
            self.client().batch_execute("ROLLBACK").await.unwrap();
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
fn read_committed_passes_the_suite() {
    stepped(IsolationLevel::ReadCommitted, Way::Guard);
}

#[test]
fn read_committed_passes_the_suite_with_sql_and_crate_side_by_side() {
    stepped(IsolationLevel::ReadCommitted, Way::Mixed);
}

#[test]
fn repeatable_read_passes_the_suite() {
    stepped(IsolationLevel::RepeatableRead, Way::AdvanceAtOnce);
}

#[test]
fn repeatable_read_passes_the_suite_with_sql_alone() {
    stepped(IsolationLevel::RepeatableRead, Way::Sql);
}

#[test]
fn serializable_passes_the_suite() {
    stepped(IsolationLevel::Serializable, Way::Guard);
}

#[test]
fn a_crowd_of_writers_loses_nothing_at_any_isolation_level() {
    run_to_end(async {
        for level in [
            IsolationLevel::ReadCommitted,
            IsolationLevel::RepeatableRead,
            IsolationLevel::Serializable,
        ] {
            let Some(whole) = Whole::start(level, Way::Mixed).await else {
                return;
            };
            withstands_a_crowd(async |name: &LeaseName| whole.part(name)).await;
        }
    });
}

#[test]
fn an_equal_mark_that_is_not_written_is_found_at_every_isolation_level() {
    run_to_end(async {
        for level in [
            IsolationLevel::ReadCommitted,
            IsolationLevel::RepeatableRead,
            IsolationLevel::Serializable,
        ] {
            let Some(whole) = Whole::start(level, Way::EqualMarkOnlyRead).await else {
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
