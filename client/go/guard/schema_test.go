package guard

import (
	"errors"
	"os"
	"strings"
	"testing"

	ringfence "ringfence.io/client/go"
)

// A module's files cannot come from outside of it, so the project's SQL is here a second time.
func TestTheSchemasAreThoseOfTheProject(t *testing.T) {
	for file, embedded := range map[string]string{"postgres.sql": PostgreSQLSchema, "sqlite.sql": SQLiteSchema} {
		path := "../../../crates/guard/sql/" + file
		original, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(original) != embedded {
			t.Errorf("sql/%s differs from %s: copy it", file, path)
		}
	}
}

func TestAFenceOfAnotherLeaseIsRefusedBeforeTheDatabaseIsAsked(t *testing.T) {
	g, err := New(SQLite, "bank/balance")
	if err != nil {
		t.Fatal(err)
	}
	for fence, expected := range map[ringfence.Fence]error{
		{Name: "bank/other", Token: 7}:         ErrWrongLease,
		{Name: "bank/balance"}:                 ErrMissingFence,
		{}:                                     ErrMissingFence,
		{Name: "bank/balance", Token: 1 << 63}: nil,
	} {
		err := g.Write(t.Context(), nil, fence, nil)
		if err == nil || expected != nil && !errors.Is(err, expected) {
			t.Errorf("%v: %v", fence, err)
		}
	}
	for _, dialect := range []Dialect{0, 3} {
		if _, err := New(dialect, "a"); err == nil {
			t.Error("no dialect", dialect)
		}
	}
	if _, err := New(SQLite, "a//b"); err == nil {
		t.Error("no name")
	}
	if mark := markIn(`STALE_TOKEN: token 7 of lease "a" was overtaken by token 43 (SQLSTATE RF001)`); mark != 43 {
		t.Error(mark)
	}
}

// A new cluster of `ringfence dev` before a store of an earlier one.
func TestAStaleTokenOfAClusterThatCountsFromOneSaysWhatToDo(t *testing.T) {
	const hint = "ringfence dev --data-dir"
	for token, expected := range map[uint64]bool{7: true, 1_790_000_000 << 20: false} {
		stale := &StaleToken{Offered: ringfence.Fence{Name: "a", Token: token}, Mark: token + 1}
		if strings.Contains(stale.Error(), hint) != expected {
			t.Error(stale)
		}
	}
}
