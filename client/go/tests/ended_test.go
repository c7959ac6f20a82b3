package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/guard"
	"ringfence.io/client/go/pgxguard"
)

// ends are texts that end the admitted transaction; the last ones leave another one open.
var ends = []string{"COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN", "ROLLBACK; BEGIN"}

// ending is a guarded write by one of the two guards.
type ending struct {
	token uint64
	write func(fence ringfence.Fence, work func(exec func(string) error) error) error
	count func(query string) int
	name  string
}

// fence is one that is newer than all before.
func (e *ending) fence() ringfence.Fence {
	e.token++
	return ringfence.Fence{Name: e.name, Token: e.token}
}

func databaseSQL(t *testing.T, dialect guard.Dialect, driver, address string) *ending {
	t.Helper()
	ctx := within(t, time.Minute)
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	e := &ending{name: "bank/ended/" + t.Name()}
	g := newGuard(t, dialect, e.name)
	if err := g.Install(ctx, db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS ended (part TEXT UNIQUE)"); err != nil {
		t.Fatal(err)
	}
	e.write = func(fence ringfence.Fence, work func(func(string) error) error) error {
		return g.Write(ctx, db, fence, func(tx *sql.Tx) error {
			return work(func(text string) error {
				_, err := tx.ExecContext(ctx, text)
				return err
			})
		})
	}
	e.count = func(query string) (count int) {
		if err := db.QueryRowContext(ctx, query).Scan(&count); err != nil {
			t.Fatal(err)
		}
		return count
	}
	return e
}

func native(t *testing.T, ctx context.Context, db pgxguard.Beginner, query func(context.Context, string, ...any) pgx.Row) *ending {
	t.Helper()
	e := &ending{name: "bank/ended/" + t.Name()}
	g, err := pgxguard.New(e.name)
	if err != nil {
		t.Fatal(err)
	}
	e.write = func(fence ringfence.Fence, work func(func(string) error) error) error {
		return g.Write(ctx, db, fence, func(tx pgx.Tx) error {
			return work(func(text string) error {
				_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
				return err
			})
		})
	}
	e.count = func(text string) (count int) {
		if err := query(ctx, text).Scan(&count); err != nil {
			t.Fatal(err)
		}
		return count
	}
	return e
}

func (e *ending) rows(part string) int {
	return e.count(fmt.Sprintf("SELECT count(*) FROM ended WHERE part LIKE '%s/%%'", part))
}

// isReported writes behind each end. refuses: what comes behind one never is committed.
func (e *ending) isReported(t *testing.T, ends []string, refuses bool) {
	t.Helper()
	for number, end := range ends {
		part := fmt.Sprintf("%s/%d", e.name, number)
		fence := e.fence()
		err := e.write(fence, func(exec func(string) error) error {
			if err := exec("INSERT INTO ended VALUES ('" + part + "/before/')"); err != nil {
				return err
			}
			if err := exec(end); err != nil {
				return err
			}
			_ = exec("INSERT INTO ended VALUES ('" + part + "/behind/')")
			if refuses {
				_ = exec("COMMIT")
			}
			return nil
		})
		if !errors.Is(err, guard.ErrTransactionEnded) {
			t.Errorf("%s: %v", end, err)
		}
		committed := 0
		if strings.HasPrefix(end, "COMMIT") {
			committed = 1
		}
		if there := e.rows(part + "/before"); there != committed {
			t.Errorf("%s: %d rows of before the end", end, there)
		}
		open := strings.Contains(end, "CHAIN") || strings.Contains(end, "BEGIN")
		if there := e.rows(part + "/behind"); there != 0 && (refuses || open) {
			t.Errorf("%s: %d rows of behind the end", end, there)
		}
		// The connection is as good as before.
		if err := e.write(e.fence(), func(exec func(string) error) error { return exec("SELECT 1") }); err != nil {
			t.Errorf("behind %s: %v", end, err)
		}
	}
}

