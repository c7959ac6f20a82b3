package pgxguard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"ringfence.io/client/go/guard"
)

// The states of a connection without a transaction, and in one that a failed statement has aborted.
const (
	idle    = 'I'
	aborted = 'E'
)

// transaction is the one in which a fence was admitted, or a savepoint in it. It looks at the end of each statement
// whether that has ended what was admitted, and refuses what follows: it would be committed on its own.
type transaction struct {
	pgx.Tx
	// outer is the one that the savepoint is in, the outermost, or itself.
	outer *transaction
	// number is what PostgreSQL calls it.
	number int64
	// unsure: a statement may have ended it and begun another one, and the server was not asked since.
	unsure bool
	// ended: it had ended before its commit. closed: its connection may be that of others already.
	ended, closed bool
}

func admitted(tx pgx.Tx, number int64) *transaction {
	made := &transaction{Tx: tx, number: number}
	made.outer = made
	return made
}

// stop closes a transaction that has ended, so that what follows is refused with pgx.ErrTxClosed, also where it goes
// past this type. It asks the server only where a statement may have begun another transaction.
func (t *transaction) stop(ctx context.Context) {
	outer := t.outer
	connection := outer.Tx.Conn()
	if outer.closed || connection.IsClosed() {
		return
	}
	switch connection.PgConn().TxStatus() {
	case idle:
		outer.ended = true
	case aborted:
		// It answers nothing, and commits nothing.
	default:
		if outer.unsure {
			_ = outer.ask(ctx)
		}
	}
	if outer.ended {
		outer.closed = true
		_ = outer.Tx.Rollback(ctx)
	}
}

// answered looks at the end of what was sent as this text.
func (t *transaction) answered(ctx context.Context, text string, tag pgconn.CommandTag) {
	if mayTurn(text, tag) {
		t.outer.unsure = true
	}
	t.stop(ctx)
}

// mayTurn says whether a text may have ended one transaction and begun another. One statement says so by its tag,
// also one that goes back to a savepoint; of a text of many only the last one's is known, and an error hides it.
func mayTurn(text string, tag pgconn.CommandTag) bool {
	switch tag.String() {
	case "BEGIN", "COMMIT", "ROLLBACK", "START TRANSACTION":
		return true
	}
	return strings.Contains(strings.TrimRight(text, "; \t\r\n"), ";")
}

// ask asks the server whether this is still the transaction that is open.
func (t *transaction) ask(ctx context.Context) error {
	var open *int64
	err := t.Tx.QueryRow(ctx, "SELECT pg_catalog.txid_current_if_assigned()").Scan(&open)
	if err != nil {
		return err
	}
	t.unsure = false
	if open == nil || *open != t.number {
		t.ended = true
		return guard.ErrTransactionEnded
	}
	return nil
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
	tag, err := t.Tx.Exec(ctx, sql, arguments...)
	t.answered(ctx, sql, tag)
	return tag, err
}

func (t *transaction) Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	t.stop(ctx)
	found, err := t.Tx.Query(ctx, sql, arguments...)
	if err != nil {
		t.answered(ctx, sql, pgconn.CommandTag{})
		return found, err
	}
	return &rows{Rows: found, ended: func(tag pgconn.CommandTag) { t.answered(ctx, sql, tag) }}, nil
}

func (t *transaction) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	found, err := t.Query(ctx, sql, arguments...)
	return &row{rows: found, err: err}
}

// SendBatch asks the server behind each batch: its statements are sent together, and no one looks between them.
func (t *transaction) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	t.stop(ctx)
	return &results{BatchResults: t.Tx.SendBatch(ctx, batch), ended: func() {
		t.outer.unsure = true
		t.stop(ctx)
	}}
}

func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	t.stop(ctx)
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

func (t *transaction) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	t.stop(ctx)
	return t.Tx.Prepare(ctx, name, sql)
}

// LargeObjects goes past this type, and is refused with the transaction.
func (t *transaction) LargeObjects() pgx.LargeObjects {
	t.stop(context.Background())
	return t.Tx.LargeObjects()
}

// rows looks once they are closed, as the last of them is read.
type rows struct {
	pgx.Rows
	ended func(tag pgconn.CommandTag)
}

func (r *rows) Close() {
	r.Rows.Close()
	if ended := r.ended; ended != nil {
		r.ended = nil
		ended(r.Rows.CommandTag())
	}
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// row is what pgx's own is, of the rows above.
type row struct {
	rows pgx.Rows
	err  error
}

func (r *row) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	for _, one := range into {
		if _, ok := one.(*pgtype.DriverBytes); ok {
			return errors.New("pgxguard: QueryRow cannot scan into *pgtype.DriverBytes, which ends with the row")
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

type results struct {
	pgx.BatchResults
	ended func()
}

func (r *results) Close() error {
	err := r.BatchResults.Close()
	if ended := r.ended; ended != nil {
		r.ended = nil
		ended()
	}
	return err
}

// isOpen fails unless this transaction is the one that a commit would commit. It also fails in one that a failed
// statement has aborted.
func (t *transaction) isOpen(ctx context.Context) error {
	t.stop(ctx)
	if t.ended {
		return guard.ErrTransactionEnded
	}
	return t.ask(ctx)
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
