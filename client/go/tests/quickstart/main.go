// Command quickstart shows a stale write that is refused. It needs `ringfence dev`.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	ringfence "ringfence.io/client/go"
	"ringfence.io/client/go/guard"
)

func main() {
	endpoints := "127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440"
	if set := os.Getenv("RINGFENCE_ENDPOINTS"); set != "" {
		endpoints = set
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, strings.Split(endpoints, ",")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints []string) error {
	client, err := ringfence.Connect(ctx, endpoints)
	if err != nil {
		return err
	}
	defer client.Close(ctx)

	db, err := sql.Open("sqlite", "file::memory:?cache=shared")
	if err != nil {
		return err
	}
	defer db.Close()
	balance, err := guard.New(guard.SQLite, "bank/interest")
	if err != nil {
		return err
	}
	if err := balance.Install(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE balance (amount INTEGER); INSERT INTO balance VALUES (100)"); err != nil {
		return err
	}
	addInterest := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE balance SET amount = amount * 2")
		return err
	}

	old, err := client.Lock(ctx, "bank/interest", ringfence.SessionOptions{}) // waits until it is free
	if err != nil {
		return err
	}
	if err := balance.Advance(ctx, db, old.Fence()); err != nil { // before the first read
		return err
	}
	fmt.Println("held:", old.Fence(), "valid:", old.Valid())

	// An operator takes the lease away, and another holder is granted it and writes.
	if err := client.Revoke(ctx, old.Fence(), ringfence.RevokeOptions{Reason: "quick start"}); err != nil {
		return err
	}
	present, err := client.Lock(ctx, "bank/interest", ringfence.SessionOptions{})
	if err != nil {
		return err
	}
	if err := balance.Write(ctx, db, present.Fence(), addInterest); err != nil {
		return err
	}
	fmt.Println("held:", present.Fence(), "and the old one is valid:", old.Valid())

	// What the old holder still writes, however late it arrives, is refused by the database.
	err = balance.Write(ctx, db, old.Fence(), addInterest)
	if !errors.Is(err, ringfence.ErrStaleToken) {
		return fmt.Errorf("a stale write was not refused: %w", err)
	}
	fmt.Println("refused:", err)
	return present.Release(ctx)
}