// isNoRepeat fails behind an end, which must not look as if nothing had been done.
func (e *ending) isNoRepeat(t *testing.T) {
	t.Helper()
	failing := errors.New("the write failed")
	for _, end := range ends {
		err := e.write(e.fence(), func(exec func(string) error) error {
			if err := exec(end); err != nil {
				return err
			}
			return failing
		})
		if !errors.Is(err, guard.ErrTransactionEnded) || errors.Is(err, failing) || !strings.Contains(err.Error(), failing.Error()) {
			t.Errorf("%s: %v", end, err)
		}
	}
	for _, overlooks := range []bool{false, true} {
		for _, end := range []string{"COMMIT", "COMMIT; BEGIN"} {
			err := e.write(e.fence(), func(exec func(string) error) error {
				err := exec(end + "; SELECT 1 / 0")
				if overlooks {
					return nil
				}
				return err
			})
			if !errors.Is(err, guard.ErrTransactionEnded) {
				t.Errorf("%s that fails, overlooked %v: %v", end, overlooks, err)
			}
		}
		// One that has only failed is that.
		err := e.write(e.fence(), func(exec func(string) error) error {
			err := exec("SELECT 1 / 0")
			if overlooks {
				return nil
			}
			return err
		})
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || errors.Is(err, guard.ErrTransactionEnded) {
			t.Errorf("a statement that fails, overlooked %v: %v", overlooks, err)
		}
	}
	if err := e.write(e.fence(), func(func(string) error) error { return failing }); !errors.Is(err, failing) {
		t.Error(err)
	}
}

func TestPostgreSQLReportsTransactionsThatHadEnded(t *testing.T) {
	e := databaseSQL(t, guard.PostgreSQL, "pgx", postgres(t)+"?default_query_exec_mode=simple_protocol")
	e.isReported(t, ends, false)
	e.isNoRepeat(t)
}

func TestSQLiteReportsTransactionsThatHadEnded(t *testing.T) {
	e := databaseSQL(t, guard.SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "bank.db")+"?_pragma=busy_timeout(5000)")
	e.isReported(t, []string{"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"}, false)

	// An error at which SQLite ends the transaction.
	for _, follows := range []bool{false, true} {
		err := e.write(e.fence(), func(exec func(string) error) error {
			if err := exec("INSERT INTO ended VALUES ('twice')"); err != nil {
				return err
			}
			if exec("INSERT OR ROLLBACK INTO ended VALUES ('twice')") == nil {
				t.Error("there twice")
			}
			if follows {
				_ = exec("INSERT INTO ended VALUES ('behind')")
			}
			return nil
		})
		if !errors.Is(err, guard.ErrTransactionEnded) {
			t.Errorf("an error that was overlooked, with more behind it %v: %v", follows, err)
		}
	}
	if there := e.count("SELECT count(*) FROM ended WHERE part = 'twice'"); there != 0 {
		t.Error(there, "rows")
	}
}

