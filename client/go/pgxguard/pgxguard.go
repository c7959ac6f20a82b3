// Package pgxguard is package guard for those who use pgx without database/sql. The schema is that of
// guard.PostgreSQLSchema.
package pgxguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/guard"
)

// Beginner is what begins transactions: a *pgx.Conn or a *pgxpool.Pool.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Guard admits the fences of one lease to one database.
type Guard struct{ lease string }

// New makes a guard of this lease.
func New(lease string) (*Guard, error) {
	if err := ringfence.CheckName(lease); err != nil {
		return nil, err
	}
	return &Guard{lease: lease}, nil
}

// Admit shows a fence for the rest of a transaction. It must be the first statement in it, and what
// follows must not be sent before it is answered. After an error roll back. Write also proves that it is this
// transaction that is committed.
func (g *Guard) Admit(ctx context.Context, tx pgx.Tx, fence ringfence.Fence) error {
	_, err := g.admit(ctx, tx, fence)
	return err
}

// admit also returns the server's number of the transaction that has written the mark.
func (g *Guard) admit(ctx context.Context, tx pgx.Tx, fence ringfence.Fence) (number int64, err error) {
	switch {
	case fence.Name == "" || fence.Token == 0:
		return 0, fmt.Errorf("%w: this is guarded by lease %q; show the fence of its grant", guard.ErrMissingFence, g.lease)
	case fence.Name != g.lease:
		return 0, fmt.Errorf("%w: the fence is of lease %q, but this is guarded by lease %q", guard.ErrWrongLease, fence.Name, g.lease)
	}
	// As text: pgx does not convert a uint64 to a numeric in every mode.
	var mark int64
	err = tx.QueryRow(ctx, "SELECT ringfence.admit($1::pg_catalog.text, ($2::pg_catalog.text)::numeric), pg_catalog.txid_current()",
		fence.Name, fmt.Sprint(fence.Token)).Scan(&mark, &number)
	var told *pgconn.PgError
	if !errors.As(err, &told) {
		return number, err
	}
	switch told.Code {
	case "RF001":
		stale := &guard.StaleToken{Offered: fence}
		_, _ = fmt.Sscanf(told.Detail, "mark=%d", &stale.Mark) // For people; 0 where it cannot be read.
		return 0, stale
	case "RF006":
		return 0, fmt.Errorf("%w: %w", guard.ErrTokenTooHigh, err)
	}
	return 0, err
}

// Advance tells the database that this is the grant in force, and commits that. A new holder calls it
// before its first read.
func (g *Guard) Advance(ctx context.Context, db Beginner, fence ringfence.Fence) error {
	return g.Write(ctx, db, fence, func(pgx.Tx) error { return nil })
}

// Write runs a transaction that begins with the fence, and commits it if write returns no error and the
// transaction is still the one that began so; otherwise the error is guard.ErrTransactionEnded. That asks the server
// once more before the commit.
//
// write leaves out COMMIT and ROLLBACK as text. A statement behind one is refused with pgx.ErrTxClosed, and so is one
// behind COMMIT AND CHAIN. What the same text or batch commits, or what is sent by tx.Conn(), is only reported.
// Behind a text of several statements, a batch, and a return to a savepoint the server is asked once more.
func (g *Guard) Write(ctx context.Context, db Beginner, fence ringfence.Fence, write func(tx pgx.Tx) error) error {
	return g.WriteTx(ctx, db, pgx.TxOptions{}, fence, write)
}

// WriteTx is Write with options of the transaction.
func (g *Guard) WriteTx(ctx context.Context, db Beginner, options pgx.TxOptions, fence ringfence.Fence, write func(tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	// Also if write panics. After the commit it does nothing.
	defer func() { _ = tx.Rollback(ctx) }()
	number, err := g.admit(ctx, tx, fence)
	if err != nil {
		return err
	}
	transaction := admitted(tx, number)
	err = write(transaction)
	if err == nil {
		err = transaction.Commit(ctx)
	}
	if err != nil {
		return transaction.failed(ctx, err)
	}
	return nil
}
