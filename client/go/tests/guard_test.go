package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/guard"
	"ringfence.io/client/go/pgxguard"
)

// twoGrants are the leases of an old holder and of its successor.
func twoGrants(t *testing.T, name string) (old, present *ringfence.Lease) {
	t.Helper()
	client := connect(t)
	old, err := client.Lock(within(t, 30*time.Second), name, ringfence.SessionOptions{TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	fence := old.Fence()
	if err := client.Revoke(within(t, 30*time.Second), fence, ringfence.RevokeOptions{}); err != nil {
		t.Fatal(err)
	}
	present, err = client.Lock(within(t, 30*time.Second), name, ringfence.SessionOptions{TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return old, present
}

func TestSQLiteRefusesWhatIsStale(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "bank.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g := newGuard(t, guard.SQLite, "bank/sqlite")
	guardsWrites(t, g, db)

	made := ringfence.Fence{Name: g.Lease(), Token: 1 << 60}
	if err := g.Advance(t.Context(), db, made); !errors.Is(err, guard.ErrTokenTooHigh) {
		t.Error(err)
	}
	if err := g.WithoutCeiling().Advance(t.Context(), db, made); err != nil {
		t.Error(err)
	}
}

func TestPostgreSQLRefusesWhatIsStale(t *testing.T) {
	db, err := sql.Open("pgx", postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	g := newGuard(t, guard.PostgreSQL, "bank/postgres")
	guardsWrites(t, g, db)
	if err := g.Advance(t.Context(), db, ringfence.Fence{Name: g.Lease(), Token: 1 << 60}); !errors.Is(err, guard.ErrTokenTooHigh) {
		t.Error(err)
	}
}

func newGuard(t *testing.T, dialect guard.Dialect, lease string) *guard.Guard {
	t.Helper()
	g, err := guard.New(dialect, lease)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func guardsWrites(t *testing.T, g *guard.Guard, db *sql.DB) {
	t.Helper()
	ctx := within(t, time.Minute)
	for range 2 {
		if err := g.Install(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS balance (amount bigint)"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "INSERT INTO balance VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	increment := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE balance SET amount = amount + 1")
		return err
	}
	old, present := twoGrants(t, g.Lease())
	// Until the new holder advances, the store would still take the old one's write.
	if err := g.Write(ctx, db, old.Fence(), increment); err != nil {
		t.Fatal(err)
	}
	if err := g.Advance(ctx, db, present.Fence()); err != nil {
		t.Fatal(err)
	}
	err := g.Write(ctx, db, old.Fence(), increment)
	var stale *guard.StaleToken
	if !errors.Is(err, ringfence.ErrStaleToken) || !errors.As(err, &stale) || stale.Offered != old.Fence() {
		t.Error(err)
	}
	if g.Lease() == "bank/postgres" && stale.Mark != present.Token() {
		t.Error("mark", stale.Mark)
	}
	// Work under the lease that is refused so has lost it.
	err = present.Do(ctx, func(ctx context.Context) error {
		for range 10 {
			if err := g.Write(ctx, db, present.Fence(), increment); err != nil {
				return err
			}
		}
		later := ringfence.Fence{Name: g.Lease(), Token: present.Token() + 1}
		if err := g.Advance(ctx, db, later); err != nil {
			return err
		}
		return g.Write(ctx, db, present.Fence(), increment)
	})
	if !errors.Is(err, ringfence.ErrStaleToken) || present.Valid() {
		t.Error(err, present.Valid())
	}
	hidesNoMarks(t, g, db, old)
	failing := errors.New("the write failed")
	if err := g.Write(ctx, db, ringfence.Fence{Name: g.Lease(), Token: present.Token() + 1}, func(tx *sql.Tx) error {
		if err := increment(tx); err != nil {
			return err
		}
		return failing
	}); !errors.Is(err, failing) {
		t.Error(err)
	}
	var amount int
	if err := db.QueryRowContext(ctx, "SELECT amount FROM balance").Scan(&amount); err != nil || amount != 11 {
		t.Error("the balance is", amount, err)
	}
}

// hidesNoMarks shows a stale fence on a connection with temporary tables, which come first in every search path.
func hidesNoMarks(t *testing.T, g *guard.Guard, db *sql.DB, old *ringfence.Lease) {
	t.Helper()
	ctx := within(t, time.Minute)
	db.SetMaxOpenConns(1)
	defer db.SetMaxOpenConns(0)
	for _, table := range []string{"marks", "ringfence_marks"} {
		if _, err := db.ExecContext(ctx, "CREATE TEMP TABLE "+table+" (name TEXT PRIMARY KEY, mark BIGINT NOT NULL)"); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Advance(ctx, db, old.Fence()); !errors.Is(err, ringfence.ErrStaleToken) {
		t.Error("with temporary tables:", err)
	}
}

func TestPgxRefusesWhatIsStale(t *testing.T) {
	ctx := within(t, time.Minute)
	pool, err := pgxpool.New(ctx, postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, guard.PostgreSQLSchema); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE prices (amount bigint); INSERT INTO prices VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	g, err := pgxguard.New("bank/pgx")
	if err != nil {
		t.Fatal(err)
	}
	increment := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE prices SET amount = amount + 1")
		return err
	}
	old, present := twoGrants(t, "bank/pgx")
	if err := g.Advance(ctx, pool, present.Fence()); err != nil {
		t.Fatal(err)
	}
	err = g.Write(ctx, pool, old.Fence(), increment)
	var stale *guard.StaleToken
	if !errors.As(err, &stale) || !errors.Is(err, ringfence.ErrStaleToken) || stale.Mark != present.Token() {
		t.Error(err)
	}
	if err := g.Write(ctx, pool, present.Fence(), increment); err != nil {
		t.Error(err)
	}
	if err := g.Write(ctx, pool, ringfence.Fence{Name: "bank/other", Token: 7}, increment); !errors.Is(err, guard.ErrWrongLease) {
		t.Error(err)
	}
	if err := g.Write(ctx, pool, ringfence.Fence{Name: "bank/pgx", Token: 1 << 60}, increment); !errors.Is(err, guard.ErrTokenTooHigh) {
		t.Error(err)
	}
	var amount int
	if err := pool.QueryRow(ctx, "SELECT amount FROM prices").Scan(&amount); err != nil || amount != 1 {
		t.Error("the price is", amount, err)
	}
}

// database is one PostgreSQL server for all tests.
var database struct {
	once    sync.Once
	address string
	stop    func()
	err     error
}

func postgres(t *testing.T) string {
	t.Helper()
	initdb := program("initdb", "/usr/lib/postgresql/*/bin")
	if initdb == "" {
		without(t, "no PostgreSQL: install postgresql, or put initdb onto the path")
	}
	database.once.Do(func() { database.err = startPostgres(initdb) })
	if database.err != nil {
		t.Fatal(database.err)
	}
	return database.address
}

// program finds one on the path, or in these folders.
func program(name, folders string) string {
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	found, _ := filepath.Glob(filepath.Join(folders, name)) // Only a wrong pattern is an error.
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

func startPostgres(initdb string) error {
	// Where it is linked to, its companions may not be.
	initdb, err := filepath.EvalSymlinks(initdb)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "ringfence-go-postgres-")
	if err != nil {
		return err
	}
	run := func(name string, arguments ...string) (*exec.Cmd, error) {
		command := exec.Command(filepath.Join(filepath.Dir(initdb), name), arguments...)
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
		if os.Geteuid() != 0 {
			return command, nil
		}
		// The server refuses to run as root; its package makes this user.
		account, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return command, os.Chown(folder, uid, gid)
	}
	data := filepath.Join(folder, "data")
	making, err := run("initdb", "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8")
	if err != nil {
		return err
	}
	if told, err := making.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, told)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	server, err := run("postgres", "-D", data, "-c", "port="+strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off")
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	database.stop = func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
		_ = os.RemoveAll(folder)
	}
	database.address = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", port)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		connection, err := pgx.Connect(ctx, database.address)
		if err == nil {
			err = connection.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server did not start: %w", err)
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
