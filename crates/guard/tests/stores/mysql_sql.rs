//! The migration's procedures as a service in another language meets them, and the shell.

use mysql_async::prelude::Queryable as _;
use ringfence_guard::FencingToken;
use ringfence_guard::mysql::MysqlGuard;

use crate::fence;
use crate::mysql_rules::{Database, installed};

const NAME: &str = "a";

/// What the server says to a script of which a statement fails.
fn refused(database: &Database, script: &str, says: &str) {
    let said = database.client(script);
    assert!(!said.succeeded, "{script}: {said:?}");
    assert!(
        said.stderr.contains("ERROR 1644 (45000)"),
        "{script}: {said:?}"
    );
    assert!(said.stderr.contains(says), "{script}: {said:?}");
}

fn done(database: &Database, script: &str) -> String {
    let said = database.client(script);
    assert!(said.succeeded, "{script}: {said:?}");
    said.stdout.trim().to_owned()
}

#[test]
fn each_refusal_of_the_procedures_names_its_reason_and_both_tokens() {
    installed("reasons", async |database| {
        done(database, "CALL ringfence_advance('a', 9)");
        let long = format!("ringfence_admit('{}', 9)", "a".repeat(256));
        for (call, says) in [
            (
                "ringfence_admit('a', 8)",
                "STALE_TOKEN: token 8 of lease \"a\" was overtaken by token 9",
            ),
            ("ringfence_advance('a', 8)", "STALE_TOKEN: token 8"),
            ("ringfence_admit('a', NULL)", "MISSING_FENCE"),
            ("ringfence_admit(NULL, 9)", "MISSING_FENCE"),
            ("ringfence_admit('a', 0)", "MALFORMED_FENCE"),
            ("ringfence_admit('a', -1)", "1 to 9223372036854775807"),
            ("ringfence_admit('a', 9.5)", "MALFORMED_FENCE"),
            ("ringfence_admit('a', 'x')", "MALFORMED_FENCE"),
            ("ringfence_admit('a', '')", "MALFORMED_FENCE"),
            ("ringfence_admit('a', '9 ')", "MALFORMED_FENCE"),
            ("ringfence_admit('a', '9\\n')", "MALFORMED_FENCE"),
            (
                "ringfence_admit('a', 9223372036854775808)",
                "9223372036854775808",
            ),
            ("ringfence_admit('a', 1 << 62)", "TOKEN_TOO_HIGH"),
            ("ringfence_advance('a', 1 << 62)", "above the ceiling"),
            ("ringfence_admit('', 9)", "no lease name"),
            ("ringfence_admit('a b', 9)", "no lease name"),
            ("ringfence_admit('a ', 9)", "no lease name"),
            ("ringfence_admit('\u{e9}', 9)", "no lease name"),
            // Kelvin's sign is a K to comparisons that ignore case.
            ("ringfence_admit('\u{212a}', 9)", "no lease name"),
            (long.as_str(), "no lease name"),
            ("ringfence_admit_fence('a', 'b#9')", "WRONG_LEASE"),
            ("ringfence_admit_fence('a', 'A#9')", "WRONG_LEASE"),
            ("ringfence_admit_fence('a', NULL)", "MISSING_FENCE"),
            ("ringfence_admit_fence('a', 'a#09')", "NAME#TOKEN"),
            ("ringfence_admit_fence('a', 'a')", "NAME#TOKEN"),
            ("ringfence_admit_fence('a', 'a#9\\n')", "NAME#TOKEN"),
            ("ringfence_advance_to('a', NULL)", "MISSING_FENCE"),
        ] {
            refused(database, &format!("START TRANSACTION; CALL {call}"), says);
        }
        assert_eq!(
            done(database, "SELECT name, mark FROM ringfence_marks"),
            "a\t9"
        );
    });
}

