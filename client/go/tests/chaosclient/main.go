// Command chaosclient is a client of `ringfence chaos` in Go: it is disturbed and judged like those
// in Rust.
//
//	go build -o /tmp/chaosclient ./chaosclient
//	ringfence chaos --client /tmp/chaosclient
//
// It prints what it did and saw as lines of a history, whose format is in the documentation of
// ringfence_check::history, and stops at a line "stop" on stdin, or at its end.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	ringfence "ringfence.io/client/go"
)

const (
	// lookEvery is how often a holder asks whether it holds.
	lookEvery = 15 * time.Millisecond
	// operationsMax is the room for the operations of one client in the numbers of all.
	operationsMax = 1_000_000_000
	requestLimit  = 4 * time.Second
)

type fields map[string]any

func main() {
	options := flag.NewFlagSet("chaosclient", flag.ContinueOnError)
	options.SetOutput(io.Discard)
	var a actor
	var seed uint64
	var nodes string
	options.Uint64Var(&a.number, "number", 0, "")
	options.Uint64Var(&seed, "seed", 0, "")
	options.StringVar(&nodes, "nodes", "", "")
	options.StringVar(&a.prefix, "prefix", "", "")
	options.IntVar(&a.leases, "leases", 0, "")
	// Of the stores of the run this client uses none.
	options.String("stores", "", "")
	options.String("memory", "", "")
	options.Bool("control", false, "")
	options.Bool("open-guard", false, "")
	if err := options.Parse(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	client, err := ringfence.Connect(ctx, strings.Split(nodes, ","),
		ringfence.WithConnectTimeout(time.Minute), ringfence.WithRequestTimeout(requestLimit))
	if err != nil {
		log.Fatal(err)
	}
	a.client = client
	a.dice = rand.New(rand.NewPCG(seed, a.number))
	a.next = a.number * operationsMax
	a.stop = make(chan struct{})
	go a.listen()
	a.live(ctx)
}

// now is nanoseconds of CLOCK_BOOTTIME, the clock of the history.
func now() int64 {
	const clockBoottime = 7
	var at syscall.Timespec
	if _, _, fault := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0); fault != 0 {
		log.Fatal(fault)
	}
	return at.Nano()
}

// An actor is one client's life: sessions, and what it does in them.
type actor struct {
	number, next uint64
	prefix       string
	leases       int
	client       *ringfence.Client
	dice         *rand.Rand
	stop         chan struct{}
	mu           sync.Mutex
}

// listen stops the actor when the process that started this one wants it, or is gone. It ignores
// "flood" and "calm", which ask for load of no consequence: other clients make it.
func (a *actor) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if text := lines.Text(); text != "flood" && text != "calm" {
			break
		}
	}
	close(a.stop)
}

func (a *actor) stopped() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

func (a *actor) put(kind string, record fields) {
	line, err := json.Marshal(fields{kind: record})
	if err != nil {
		log.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1)
	}
}

func (a *actor) invoked(at int64, session *ringfence.Session, op any) uint64 {
	a.next++
	record := fields{"id": a.next, "t": at, "client": a.number, "op": op}
	if session != nil {
		record["session"] = session.ID()
	}
	a.put("invoked", record)
	return a.next
}

func (a *actor) returned(id uint64, outcome any) {
	a.put("returned", fields{"id": id, "t": now(), "outcome": outcome})
}

func unknown(err error) any { return fields{"unknown": fields{"error": fmt.Sprint(err)}} }

// outcomeOf is what an error says of its request; what it leaves open is unknown, which hides faults
// of the service and never makes one up.
func outcomeOf(err error) any {
	var refusal *ringfence.Refusal
	if !errors.As(err, &refusal) {
		if errors.Is(err, ringfence.ErrUnavailable) {
			return fields{"not_done": fields{"error": err.Error()}}
		}
		return unknown(err)
	}
	switch refusal.Reason {
	case ringfence.ErrHeld:
		session, err := strconv.ParseUint(refusal.Details["holder"], 10, 64)
		if err != nil || refusal.Token() == 0 {
			return unknown(refusal)
		}
		return fields{"held": fields{"session": session, "token": refusal.Token(), "mine": refusal.Details["mine"] == "true"}}
	case ringfence.ErrQueued:
		return fields{"queued": fields{}}
	case ringfence.ErrWaitTimeout:
		return "timed_out"
	case ringfence.ErrUnavailable:
		return fields{"not_done": fields{"error": refusal.Error()}}
	case ringfence.ErrLimit, ringfence.ErrNotFound, ringfence.ErrInvalidArgument, ringfence.ErrPermissionDenied:
		return fields{"refused": fields{"reason": string(refusal.Reason)}}
	}
	return unknown(refusal)
}

