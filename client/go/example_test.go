package ringfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	ringfence "ringfence.io/client/go"
)

func Example() {
	ctx := context.Background()
	client, err := ringfence.Connect(ctx, []string{"127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	lease, err := client.Lock(ctx, "reports/daily", ringfence.SessionOptions{Identity: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	err = lease.Do(ctx, func(ctx context.Context) error {
		fmt.Println("working as", lease.Fence())
		return nil
	})
	if errors.Is(err, ringfence.ErrLost) {
		log.Print("another process may work now: ", err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Print(err)
	}
}

func ExampleSession_TryAcquire() {
	var session *ringfence.Session // Of Client.OpenSession.

	lease, err := session.TryAcquire(context.Background(), "reports/daily")
	var refusal *ringfence.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Reason == ringfence.ErrHeld:
		fmt.Println("held by", refusal.Identity(), "with token", refusal.Token())
	case err != nil:
		log.Print(err)
	default:
		fmt.Println("token", lease.Token())
	}
}

func ExampleElector_Run() {
	ctx := context.Background()
	var client *ringfence.Client // Of Connect.

	elector, err := client.NewElector(ringfence.ElectorOptions{LeaseDuration: 15 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Run(ctx, "billing/leader", func(ctx context.Context, lease *ringfence.Lease) error {
		fmt.Println("leading as", lease.Fence())
		<-ctx.Done() // The lease is lost, or the program ends.
		return nil
	})
	log.Print(err)
}
