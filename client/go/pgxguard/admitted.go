package pgxguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.io/client/go/guard"
)

// idle is the state of a connection without a transaction.
const idle = 'I'

// transaction is the one in which a fence was admitted, or a savepoint in it. It refuses statements behind the end
// of it: they would be committed on their own.
type transaction struct {
	pgx.Tx
	// outer is the one that the savepoint is in, the outermost, or itself.
	outer *transaction
	// number is what PostgreSQL calls it.
	number int64
	// ended: it had ended before its commit. closed: its connection may be that of others already.
	ended, closed bool
}

func admitted(tx pgx.Tx, number int64) *transaction {
	made := &transaction{Tx: tx, number: number}
	made.outer = made
	return made
}

// stop closes a transaction that has ended, so that what follows is refused with pgx.ErrTxClosed.
func (t *transaction) stop(ctx context.Context) {
	outer := t.outer
	if connection := outer.Tx.Conn(); !outer.closed && !connection.IsClosed() && connection.PgConn().TxStatus() == idle {
		outer.ended, outer.closed = true, true
		_ = outer.Tx.Rollback(ctx)
	}
}

// Commit commits, if this is still the transaction in which the fence was admitted.
func (t *transaction) Commit(ctx context.Context) error {
	if t.outer == t {
		if err := t.isOpen(ctx); err != nil {
			return err
		}
		t.closed = true
	}
	return t.Tx.Commit(ctx)
}

func (t *transaction) Rollback(ctx context.Context) error {
	t.closed = true
	return t.Tx.Rollback(ctx)
}

func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	t.stop(ctx)
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &transaction{Tx: inner, outer: t.outer}, nil
}

func (t *transaction) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	t.stop(ctx)
	return t.Tx.Exec(ctx, sql, arguments...)
}

func (t *transaction) Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	t.stop(ctx)
	return t.Tx.Query(ctx, sql, arguments...)
}

func (t *transaction) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	t.stop(ctx)
	return t.Tx.QueryRow(ctx, sql, arguments...)
}

func (t *transaction) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	t.stop(ctx)
	return t.Tx.SendBatch(ctx, batch)
}

func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	t.stop(ctx)
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// isOpen fails unless this transaction is the one that a commit would commit. It also fails in one that a failed
// statement has aborted.
func (t *transaction) isOpen(ctx context.Context) error {
	t.stop(ctx)
	if t.ended {
		return guard.ErrTransactionEnded
	}
	var open *int64
	err := t.Tx.QueryRow(ctx, "SELECT pg_catalog.txid_current_if_assigned()").Scan(&open)
	if err == nil && (open == nil || *open != t.number) {
		t.ended = true
		return guard.ErrTransactionEnded
	}
	return err
}

// failed says what became of the transaction where something else than this error had ended it. It is to be rolled
// back behind it. A broken connection leaves nothing to ask for.
func (t *transaction) failed(ctx context.Context, because error) error {
	switch err := t.isOpen(ctx); {
	case errors.Is(because, guard.ErrTransactionEnded):
		return because
	case errors.Is(err, guard.ErrTransactionEnded):
		return fmt.Errorf("%w; the write had failed: %v", guard.ErrTransactionEnded, because)
	case err == nil || t.closed:
		return because
	}
	// Mostly a statement has failed, and the transaction answers nothing.
	if _, err := t.Tx.Exec(ctx, "ROLLBACK"); err != nil {
		return because
	}
	// One that was prepared for a commit in two phases is in progress.
	var fate string
	err := t.Tx.QueryRow(ctx, "SELECT pg_catalog.txid_status($1)", t.number).Scan(&fate)
	if err == nil && fate != "aborted" {
		return fmt.Errorf("%w; the write had failed: %v", guard.ErrTransactionEnded, because)
	}
	return because
}