func (a *actor) live(ctx context.Context) {
	ttls := []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 4 * time.Second}
	for !a.stopped() {
		ttl := ttls[a.dice.IntN(len(ttls))]
		id := a.invoked(now(), nil, fields{"open": fields{"ttl_ms": ttl.Milliseconds()}})
		session, err := a.client.OpenSession(ctx, ringfence.SessionOptions{TTL: ttl, Identity: fmt.Sprint("c", a.number)})
		if err != nil {
			a.returned(id, outcomeOf(err))
			time.Sleep(200 * time.Millisecond)
			continue
		}
		a.returned(id, fields{"opened": fields{"session": session.ID(), "ttl_ms": ttl.Milliseconds()}})
		a.serve(ctx, session)
	}
}

func (a *actor) serve(ctx context.Context, session *ringfence.Session) {
	// Since when something is under way in the session that the history does not tell.
	since := int64(0)
	for range 5 + a.dice.IntN(35) {
		if a.stopped() || since != 0 || !session.Valid() {
			break
		}
		name := fmt.Sprint(a.prefix, 1+a.dice.IntN(a.leases))
		if a.dice.Float64() < 0.15 {
			a.get(ctx, name)
		} else {
			since = a.acquire(ctx, session, name)
		}
		time.Sleep(time.Duration(2+a.dice.IntN(58)) * time.Millisecond)
	}
	if since == 0 {
		since = now()
	}
	id := a.invoked(since, session, "close")
	within, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := session.Close(within); err != nil {
		a.returned(id, unknown(err))
	} else {
		a.returned(id, "closed")
	}
}

func (a *actor) get(ctx context.Context, name string) {
	id := a.invoked(now(), nil, fields{"get": fields{"lease": name}})
	seen, err := a.client.Get(ctx, name)
	switch {
	case errors.Is(err, ringfence.ErrNotFound):
		a.returned(id, fields{"lease": fields{"waiters": 0}})
	case err != nil:
		a.returned(id, outcomeOf(err))
	case seen.Holder == nil:
		a.returned(id, fields{"lease": fields{"waiters": seen.Waiters}})
	default:
		a.returned(id, fields{"lease": fields{
			"session": seen.Holder.Session, "token": seen.Holder.Token, "waiters": seen.Waiters,
		}})
	}
}

// acquire returns since when something is under way that the history does not tell, or 0.
func (a *actor) acquire(ctx context.Context, session *ringfence.Session, name string) int64 {
	begun := now()
	// A wait is a context's: the cluster's queue is left by a cancel, which the history does not see.
	id := a.invoked(begun, session, fields{"acquire": fields{"lease": name}})
	lease, err := session.TryAcquire(ctx, name)
	if err != nil {
		outcome := outcomeOf(err)
		a.returned(id, outcome)
		if record, is := outcome.(fields); is && record["unknown"] != nil {
			return begun
		}
		return 0
	}
	a.returned(id, fields{"granted": fields{"token": lease.Token()}})
	return a.hold(ctx, session, lease)
}

func (a *actor) hold(ctx context.Context, session *ringfence.Session, lease *ringfence.Lease) int64 {
	begun := now()
	last, until := begun, begun+int64(2+a.dice.IntN(400))*int64(time.Millisecond)
	held := true
	for held && last < until {
		time.Sleep(lookEvery)
		// Read before the question: if the answer is yes, it was held then.
		asked := now()
		if held = lease.Valid(); held {
			last = asked
		}
	}
	why := "released"
	releases := a.dice.Float64() < 0.85
	var loss *ringfence.Loss
	if errors.As(lease.Err(), &loss) {
		held, why = false, "told"
		if loss.Kind == ringfence.LossWindowPassed {
			why = "window"
		}
	} else if !releases {
		why = "closed"
	}
	a.put("belief", fields{
		"client": a.number, "session": session.ID(), "lease": lease.Name(), "token": lease.Token(),
		"from": begun, "until": last, "why": why,
	})
	id := a.invoked(now(), session, fields{"release": fields{"lease": lease.Name(), "token": lease.Token()}})
	if held && !releases {
		// Closing the session ends it.
		return begun
	}
	within, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := lease.Release(within); err != nil {
		// The module goes on with it in the background.
		a.returned(id, unknown(err))
		return begun
	}
	a.returned(id, "released")
	return 0
}
