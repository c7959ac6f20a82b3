package ringfence

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"ringfence.io/client/go/internal/pb"
)

// Holder is who holds a lease.
type Holder struct {
	Session  uint64
	Identity string
	Token    uint64
	Data     []byte
	// Since is when the cluster granted it, by its wall clock: for people, it decides nothing.
	Since time.Time
}

// LeaseInfo is a lease as a reader sees it, at one moment.
type LeaseInfo struct {
	Name string
	// Holder is nil if the lease is free.
	Holder *Holder
	// TTL is that of the holder's session, Remaining what is left of it unless it is kept alive.
	TTL, Remaining time.Duration
	// Waiters is how many wait.
	Waiters int
	// Floor is the greatest token that was ever granted for this name.
	Floor uint64
	// Blocked is for how long the lease is granted to no session: lock-delay, or a revoke.
	Blocked time.Duration
}

func holderOfGrant(grant *pb.Grant) *Holder {
	if grant == nil {
		return nil
	}
	return &Holder{
		Session:  grant.GetSession(),
		Identity: grant.GetIdentity(),
		Token:    grant.GetToken(),
		Data:     grant.GetData(),
		Since:    time.UnixMilli(int64(grant.GetSinceUnixMs())),
	}
}

func infoOfLease(lease *pb.Lease) LeaseInfo {
	return LeaseInfo{
		Name:      lease.GetName(),
		Holder:    holderOfGrant(lease.GetHolder()),
		TTL:       millis(lease.GetTtlMs()),
		Remaining: millis(lease.GetRemainingMs()),
		Waiters:   int(lease.GetWaiters()),
		Floor:     lease.GetFloor(),
		Blocked:   millis(lease.GetBlockedMs()),
	}
}

// Get reads one lease, linearizably. ErrNotFound if it was never granted, or is idle and forgotten.
func (c *Client) Get(ctx context.Context, name string) (LeaseInfo, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	frame := &pb.ClientFrame{Body: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: name}}}
	reply, _, err := c.t.call(ctx, frame, modePrompt)
	if err != nil {
		return LeaseInfo{}, fmt.Errorf("ringfence: get %s: %w", name, err)
	}
	return infoOfLease(reply.GetGet().GetLease()), nil
}

// List reads the leases whose names begin with prefix, in the order of their names, at one index.
func (c *Client) List(ctx context.Context, prefix string) ([]LeaseInfo, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	var all []LeaseInfo
	request := &pb.ListRequest{Prefix: prefix}
	for {
		page, err := unary(ctx, c.t, func(ctx context.Context, cc grpc.ClientConnInterface) (*pb.ListResponse, error) {
			return pb.NewLeasesClient(cc).List(ctx, request)
		})
		if err != nil {
			return nil, fmt.Errorf("ringfence: list %q: %w", prefix, err)
		}
		for _, lease := range page.GetLeases() {
			all = append(all, infoOfLease(lease))
		}
		if page.GetNextPageToken() == "" {
			return all, nil
		}
		request = &pb.ListRequest{Prefix: prefix, PageToken: page.GetNextPageToken()}
	}
}

// Verdict is what a token is worth.
type Verdict int

const (
	// VerdictCurrent: the grant is in force.
	VerdictCurrent Verdict = iota + 1
	// VerdictSuperseded: a later grant of that name is known.
	VerdictSuperseded
	// VerdictEnded: it was granted and has ended.
	VerdictEnded
	// VerdictUnknown: it is greater than any token the cluster granted.
	VerdictUnknown
)

