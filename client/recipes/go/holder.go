// A holder that a test commands; ../python/holder.py says how. recipe.go is the block of the page.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	ringfence "ringfence.io/client/go"
)

var lines = bufio.NewScanner(os.Stdin)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err != nil {
		panic(err)
	}
	for lines.Scan() {
		var command, value string
		var token uint64
		// `advance` has no value.
		_, _ = fmt.Sscan(lines.Text(), &command, &token, &value)
		err := carryOut(ctx, pool, command, token, value)
		switch {
		case err == nil:
			fmt.Println("done")
		case errors.Is(err, ringfence.ErrStaleToken):
			fmt.Println("stale")
		default:
			fmt.Println("failed:", strings.SplitN(err.Error(), "\n", 2)[0])
		}
	}
}

func carryOut(ctx context.Context, pool *pgxpool.Pool, command string, token uint64, value string) error {
	const update = "UPDATE balance SET amount = $1::text::bigint"
	switch command {
	case "advance":
		return advance(ctx, pool, token)
	case "write":
		return write(ctx, pool, token, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, update, value)
			return err
		})
	case "pause":
		return write(ctx, pool, token, func(tx pgx.Tx) error {
			fmt.Println("paused")
			lines.Scan()
			_, err := tx.Exec(ctx, update, value)
			return err
		})
	case "end":
		return write(ctx, pool, token, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "COMMIT"); err != nil {
				return err
			}
			fmt.Println("paused")
			lines.Scan()
			// Past the guard's own look at the transaction.
			_, err := tx.Conn().Exec(ctx, update, value)
			return err
		})
	case "aborted":
		return write(ctx, pool, token, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, update, value); err != nil {
				return err
			}
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		})
	case "past":
		_, err := pool.Exec(ctx, update, value)
		return err
	}
	return fmt.Errorf("no command %q", command)
}
