// Package guard keeps writers whose lease was lost out of a database: each write shows its fence inside
// its own transaction, and the database refuses a smaller token than it has seen.
//
// A guard is for one lease. Its mark, the greatest token that it has admitted, stands in the table
// ringfence.marks (PostgreSQL) or ringfence_marks (SQLite), which Install creates; the functions and
// triggers are those of the project's SQL, so services in other languages share it.
//
//	g, err := guard.New(guard.PostgreSQL, "bank/balance")
//	err = g.Install(ctx, db)                     // once per database, as any migration
//	err = g.Advance(ctx, db, lease.Fence())      // a new holder, before its first read
//	err = g.Write(ctx, db, lease.Fence(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE balance SET amount = amount + 1")
//		return err
//	})
//
// A refusal because a later grant has been there is errors.Is(err, ringfence.ErrStaleToken): it is final
// for that grant. Work that runs in Lease.Do and returns it ends belief in the lease.
package guard

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	ringfence "ringfence.io/client/go"
)

// Dialect is the database's.
type Dialect int

const (
	// PostgreSQL 12 and later, with any driver whose errors have a method SQLState, as those of pgx and
	// lib/pq do.
	PostgreSQL Dialect = iota + 1
	// SQLite 3.37 and later.
	SQLite
)

// PostgreSQLSchema is what Install runs in PostgreSQL, for migrations.
//
//go:embed sql/postgres.sql
var PostgreSQLSchema string

// SQLiteSchema is what Install runs in SQLite, for migrations.
//
//go:embed sql/sqlite.sql
var SQLiteSchema string

// Refusals that are no *StaleToken; they say nothing about the lease.
var (
	// ErrWrongLease: the fence is of another lease than the guard.
	ErrWrongLease = errors.New("WRONG_LEASE")
	// ErrMissingFence: no token was shown.
	ErrMissingFence = errors.New("MISSING_FENCE")
	// ErrTokenTooHigh: the token is above (now + 1 day) << 20: it was made up, or a clock is behind.
	ErrTokenTooHigh = errors.New("TOKEN_TOO_HIGH")
)

// ErrTransactionEnded: the transaction in which the fence was admitted had ended before its commit: by a COMMIT,
// ROLLBACK or PREPARE TRANSACTION that was sent as text, or by SQLite itself at an error that was overlooked. What
// came before a COMMIT is committed, under the fence. What came behind the end is rolled back if it stands in a
// transaction, and else committed without the fence: look at the data, and do not repeat the write. It stands in
// place of the error that the function returned, whose text it shows.
var ErrTransactionEnded = errors.New("TRANSACTION_ENDED: the transaction in which the fence was admitted had ended" +
	" before its commit; leave COMMIT, ROLLBACK and PREPARE TRANSACTION out of guarded work, and return the first error" +
	" of any statement")

// StaleToken says that a later grant has been here: stop the work, the lease is lost.
type StaleToken struct {
	Offered ringfence.Fence
	// Mark is the greatest token that was admitted; 0 where the database did not say.
	Mark uint64
}

// A cluster whose tokens follow the clock grants none below it: that would be the year 1970.
const countedFromOne = 1 << 40

func (e *StaleToken) Error() string {
	by := ""
	if e.Mark != 0 {
		by = fmt.Sprintf(" by token %d", e.Mark)
	}
	text := fmt.Sprintf("STALE_TOKEN: %v was overtaken%s; stop the work, its lease is lost", e.Offered, by)
	if e.Offered.Token < countedFromOne {
		text += ". If the cluster still has that grant, it counts tokens from 1, as each new `ringfence dev` does, and the" +
			" store has marks of an earlier cluster: use an empty store, or keep the cluster with `ringfence dev --data-dir DIR`"
	}
	return text
}

// Is makes errors.Is(err, ringfence.ErrStaleToken) work.
func (e *StaleToken) Is(target error) bool { return target == ringfence.ErrStaleToken }

// Guard admits the fences of one lease to one database.
type Guard struct {
	dialect Dialect
	lease   string
	noLimit bool
}

// New makes a guard of this lease.
func New(dialect Dialect, lease string) (*Guard, error) {
	if dialect != PostgreSQL && dialect != SQLite {
		return nil, fmt.Errorf("guard: %d is no dialect; use PostgreSQL or SQLite", dialect)
	}
	if err := ringfence.CheckName(lease); err != nil {
		return nil, err
	}
	return &Guard{dialect: dialect, lease: lease}, nil
}

// WithoutCeiling admits tokens above (now + 1 day) << 20, too, in SQLite; PostgreSQL has a setting,
// ringfence.ceiling. For clusters whose tokens do not follow the clock.
func (g *Guard) WithoutCeiling() *Guard {
	changed := *g
	changed.noLimit = true
	return &changed
}

// Lease is the name of the lease that it guards for.
func (g *Guard) Lease() string { return g.lease }

// Install creates what guards need. Running it again changes nothing.
func (g *Guard) Install(ctx context.Context, db *sql.DB) error {
	schema := PostgreSQLSchema
	if g.dialect == SQLite {
		schema = SQLiteSchema
	}
	_, err := db.ExecContext(ctx, schema)
	return err
}

// Admit shows a fence for the rest of a transaction. It must be the first statement in it: the mark is
// written, also where it is equal, and only that write keeps the next holder out until the commit. After
// an error, of this or of any later statement, send nothing more and roll back; see Write, which also proves
// that it is this transaction that is committed.
func (g *Guard) Admit(ctx context.Context, tx *sql.Tx, fence ringfence.Fence) error {
	_, err := g.admit(ctx, tx, fence)
	return err
}