func (v Verdict) String() string {
	switch v {
	case VerdictCurrent:
		return "CURRENT"
	case VerdictSuperseded:
		return "SUPERSEDED"
	case VerdictEnded:
		return "ENDED"
	case VerdictUnknown:
		return "UNKNOWN"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// Check says what a fence is worth at this instant. It is advice: exclusion is a guard inside the
// store.
func (c *Client) Check(ctx context.Context, fence Fence) (Verdict, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	frame := &pb.ClientFrame{Body: &pb.ClientFrame_Check{Check: &pb.CheckRequest{Name: fence.Name, Token: fence.Token}}}
	reply, _, err := c.t.call(ctx, frame, modePrompt)
	if err != nil {
		return 0, fmt.Errorf("ringfence: check %v: %w", fence, err)
	}
	switch reply.GetCheck().GetVerdict() {
	case pb.CheckResponse_CURRENT:
		return VerdictCurrent, nil
	case pb.CheckResponse_SUPERSEDED:
		return VerdictSuperseded, nil
	case pb.CheckResponse_ENDED:
		return VerdictEnded, nil
	case pb.CheckResponse_UNKNOWN:
		return VerdictUnknown, nil
	}
	// A verdict that is guessed would be a lie about who holds a lease.
	return 0, fmt.Errorf("ringfence: check %v: %w", fence, unexpectedReply())
}

// RevokeOptions is what is recorded with a revoke.
type RevokeOptions struct {
	// Reason and Operator are kept in the history; at most 255 bytes each.
	Reason, Operator string
	// Now does not wait until the old holder knows: the next grant may overlap with its belief.
	Now bool
}

// Revoke ends a grant at an operator's wish. It names the token, so it ends no later grant; repeating
// it is harmless.
func (c *Client) Revoke(ctx context.Context, fence Fence, options RevokeOptions) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	_, err := unary(ctx, c.t, func(ctx context.Context, cc grpc.ClientConnInterface) (*pb.RevokeResponse, error) {
		return pb.NewLeasesClient(cc).Revoke(ctx, &pb.RevokeRequest{
			Name:     fence.Name,
			Token:    fence.Token,
			Now:      options.Now,
			Reason:   options.Reason,
			Operator: options.Operator,
		})
	})
	if err != nil {
		return fmt.Errorf("ringfence: revoke %v: %w", fence, err)
	}
	return nil
}

// WatchHolder calls changed with the lease's holder, nil if it is free: first with the present
// one, then at each change, until ctx is done, which is its error. Breaks of the connection are bridged;
// what changed meanwhile comes as one change. It needs the right to read all names that begin with this
// one, and returns ErrPermissionDenied without.
func (c *Client) WatchHolder(ctx context.Context, name string, changed func(*Holder)) error {
	if err := CheckName(name); err != nil {
		return err
	}
	var told *uint64 // The token that was told last, 0 for none.
	tell := func(holder *Holder) {
		token := uint64(0)
		if holder != nil {
			token = holder.Token
		}
		if told == nil || *told != token {
			told = &token
			changed(holder)
		}
	}
	for tries := 0; ; tries++ {
		conn, err := c.t.waitForConn(ctx)
		if err == nil {
			err = watchOn(ctx, conn, name, tell, func() { tries = 0 })
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refusal := refusalOfStatus(err); refusal != nil && refusal.Reason == ErrPermissionDenied {
			return fmt.Errorf("ringfence: watch %s: %w", name, refusal)
		}
		if c.t.ctx.Err() != nil {
			return fmt.Errorf("ringfence: watch %s: %w", name, ErrClosed)
		}
		pauseFor(ctx, retryPause(tries, 0))
	}
}

// watchOn follows the holder of one lease on one connection. The present state is reported when it is
// complete, since what is not in it is free.
func watchOn(ctx context.Context, conn *conn, name string, tell func(*Holder), useful func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(conn.ctx, cancel)
	defer stop()
	stream, err := pb.NewLeasesClient(conn.cc).Watch(ctx, &pb.WatchRequest{Prefix: name})
	if err != nil {
		return err
	}
	var present *Holder
	complete := false
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		useful()
		for _, event := range message.GetEvents() {
			switch {
			case event.GetPresent().GetName() == name && event.GetPresent() != nil:
				present = holderOfGrant(event.GetPresent().GetHolder())
			case event.GetGranted().GetName() == name && event.GetGranted() != nil:
				present = holderOfGrant(event.GetGranted())
			case event.GetEnded().GetName() == name && event.GetEnded() != nil:
				if present != nil && present.Token == event.GetEnded().GetToken() {
					present = nil
				}
			default:
				continue
			}
			if complete {
				tell(present)
			}
		}
		if message.GetPosition() != nil && !complete {
			complete = true
			tell(present)
		}
	}
}
