//! The migration takes no procedure and no trigger that another account has made: it could change them later.

use ringfence_guard::mysql::{MysqlError, MysqlGuard};

use crate::fence;
use crate::mysql_rules::{Database, guard, held, insert, installed};
use crate::run_to_end;

fn done(database: &Database, script: &str) {
    let said = database.client(script);
    assert!(said.succeeded, "{script}: {said:?}");
}

async fn not_owned(database: &Database, says: &str) {
    let error = MysqlGuard::install(&mut database.conn().await).await;
    let said = format!("{:?}", error.unwrap_err());
    assert!(
        said.contains("NOT_OWNED: ") && said.contains(says),
        "{says}: {said}"
    );
}

/// Its body would admit any token, and run with the rights of its caller.
#[test]
fn procedures_that_another_account_has_made_are_refused() {
    run_to_end(async {
        let Some(database) = Database::create("squatted").await else {
            return;
        };
        done(&database, "CREATE OR REPLACE USER squatter@'%'");
        for procedure in ["ringfence_show_fence", "ringfence_admit", "ringfence_other"] {
            let made = format!(
                "CREATE DEFINER = squatter@'%' PROCEDURE {procedure}(IN a LONGTEXT, IN b LONGTEXT)
                     SQL SECURITY INVOKER DO 0"
            );
            done(&database, &made);
            let says = format!("procedure {procedure} belongs to squatter@%; expected root@");
            not_owned(&database, &says).await;
            done(&database, &format!("DROP PROCEDURE {procedure}"));
        }
        // The one that looks is made again each time.
        let looks = "CREATE OR REPLACE DEFINER = squatter@'%' PROCEDURE ringfence_check_owner()
            SQL SECURITY INVOKER SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'called'";
        done(&database, looks);
        MysqlGuard::install(&mut database.conn().await)
            .await
            .unwrap();
    });
}

#[test]
fn an_account_that_may_alter_a_procedure_is_named_and_rights_to_call_one_stay() {
    installed("altered", async |database| {
        let account = "CREATE OR REPLACE USER caller@'%'; CREATE OR REPLACE USER keeper@'%';
            GRANT EXECUTE ON PROCEDURE ringfence_admit TO caller@'%';
            GRANT ALTER ROUTINE ON PROCEDURE ringfence_admit TO keeper@'%'";
        done(database, account);
        not_owned(database, "keeper@% may alter procedure ringfence_admit").await;
        done(
            database,
            "REVOKE ALTER ROUTINE ON PROCEDURE ringfence_admit FROM keeper@'%'",
        );
        MysqlGuard::install(&mut database.conn().await)
            .await
            .unwrap();
        let grants = database.client("SHOW GRANTS FOR caller@'%'").stdout;
        assert!(grants.contains("`ringfence_admit`"), "{grants}");
    });
}

/// It keeps the mark as it was, so that every token would be admitted.
#[test]
fn a_trigger_that_keeps_the_mark_admits_nothing_and_is_refused_by_the_migration() {
    installed("keeping", async |database| {
        let mut connection = database.connect().await;
        guard()
            .advance(&mut connection, &fence("a#8"))
            .await
            .unwrap();
        let keeps = "BEFORE UPDATE ON ringfence_marks FOR EACH ROW SET NEW.mark = OLD.mark";
        done(database, &format!("CREATE TRIGGER keeps {keeps}"));
        let advanced = guard().advance(&mut connection, &fence("a#9")).await;
        assert!(matches!(advanced, Err(MysqlError::Hidden)), "{advanced:?}");
        let wrote = insert(&guard(), &mut connection, &fence("a#9")).await;
        assert!(matches!(wrote, Err(MysqlError::Hidden)), "{wrote:?}");
        for call in [
            "CALL ringfence_advance('a', 9)",
            "CALL ringfence_advance_to('a', 9)",
            "START TRANSACTION; CALL ringfence_admit('a', 9)",
        ] {
            let said = database.client(call);
            assert!(said.stderr.contains("MARK_KEPT: "), "{call}: {said:?}");
        }
        let error = MysqlGuard::install(&mut database.conn().await).await;
        let error = error.unwrap_err();
        assert!(
            matches!(&error, MysqlError::WrongShape { found } if found.contains("trigger keeps")),
            "{error:?}"
        );
        let other = format!("DROP TRIGGER keeps; CREATE DEFINER = other@'%' TRIGGER keeps {keeps}");
        done(database, &other);
        not_owned(database, "trigger keeps belongs to other@%").await;
        done(database, "DROP TRIGGER keeps");
        MysqlGuard::install(&mut database.conn().await)
            .await
            .unwrap();
        insert(&guard(), &mut connection, &fence("a#9"))
            .await
            .unwrap();
        assert_eq!(held(database).await, (1, Some(9)));
    });
}
