package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// admitted is a transaction in which a fence was admitted. PostgreSQL has a number for it; in SQLite a savepoint
// that is made behind the admission goes with it.
type admitted struct {
	dialect Dialect
	db      *sql.DB
	tx      *sql.Tx
	number  int64
}

// mark makes the savepoint.
func (a *admitted) mark(ctx context.Context) error {
	if a.dialect == PostgreSQL {
		return nil
	}
	_, err := a.tx.ExecContext(ctx, "SAVEPOINT ringfence_admitted")
	return err
}

// isOpen fails unless this transaction is the one that a commit would commit. In PostgreSQL it also fails in one
// that a failed statement has aborted.
func (a *admitted) isOpen(ctx context.Context) error {
	if a.dialect == PostgreSQL {
		var open sql.NullInt64
		err := a.tx.QueryRowContext(ctx, "SELECT pg_catalog.txid_current_if_assigned()").Scan(&open)
		if err == nil && open.Int64 != a.number {
			err = ErrTransactionEnded
		}
		return err
	}
	_, err := a.tx.ExecContext(ctx, "RELEASE SAVEPOINT ringfence_admitted")
	if err != nil && strings.Contains(err.Error(), "no such savepoint") {
		return ErrTransactionEnded
	}
	return err
}

// failed rolls back, and says what became of the transaction where something else than this error had ended it.
// SQLite does not tell the two apart. A broken connection leaves nothing to ask for.
func (a *admitted) failed(ctx context.Context, because error) error {
	if a.dialect != PostgreSQL || errors.Is(because, ErrTransactionEnded) {
		return because
	}
	ended := fmt.Errorf("%w; the write had failed: %v", ErrTransactionEnded, because)
	if errors.Is(a.isOpen(ctx), ErrTransactionEnded) {
		return ended
	}
	rolledBack := a.tx.Rollback() == nil
	var fate sql.NullString
	if a.db.QueryRowContext(ctx, "SELECT pg_catalog.txid_status($1)", a.number).Scan(&fate) != nil {
		return because
	}
	// One that was prepared for a commit in two phases is in progress, and so is one whose connection was cut.
	if fate.String == "committed" || rolledBack && fate.String == "in progress" {
		return ended
	}
	return because
}
