//! The guards' SQL and Lua as texts, for services whose driver has no module here: `sqlx`, `diesel`,
//! `sea-orm`, `postgres`, or another language.
//!
//! The rules are those of the [crate]: the admission comes first in the transaction of the
//! data, a new holder advances and commits that before its first read. Await the answer of the
//! admission before anything else is sent: a statement that was pipelined behind it runs in a
//! transaction of its own, and commits, if the message that opens the transaction fails.
//!
//! What PostgreSQL refuses is an error with the `SQLSTATE` `RF001`; read it with
//! [`Refused::from_sqlstate`](crate::Refused::from_sqlstate), or, where the driver shows no
//! `SQLSTATE`, with [`Refused::from_message`](crate::Refused::from_message), which also reads the
//! errors of MySQL, SQLite and Redis.
//!
//! The page "How to check a token", `client/TOKENS.md` in the repository, has this for `sqlx`, JDBC,
//! node-postgres and others as functions to copy, which tests run as printed.

/// The table of marks and the functions around it in PostgreSQL, as a migration to be run once per
/// database. Running it again changes nothing. All are in the schema `ringfence`, and are named with it.
pub const POSTGRES_MIGRATION: &str = include_str!("../sql/postgres.sql");

/// Admits a token for the rest of the transaction: `$1` is the lease's name, `$2` the token as a
/// `bigint`. Must be the transaction's first statement. The server judges the ceiling, by its own clock
/// and its setting `ringfence.ceiling`.
pub const POSTGRES_ADMIT: &str = "SELECT ringfence.admit($1::pg_catalog.text, $2::bigint)";

/// Raises the mark to the token of a new grant, in a transaction of its own and before its holder's
/// first read. Parameters as in [`POSTGRES_ADMIT`].
pub const POSTGRES_ADVANCE: &str = "SELECT ringfence.advance($1::pg_catalog.text, $2::bigint)";

/// Raises the mark if it is lower, after a restore. Parameters as in [`POSTGRES_ADMIT`].
pub const POSTGRES_ADVANCE_TO: &str =
    "SELECT ringfence.advance_to($1::pg_catalog.text, $2::bigint)";

/// The mark of the lease `$1`, as a `bigint`; no row if there is none. Advice for people.
pub const POSTGRES_MARK: &str = "SELECT mark FROM ringfence.marks \
     WHERE name OPERATOR(pg_catalog.=) $1::pg_catalog.text";

/// The table of marks and the procedures around it in MariaDB and MySQL, as a migration to be run once
/// per database with their clients, `mariadb` or `mysql`. Running it again changes nothing.
/// [`mysql_statements`] has it for drivers.
pub const MYSQL_MIGRATION: &str = include_str!("../sql/mysql.sql");

/// The statements of [`MYSQL_MIGRATION`], each to be sent on its own: drivers do not know the clients'
/// command `DELIMITER`.
pub fn mysql_statements() -> impl Iterator<Item = &'static str> {
    const COMMAND: &str = "DELIMITER ";
    let parts = MYSQL_MIGRATION.split(COMMAND).enumerate();
    let statements = parts.flat_map(|(part, text)| {
        // Behind the command stands the delimiter, up to the end of its line.
        let (delimiter, text) = match part {
            0 => (";\n", text),
            _ => text.split_once('\n').unwrap_or(("", text)),
        };
        text.split(delimiter)
    });
    statements.map(str::trim).filter(|statement| {
        let mut lines = statement.lines();
        lines.any(|line| !line.is_empty() && !line.starts_with("--"))
    })
}

/// Admits a token for the rest of the transaction: the parameters are the lease's name and the token. Must
/// be the transaction's first statement. A refusal is an error whose message begins with its reason; read it
/// with [`Refused::from_message`](crate::Refused::from_message). The server judges the ceiling, by its own
/// clock and the session's `@ringfence_ceiling`.
pub const MYSQL_ADMIT: &str = "CALL ringfence_admit(?, ?)";

/// Stands before the commit: fails if the transaction is not the one that has admitted a token.
pub const MYSQL_RELEASE: &str = "RELEASE SAVEPOINT ringfence_admitted";

/// Raises the mark to the token of a new grant and commits that, before its holder's first read.
/// Parameters as in [`MYSQL_ADMIT`].
pub const MYSQL_ADVANCE: &str = "CALL ringfence_advance(?, ?)";

/// Raises the mark if it is lower and commits that, after a restore. Parameters as in [`MYSQL_ADMIT`].
pub const MYSQL_ADVANCE_TO: &str = "CALL ringfence_advance_to(?, ?)";

/// The mark of the lease in the parameter; no row if there is none. Advice for people.
pub const MYSQL_MARK: &str = "SELECT mark FROM ringfence_marks WHERE name = ?";

/// The table of marks in SQLite and its triggers, to be run once per database. Running it again
/// changes nothing.
pub const SQLITE_MIGRATION: &str = include_str!("../sql/sqlite.sql");

/// Admits a token for the rest of the transaction: `?1` is the lease's name, `?2` the token. Must be
/// the first statement of a transaction that was begun with `BEGIN IMMEDIATE`. Fails with a message
/// that begins with `STALE_TOKEN` if a greater token was admitted.
///
/// It writes the mark also when it is equal: the write takes the lock that keeps every other grant
/// out until the commit. **It has no ceiling**, since what it would be cannot be set for one connection:
/// call [`Ceiling::judge`](crate::Ceiling::judge) before, or, in another language, refuse a token above
/// `(now + 86400) << 20`, with `now` in seconds since 1970.
pub const SQLITE_ADMIT: &str = "INSERT INTO main.ringfence_marks (name, mark) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE mark <= excluded.mark";

/// The mark of the lease `?1`; no row if there is none. Advice for people.
pub const SQLITE_MARK: &str = "SELECT mark FROM main.ringfence_marks WHERE name = ?1";

/// The Lua script that compares the mark, and sets mark and data, in Redis 6 and later; its head says
/// what it takes and answers.
pub const REDIS_SCRIPT: &str = include_str!("../lua/redis.lua");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_of_mysql_are_whole() {
        let statements: Vec<_> = mysql_statements().collect();
        for statement in &statements {
            let code: Vec<_> = (statement.lines())
                .filter(|line| !line.starts_with("--"))
                .collect();
            let code = code.join("\n");
            assert!(
                !code.contains("DELIMITER") && !code.contains("//"),
                "{code}"
            );
            let body = code.contains("\nBEGIN");
            assert_eq!(body, code.ends_with("\nEND"), "{code}");
            assert!(body || !code.contains(";\n"), "{code}");
        }
        let count = |word: &str| MYSQL_MIGRATION.matches(word).count();
        let made = count("\nDROP ")
            + count("\nCREATE ")
            + count("\nSET SESSION")
            + count("\nSET @")
            + count("\nCALL ");
        assert_eq!(statements.len(), made);
    }
}