#[test]
fn the_ceiling_of_the_procedures_can_be_set_for_a_session() {
    installed("ceilings", async |database| {
        let most = FencingToken::MAX;
        refused(
            database,
            "SET @ringfence_ceiling = 100; CALL ringfence_advance('a', 101)",
            "TOKEN_TOO_HIGH: token 101 of lease \"a\" is above the ceiling 100",
        );
        done(
            database,
            "SET @ringfence_ceiling = 100; CALL ringfence_advance('a', 100)",
        );
        let off = format!("SET @ringfence_ceiling = 'off'; CALL ringfence_advance('a', {most})");
        done(database, &off);
        // The mark is there, so that its token is one like any other.
        done(database, &format!("CALL ringfence_advance('a', {most})"));
    });
}

/// What a program sends that overlooks the refusal: the client goes on with `--force`.
#[test]
fn what_follows_a_refusal_of_the_procedures_is_not_written() {
    installed("aborting", async |database| {
        done(database, "CALL ringfence_advance('a', 9)");
        let mut conn = database.conn().await;
        for call in [
            "CALL ringfence_admit('a', 8)",
            "CALL ringfence_admit('a', NULL)",
            "CALL ringfence_admit_fence('a', 'a#8')",
            "CALL ringfence_admit_fence('a', 'nonsense')",
            "CALL ringfence_admit('a', 1 << 62)",
        ] {
            for before in ["START TRANSACTION", "DO 0", "SET autocommit = 0"] {
                conn.query_drop(before).await.unwrap();
                conn.query_drop(call).await.unwrap_err();
                let late = conn.query_drop("INSERT INTO datum VALUES (1)").await;
                let late = late.unwrap_err().to_string();
                assert!(late.contains("READ ONLY"), "{before}; {call}: {late}");
                conn.query_drop("COMMIT; SET autocommit = 1").await.unwrap();
            }
        }
        assert_eq!(done(database, "SELECT COUNT(*) FROM datum"), "0");
    });
}

#[test]
fn an_admission_outside_of_a_transaction_is_refused() {
    installed("outside", async |database| {
        let says = "NO_TRANSACTION";
        refused(database, "CALL ringfence_admit('a', 9)", says);
        let good = "SET autocommit = 0; CALL ringfence_admit('a', 9); INSERT INTO datum VALUES (1); COMMIT";
        done(database, good);
        assert_eq!(done(database, "SELECT COUNT(*) FROM datum"), "1");
    });
}

#[test]
fn a_mark_in_mysql_can_be_neither_lowered_nor_deleted_by_hand() {
    installed("byhand", async |database| {
        done(database, "CALL ringfence_advance('a', 9)");
        for sql in [
            "UPDATE ringfence_marks SET mark = 8",
            "SET check_constraint_checks = 0; UPDATE IGNORE ringfence_marks SET mark = NULL",
            "SET check_constraint_checks = 0; UPDATE IGNORE ringfence_marks SET name = NULL",
            "UPDATE ringfence_marks SET name = 'b'",
            "DELETE FROM ringfence_marks",
            "REPLACE INTO ringfence_marks (name, mark) VALUES ('a', 8)",
            "REPLACE INTO ringfence_marks (name, mark) VALUES ('a', 10)",
        ] {
            refused(database, sql, "MARK_STAYS");
        }
        let mark = done(database, "SELECT mark FROM ringfence_marks");
        assert_eq!(mark, "9");
    });
}

#[test]
fn a_floor_raises_a_mark_in_mysql_and_never_lowers_it() {
    installed("floors", async |database| {
        for (floor, mark) in [(5, "5"), (3, "5"), (5, "5"), (7, "7")] {
            done(
                database,
                &format!("CALL ringfence_advance_to('a', {floor})"),
            );
            assert_eq!(done(database, "SELECT mark FROM ringfence_marks"), mark);
        }
    });
}

#[test]
fn procedures_and_crate_share_one_mark_and_names_keep_their_case() {
    installed("sharing", async |database| {
        let mut connection = database.connect().await;
        let guard = MysqlGuard::new(fence("a#1").name);
        done(database, "CALL ringfence_advance('a', 8)");
        let late = guard.advance(&mut connection, &fence("a#7")).await;
        assert!(late.unwrap_err().refused().is_some());
        guard.advance(&mut connection, &fence("a#9")).await.unwrap();
        refused(database, "CALL ringfence_advance('a', 8)", "token 9");
        let other = MysqlGuard::new(fence("A#1").name);
        other.advance(&mut connection, &fence("A#2")).await.unwrap();
        done(database, "CALL ringfence_advance('A', 3)");
        let marks = "SELECT name, mark FROM ringfence_marks ORDER BY name";
        assert_eq!(done(database, marks), "A\t3\na\t9");
    });
}