// admit also returns PostgreSQL's number of the transaction that has written the mark.
func (g *Guard) admit(ctx context.Context, tx *sql.Tx, fence ringfence.Fence) (number int64, err error) {
	if err := g.check(fence); err != nil {
		return 0, err
	}
	if g.dialect == PostgreSQL {
		var mark int64
		err := tx.QueryRowContext(ctx, "SELECT ringfence.admit($1, $2), pg_catalog.txid_current()", fence.Name, fence.Token).
			Scan(&mark, &number)
		return number, refusal(err, fence)
	}
	if ceiling := ceilingAt(time.Now()); fence.Token > ceiling && !g.noLimit {
		return 0, fmt.Errorf("%w: token %d of lease %q is above the ceiling %d: it was made up, or this clock is behind",
			ErrTokenTooHigh, fence.Token, fence.Name, ceiling)
	}
	// A temporary table of that name would stand before the marks.
	done, err := tx.ExecContext(ctx, "INSERT INTO main.ringfence_marks (name, mark) VALUES (?, ?)"+
		" ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE mark <= excluded.mark", fence.Name, fence.Token)
	if err != nil {
		return 0, refusal(err, fence)
	}
	// A trigger of others can ignore the insert, and a table without the guard's own takes no stale token.
	if rows, err := done.RowsAffected(); err != nil || rows != 1 {
		return 0, fmt.Errorf("guard: the mark of %v was not written (%d rows, %v)", fence, rows, err)
	}
	return 0, nil
}

// Advance tells the database that this is the grant in force, and commits that. A new holder calls it
// before its first read: until then the database would still take the old holder's write, and a
// read-modify-write would lose it.
func (g *Guard) Advance(ctx context.Context, db *sql.DB, fence ringfence.Fence) error {
	return g.Write(ctx, db, fence, func(*sql.Tx) error { return nil })
}

// Write runs a transaction that begins with the fence, and commits it if write returns no error and the
// transaction is still the one that began so; otherwise the error is ErrTransactionEnded. That asks PostgreSQL
// once more before the commit.
//
// write has to return the first error of any statement, and to leave out COMMIT and ROLLBACK as text: SQLite
// ends a transaction unasked when a statement is interrupted, by its context for example, or the disk is
// full, and what is sent behind the end of the transaction is committed on its own, without the fence. It is
// reported, but cannot be refused here. In SQLite an error that write returns is passed on as it is.
func (g *Guard) Write(ctx context.Context, db *sql.DB, fence ringfence.Fence, write func(tx *sql.Tx) error) error {
	return g.WriteTx(ctx, db, nil, fence, write)
}

// WriteTx is Write with options of the transaction.
func (g *Guard) WriteTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, fence ringfence.Fence, write func(tx *sql.Tx) error) error {
	if err := g.check(fence); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	// Also if write panics. After the commit it does nothing.
	defer func() { _ = tx.Rollback() }()
	number, err := g.admit(ctx, tx, fence)
	if err != nil {
		return err
	}
	transaction := &admitted{dialect: g.dialect, db: db, tx: tx, number: number}
	if err := transaction.mark(ctx); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return transaction.failed(ctx, err)
	}
	if err := transaction.isOpen(ctx); err != nil {
		return transaction.failed(ctx, err)
	}
	return tx.Commit()
}

func (g *Guard) check(fence ringfence.Fence) error {
	switch {
	case fence.Name != g.lease && fence.Name != "":
		return fmt.Errorf("%w: the fence is of lease %q, but this is guarded by lease %q", ErrWrongLease, fence.Name, g.lease)
	case fence.Name == "" || fence.Token == 0:
		return fmt.Errorf("%w: this is guarded by lease %q; show the fence of its grant", ErrMissingFence, g.lease)
	case fence.Token > 1<<63-1:
		return fmt.Errorf("MALFORMED_FENCE: the token %d is out of range; a token is 1 to %d", fence.Token, uint64(1<<63-1))
	}
	return nil
}

// ceilingAt is the greatest token that a cluster whose tokens follow the clock can have granted by
// tomorrow.
func ceilingAt(now time.Time) uint64 {
	return uint64(max(now.Unix(), 0)+86400) << 20
}

// refusal recognises the guard's own errors among those of a driver.
func refusal(err error, fence ringfence.Fence) error {
	if err == nil {
		return nil
	}
	var state interface{ SQLState() string }
	code := ""
	if errors.As(err, &state) {
		code = state.SQLState()
	}
	text := err.Error()
	switch {
	case code == "RF001" || code == "" && strings.Contains(text, "STALE_TOKEN"):
		return &StaleToken{Offered: fence, Mark: markIn(text)}
	case code == "RF006":
		return fmt.Errorf("%w: %w", ErrTokenTooHigh, err)
	case code == "RF002":
		return fmt.Errorf("%w: %w", ErrWrongLease, err)
	case code == "RF003":
		return fmt.Errorf("%w: %w", ErrMissingFence, err)
	}
	return err
}

// markIn reads the mark from `... was overtaken by token 43 ...`.
func markIn(text string) uint64 {
	_, behind, _ := strings.Cut(text, "overtaken by token ")
	digits := behind[:len(behind)-len(strings.TrimLeft(behind, "0123456789"))]
	mark, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0
	}
	return mark
}
