package ringfence

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"
)

// scriptOrder is what a script tells this program to do; see client/scripts/README.md.
type scriptOrder struct {
	ID             uint64   `json:"id"`
	Do             string   `json:"do"`
	As             string   `json:"as"`
	Client         string   `json:"client"`
	Session        string   `json:"session"`
	Lease          string   `json:"lease"`
	Endpoints      []string `json:"endpoints"`
	ConnectTimeout uint64   `json:"connect_timeout_ms"`
	RequestTimeout uint64   `json:"request_timeout_ms"`
	TTL            uint64   `json:"ttl_ms"`
	Identity       string   `json:"identity"`
	Name           string   `json:"name"`
	Wait           *uint64  `json:"wait_ms"`
	LockDelay      uint64   `json:"lock_delay_ms"`
	Data           string   `json:"data"`
	To             uint64   `json:"to"`
	Milliseconds   uint64   `json:"ms"`
	Target         uint64   `json:"target"`
}

type told = map[string]any

// scriptRunner does what scripts say, with this client.
type scriptRunner struct {
	clock *steppedClock

	mu       sync.Mutex
	clients  map[string]*Client
	sessions map[string]*Session
	leases   map[string]*Lease
	running  map[uint64]context.CancelFunc
	writing  sync.Mutex
}

// RunScripts carries out the orders on its standard input until that ends.
func RunScripts() {
	r := &scriptRunner{clock: &steppedClock{real: newClock()}, running: make(map[uint64]context.CancelFunc)}
	r.forget()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var order scriptOrder
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			r.answer(told{"error": told{"kind": "misuse", "text": err.Error()}})
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		r.mu.Lock()
		r.running[order.ID] = cancel
		r.mu.Unlock()
		go func() {
			value, err := r.handle(ctx, &order)
			answer := told{"id": order.ID, "ok": value}
			if err != nil {
				answer = told{"id": order.ID, "error": r.explain(ctx, err)}
			}
			r.mu.Lock()
			delete(r.running, order.ID)
			r.mu.Unlock()
			cancel()
			r.answer(answer)
		}()
	}
}

