//! The migration, sent statement by statement.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, ServerError};

use super::MysqlError;
use crate::sql;

/// Services that start together install together.
const LOCK: &str = "SELECT GET_LOCK('ringfence_install', 60)";
const UNLOCK: &str = "DO RELEASE_LOCK('ringfence_install')";

const ENGINE: &str = "SELECT engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'ringfence_marks'";

/// How the migration begins the message about a table of another shape.
const WRONG_SHAPE: &str = "WRONG_SHAPE: ";
const UNKNOWN_COLUMN: u16 = 1054;

pub(super) async fn run(conn: &mut Conn) -> Result<(), MysqlError> {
    let locked: Option<Option<u64>> = conn.query_first(LOCK).await?;
    if locked != Some(Some(1)) {
        return Err(busy().into());
    }
    let done = statements(conn).await;
    conn.query_drop(UNLOCK).await?;
    done
}

async fn statements(conn: &mut Conn) -> Result<(), MysqlError> {
    let engine: Option<String> = conn.query_first(ENGINE).await?;
    if let Some(engine) = engine.filter(|engine| engine != "InnoDB") {
        return Err(MysqlError::WrongEngine { engine });
    }
    for statement in sql::mysql_statements() {
        conn.query_drop(statement).await.map_err(wrong_shape)?;
    }
    Ok(())
}

/// A table without the columns fails at the statements of the migration that name them.
fn wrong_shape(source: mysql_async::Error) -> MysqlError {
    match &source {
        mysql_async::Error::Server(error)
            if error.code == UNKNOWN_COLUMN || error.message.starts_with(WRONG_SHAPE) =>
        {
            let found = error.message.trim_start_matches(WRONG_SHAPE).to_owned();
            MysqlError::WrongShape { found }
        }
        _ => source.into(),
    }
}

/// As the server says it of a lock that was not to be had in time.
fn busy() -> mysql_async::Error {
    mysql_async::Error::Server(ServerError {
        code: 1205,
        message: "another installation holds the lock ringfence_install".to_owned(),
        state: "HY000".to_owned(),
    })
}