func TestPgxRefusesWhatFollowsTheEndOfItsTransaction(t *testing.T) {
	ctx := within(t, time.Minute)
	pool, err := pgxpool.New(ctx, postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, text := range []string{guard.PostgreSQLSchema, "CREATE TABLE IF NOT EXISTS ended (part TEXT UNIQUE)"} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("pool", func(t *testing.T) {
		e := native(t, ctx, pool, pool.QueryRow)
		e.isReported(t, ends, true)
		e.isNoRepeat(t)
	})
	t.Run("connection", func(t *testing.T) {
		connection, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Release()
		e := native(t, ctx, connection.Conn(), connection.QueryRow)
		e.isReported(t, ends, true)
		e.isNoRepeat(t)
	})
	t.Run("ways", func(t *testing.T) { refusesEachWay(t, ctx, pool) })
}

// refusesEachWay sends a statement behind the end in each way that pgx has.
func refusesEachWay(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	g, err := pgxguard.New("bank/ended/ways")
	if err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO ended VALUES ('ways') RETURNING part"
	const largeObject = 4_000_000_000
	var part string
	ways := map[string]func(tx pgx.Tx) error{
		"query": func(tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, insert)
			_, err := pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		},
		"row": func(tx pgx.Tx) error { return tx.QueryRow(ctx, insert).Scan(&part) },
		"batch": func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue(insert)
			return tx.SendBatch(ctx, batch).Close()
		},
		"copy": func(tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"ended"}, []string{"part"}, pgx.CopyFromRows([][]any{{"ways"}}))
			return err
		},
		"large object": func(tx pgx.Tx) error {
			objects := tx.LargeObjects()
			_, err := objects.Create(ctx, largeObject)
			return err
		},
		"prepare": func(tx pgx.Tx) error {
			_, err := tx.Prepare(ctx, "ways", insert)
			return err
		},
		"nested": func(tx pgx.Tx) error {
			_, err := tx.Begin(ctx)
			return err
		},
		"commit": func(tx pgx.Tx) error {
			if err := tx.Commit(ctx); !errors.Is(err, guard.ErrTransactionEnded) {
				t.Error(err)
			}
			return pgx.ErrTxClosed
		},
	}
	commits := map[string]func(tx pgx.Tx, text string) error{
		"exec": func(tx pgx.Tx, text string) error {
			_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"query": func(tx pgx.Tx, text string) error {
			rows, err := tx.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
			rows.Close()
			return err
		},
		"row": func(tx pgx.Tx, text string) error {
			if err := tx.QueryRow(ctx, text, pgx.QueryExecModeSimpleProtocol).Scan(); !errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("%s as a row: %w", text, err)
			}
			return nil
		},
		"batch": func(tx pgx.Tx, text string) error {
			batch := &pgx.Batch{}
			batch.Queue(text)
			return tx.SendBatch(ctx, batch).Close()
		},
	}
	token := uint64(0)
	for name, way := range ways {
		for by, end := range commits {
			for _, text := range []string{"COMMIT", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN"} {
				token++
				err := g.Write(ctx, pool, ringfence.Fence{Name: "bank/ended/ways", Token: token}, func(tx pgx.Tx) error {
					objects := tx.LargeObjects() // The handle is older than the end.
					if err := end(tx, text); err != nil {
						return err
					}
					if err := way(tx); !errors.Is(err, pgx.ErrTxClosed) {
						t.Errorf("%s behind %s by %s: %v", name, text, by, err)
					}
					if _, err := objects.Create(ctx, largeObject); !errors.Is(err, pgx.ErrTxClosed) {
						t.Errorf("a large object behind %s by %s: %v", text, by, err)
					}
					_, _ = tx.Exec(ctx, "COMMIT")
					return nil
				})
				if !errors.Is(err, guard.ErrTransactionEnded) {
					t.Errorf("%s behind %s by %s: %v", name, text, by, err)
				}
			}
		}
		for _, nested := range []bool{false, true} {
			if nested && name == "commit" {
				continue
			}
			token++
			err := g.Write(ctx, pool, ringfence.Fence{Name: "bank/ended/ways", Token: token}, func(tx pgx.Tx) error {
				if nested {
					var err error
					if tx, err = tx.Begin(ctx); err != nil {
						return err
					}
				}
				if _, err := tx.Exec(ctx, "COMMIT"); err != nil {
					return err
				}
				if err := way(tx); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s, nested %v: %v", name, nested, err)
				}
				return nil
			})
			if !errors.Is(err, guard.ErrTransactionEnded) {
				t.Errorf("%s, nested %v: %v", name, nested, err)
			}
		}
	}
	// Savepoints are within what was admitted.
	token++
	if err := g.Write(ctx, pool, ringfence.Fence{Name: "bank/ended/ways", Token: token}, func(tx pgx.Tx) error {
		if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO ended VALUES ('nested')")
			return err
		}); err != nil {
			return err
		}
		taken := errors.New("taken back")
		if err := pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return taken }); !errors.Is(err, taken) {
			return err
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	var refused, nested, objects int
	row := pool.QueryRow(ctx, "SELECT count(*) FILTER (WHERE part = 'ways'), count(*) FILTER (WHERE part = 'nested'),"+
		" (SELECT count(*) FROM pg_largeobject_metadata) FROM ended")
	if err := row.Scan(&refused, &nested, &objects); err != nil || refused != 0 || nested != 1 || objects != 0 {
		t.Error(refused, nested, objects, err)
	}
}