/// The example at the head of the migration, from a shell. The client stops at the first error.
#[test]
fn the_example_of_the_migration_runs_in_the_databases_own_client() {
    installed("examples", async |database| {
        done(
            database,
            "CREATE TABLE balance (amount BIGINT); INSERT INTO balance VALUES (1)",
        );
        let migration = ringfence_guard::sql::MYSQL_MIGRATION;
        // What is indented in the comment at the head.
        let head = migration.split_once("\n\n-- One row").unwrap().0;
        let example: Vec<&str> = (head.lines())
            .filter_map(|line| line.strip_prefix("--   "))
            .filter(|line| line.contains(';'))
            .collect();
        let (write, advance) = example.split_at(5);
        assert!(write[0].starts_with("START TRANSACTION"), "{write:?}");
        let advance = advance[0];
        assert!(advance.starts_with("CALL ringfence_advance"), "{advance}");
        done(database, advance);
        done(database, &write.join("\n"));
        assert_eq!(done(database, "SELECT amount FROM balance"), "2");

        done(database, "CALL ringfence_advance('bank/balance', 43)");
        refused(database, &write.join("\n"), "STALE_TOKEN: token 42");
        assert_eq!(done(database, "SELECT amount FROM balance"), "2");

        // Behind a statement that commits implicitly the savepoint is gone.
        let torn = "START TRANSACTION; CALL ringfence_admit('bank/balance', 43);
            UPDATE balance SET amount = 3; CREATE TABLE more (value INT);
            RELEASE SAVEPOINT ringfence_admitted; UPDATE balance SET amount = 4; COMMIT";
        let said = database.client(torn);
        assert!(said.stderr.contains("does not exist"), "{said:?}");
        assert_eq!(done(database, "SELECT amount FROM balance"), "3");
    });
}

#[test]
fn the_constants_for_drivers_are_statements_of_the_procedures() {
    use ringfence_guard::sql;

    installed("constants", async |database| {
        let mut conn = database.conn().await;
        conn.exec_drop(sql::MYSQL_ADVANCE, (NAME, 8_u64))
            .await
            .unwrap();
        conn.query_drop("START TRANSACTION").await.unwrap();
        conn.exec_drop(sql::MYSQL_ADMIT, (NAME, 9_u64))
            .await
            .unwrap();
        conn.query_drop(sql::MYSQL_RELEASE).await.unwrap();
        conn.query_drop("COMMIT").await.unwrap();
        conn.exec_drop(sql::MYSQL_ADVANCE_TO, (NAME, 11_u64))
            .await
            .unwrap();
        let mark: Option<u64> = conn.exec_first(sql::MYSQL_MARK, (NAME,)).await.unwrap();
        assert_eq!(mark, Some(11));
    });
}

/// The server shows it in place of the marks, in procedures too.
#[test]
fn a_temporary_table_hides_no_marks_from_the_procedures() {
    installed("temporary", async |database| {
        done(database, "CALL ringfence_advance('a', 9)");
        let hides = "CREATE TEMPORARY TABLE ringfence_marks
            (name VARCHAR(255) PRIMARY KEY, mark BIGINT, admissions BIGINT DEFAULT 1)";
        for call in [
            "START TRANSACTION; CALL ringfence_admit('a', 8)",
            "START TRANSACTION; CALL ringfence_admit_fence('a', 'a#8')",
            "CALL ringfence_advance('a', 10)",
            "CALL ringfence_advance_to('a', 10)",
        ] {
            let script = format!("{hides}; SET @ringfence_seen = 1; {call}");
            refused(database, &script, "HIDDEN_MARKS");
        }
        let mark = "SELECT mark FROM ringfence_marks";
        assert_eq!(done(database, mark), "9");
        let away = format!(
            "{hides}; DROP TEMPORARY TABLE ringfence_marks; CALL ringfence_advance('a', 10)"
        );
        done(database, &away);
        assert_eq!(done(database, mark), "10");
    });
}
