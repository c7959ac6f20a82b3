//! `ringfence guard mysql` in a database in which other accounts may make procedures and views.

use crate::databases::Disk;
use crate::databases::mysql::Mysql;
use crate::guard::{ADD, Database, OfMysql, ended, guard};

/// A server in which the account `other` may make procedures and views in the database.
fn shared_mysql() -> Option<OfMysql> {
    let server = Mysql::start(Disk::Memory)?;
    let create = "CREATE DATABASE bank; USE bank; CREATE TABLE balance (amount BIGINT);
        INSERT INTO balance VALUES (100); CREATE USER other@'%';
        GRANT CREATE ROUTINE, CREATE VIEW ON bank.* TO other@'%'";
    assert!(server.client("mysql", create.as_bytes()).succeeded);
    Some(OfMysql(server))
}

const OTHERS_AMOUNT: &str = "SELECT CONCAT(amount, ' ', (SELECT COUNT(*) FROM mysql.global_priv
    WHERE user = 'other' AND priv LIKE '%18446744073709551615%')) FROM balance";

#[test]
fn procedures_that_another_account_has_made_are_called_by_no_command_for_mysql() {
    let Some(database) = shared_mysql() else {
        return;
    };
    let takes_over = "SQL SECURITY INVOKER UPDATE mysql.global_priv
        SET priv = JSON_SET(priv, '$.access', 18446744073709551615) WHERE user = 'other'";
    let names = [
        "ringfence_show_fence",
        "ringfence_raise",
        "ringfence_check_owner",
    ];
    let made = names.map(|name| {
        let arguments = if name == "ringfence_check_owner" {
            ""
        } else {
            "IN a LONGTEXT, IN b LONGTEXT"
        };
        format!("CREATE DEFINER = other@'%' PROCEDURE {name}({arguments}) {takes_over};")
    });
    database.ask(&(made.concat() + "SELECT 1"));
    for options in [
        &["--fence", "a#9"][..],
        &["--install"],
        &["--fence", "a#9", "--advance"],
    ] {
        let said = guard(&database, options, ADD);
        ended(&said, 77, "belongs to other@%; expected root@");
    }
    assert_eq!(database.ask(OTHERS_AMOUNT), "100 0");
    // Beside good marks they count for nothing.
    let again = made[0].clone();
    database.ask("DROP PROCEDURE ringfence_show_fence; DROP PROCEDURE ringfence_raise; SELECT 1");
    ended(&guard(&database, &["--fence", "a#9"], ADD), 0, "");
    database.ask(&format!(
        "DROP PROCEDURE ringfence_show_fence; {again} SELECT 1"
    ));
    ended(&guard(&database, &["--fence", "a#9"], ADD), 0, "");
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
    assert_eq!(database.ask(OTHERS_AMOUNT), "120 0");
}

/// A view's columns may be functions, which run with the rights of the account that reads it.
#[test]
fn a_view_in_place_of_the_marks_is_read_by_no_command() {
    let Some(database) = shared_mysql() else {
        return;
    };
    database.ask(
        "CREATE DEFINER = other@'%' FUNCTION called() RETURNS BIGINT SQL SECURITY INVOKER
             RETURN 1 + SLEEP(60);
         CREATE SQL SECURITY INVOKER VIEW ringfence_marks AS SELECT 'a' AS name, called() AS mark; SELECT 1",
    );
    let said = guard(&database, &["--fence", "a#9"], ADD);
    ended(&said, 1, "ringfence_marks is a view");
    assert_eq!(database.ask(OTHERS_AMOUNT), "100 0");
}
