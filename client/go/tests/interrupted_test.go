package tests

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/guard"
)

// SQLite ends a transaction unasked when a write of it is interrupted, and what is sent behind it is
// committed on its own. A write that returns its errors leaves nothing; one that does not is at least reported.
func TestAnInterruptedTransactionIsNeverReportedAsCommitted(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "bank.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := within(t, time.Minute)
	g := newGuard(t, guard.SQLite, "bank/interrupted")
	if err := g.Install(ctx, db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE big (n int); CREATE TABLE small (n int)"); err != nil {
		t.Fatal(err)
	}
	statement := "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) INSERT INTO big SELECT i FROM n"
	fence := ringfence.Fence{Name: g.Lease(), Token: 7}
	err = g.Write(ctx, db, fence, func(tx *sql.Tx) error {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := tx.ExecContext(short, statement); err == nil {
			t.Error("it was not interrupted")
		}
		return nil // As nobody should.
	})
	if err == nil {
		t.Error("reported as committed")
	}
	err = g.Write(ctx, db, fence, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO small VALUES (1)"); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.ExecContext(short, statement)
		return err
	})
	if err == nil {
		t.Error("reported as committed")
	}
	var count int
	if err := db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM small) + (SELECT count(*) FROM big)").Scan(&count); err != nil || count != 0 {
		t.Error(count, "rows were committed", err)
	}
	// The connection serves the next one.
	if err := g.Advance(ctx, db, fence); err != nil {
		t.Error(err)
	}
}
