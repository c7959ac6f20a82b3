//! The lines of `README.md`, as they stand there.

use ringfence_guard::Fence;
use rusqlite::{Connection, TransactionBehavior};

#[test]
fn what_the_readme_shows_is_admitted_for_the_holder_alone() {
    let mut database = Connection::open_in_memory().unwrap();
    let table = "CREATE TABLE balance (amount INTEGER NOT NULL); INSERT INTO balance VALUES (100)";
    database.execute_batch(table).unwrap();
    ringfence_guard::sqlite::SqliteGuard::install(&database).unwrap();
    let mut written = |fence: Fence| -> Result<(), Box<dyn std::error::Error>> {
        use ringfence_guard::sqlite::SqliteGuard;

        let guard = SqliteGuard::new(fence.name.clone());
        guard.advance(&mut database, &fence)?;
        let write = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        guard.admit(&write, &fence)?;
        write.execute("UPDATE balance SET amount = amount + 1", [])?;
        write.commit()?;
        Ok(())
    };
    written("bank/balance#9".parse().unwrap()).unwrap();
    let stale = written("bank/balance#8".parse().unwrap()).unwrap_err();
    assert!(stale.to_string().contains("STALE_TOKEN"), "{stale}");
    let amount: i64 = database
        .query_row("SELECT amount FROM balance", [], |row| row.get(0))
        .unwrap();
    assert_eq!(amount, 101);
}