func (r *scriptRunner) answer(answer told) {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func (r *scriptRunner) forget() (clients map[string]*Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clients = r.clients
	r.clients, r.sessions, r.leases = make(map[string]*Client), make(map[string]*Session), make(map[string]*Lease)
	return clients
}

// errNoConnection marks what a connect failed with.
var errNoConnection = errors.New("no connection")

func milliseconds(number uint64) time.Duration { return time.Duration(number) * time.Millisecond }

func (r *scriptRunner) handle(ctx context.Context, order *scriptOrder) (told, error) {
	r.mu.Lock()
	client, session, lease := r.clients[order.Client], r.sessions[order.Session], r.leases[order.Lease]
	r.mu.Unlock()
	switch order.Do {
	case "hello":
		return told{"language": "go", "features": []string{"suspend", "abandon"}}, nil
	case "connect":
		return r.connect(ctx, order)
	case "open":
		opened, err := client.OpenSession(ctx, SessionOptions{TTL: milliseconds(order.TTL), Identity: order.Identity})
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.sessions[order.As] = opened
		r.mu.Unlock()
		return told{"session": opened.ID(), "ttl_ms": opened.TTL().Milliseconds()}, nil
	case "acquire":
		return r.acquire(ctx, session, order)
	case "release":
		return told{}, lease.Release(ctx)
	case "transfer":
		transferred, err := lease.Transfer(ctx, order.To)
		return told{"session": transferred.Session, "token": transferred.Token}, err
	case "check":
		return standing(lease), nil
	case "wait_lost":
		select {
		case <-lease.Lost():
			return standing(lease), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "report_stale":
		lease.ReportStale()
		return told{}, nil
	case "check_session":
		return told{"held": session.Valid()}, nil
	case "close":
		return told{}, session.Close(ctx)
	case "shut_down":
		return told{}, client.Close(ctx)
	case "suspend":
		r.clock.step(milliseconds(order.Milliseconds))
		return told{}, nil
	case "abandon":
		r.mu.Lock()
		defer r.mu.Unlock()
		if cancel := r.running[order.Target]; cancel != nil {
			cancel()
		}
		return told{}, nil
	case "reset":
		for _, client := range r.forget() {
			_ = client.Close(ctx)
		}
		return told{}, nil
	}
	return nil, errors.New("cannot do " + order.Do)
}

func (r *scriptRunner) connect(ctx context.Context, order *scriptOrder) (told, error) {
	with := []Option{func(o *options) error {
		o.clock = r.clock
		return nil
	}}
	if order.RequestTimeout > 0 {
		with = append(with, WithRequestTimeout(milliseconds(order.RequestTimeout)))
	}
	if order.ConnectTimeout > 0 {
		limited, cancel := context.WithTimeout(ctx, milliseconds(order.ConnectTimeout))
		defer cancel()
		ctx = limited
	}
	client, err := Connect(ctx, order.Endpoints, with...)
	if err != nil {
		return nil, errors.Join(errNoConnection, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[order.As] = client
	return told{}, nil
}

func (r *scriptRunner) acquire(ctx context.Context, session *Session, order *scriptOrder) (told, error) {
	with := []AcquireOption{WithLockDelay(milliseconds(order.LockDelay)), WithData([]byte(order.Data))}
	var lease *Lease
	var err error
	if order.Wait == nil {
		lease, err = session.TryAcquire(ctx, order.Name, with...)
	} else {
		limited, cancel := context.WithTimeout(ctx, milliseconds(*order.Wait))
		defer cancel()
		lease, err = session.Acquire(limited, order.Name, with...)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.leases[order.As] = lease
	r.mu.Unlock()
	return told{"name": lease.Name(), "token": lease.Token(), "session": lease.Session().ID(),
		"data": string(lease.Data())}, nil
}

func standing(lease *Lease) told {
	var loss *Loss
	if errors.As(lease.Err(), &loss) {
		return told{"held": false, "loss": lossName(loss), "remaining_ms": lease.Remaining().Milliseconds()}
	}
	return told{"held": true, "remaining_ms": lease.Remaining().Milliseconds()}
}

func lossName(loss *Loss) string {
	names := map[LossKind]string{
		LossWindowPassed: "window_passed", LossSessionEnded: "session_ended", LossGrantEnded: "grant_ended",
		LossWrongSecret: "wrong_secret", LossClusterChanged: "cluster_changed", LossReported: "reported",
		LossReleased: "released", LossClosed: "closed",
	}
	return names[loss.Kind]
}

// explain is an error as scripts know it.
func (r *scriptRunner) explain(ctx context.Context, err error) told {
	var loss *Loss
	var refusal *Refusal
	text := err.Error()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return told{"kind": "abandoned", "text": text}
	case errors.Is(err, errNoConnection):
		return told{"kind": "no_connection", "text": text}
	case errors.As(err, &loss):
		return told{"kind": "lost", "loss": lossName(loss), "text": text}
	case errors.As(err, &refusal):
		switch refusal.Reason {
		case ErrUnavailable:
			return told{"kind": "unavailable", "text": text}
		case ErrOutcomeUnknown:
			return told{"kind": "outcome_unknown", "text": text}
		case ErrWaitTimeout:
			return told{"kind": "wait_over", "text": text}
		case ErrEnded:
			// The grant has ended before its answer came.
			return told{"kind": "lost", "loss": "grant_ended", "text": text}
		}
		answer := told{"kind": "refused", "reason": string(refusal.Reason), "text": text,
			"retry_after_ms": refusal.RetryAfter.Milliseconds()}
		if refusal.Reason == ErrHeld {
			answer["holder"], answer["token"] = refusal.number("holder"), refusal.Token()
			answer["identity"], answer["mine"] = refusal.Identity(), refusal.Details["mine"] == "true"
		}
		return answer
	}
	return told{"kind": "invalid", "text": text}
}
