package ringfence

import (
	"context"
	"time"

	"ringfence.io/client/go/internal/pb"
)

const (
	// keepAliveMax is how many handles and acknowledgements one message carries; a server takes
	// 10,000 of each.
	keepAliveMax = 4096
	// never is as good as the end of time to a timer.
	never = 24 * time.Hour
)

// keepAlive keeps all sessions alive and looks at their windows, until the client is closed: on a
// goroutine of its own, which no application blocks.
func (c *Client) keepAlive() {
	var before *conn
	for {
		present, changed, _ := c.t.link()
		now := c.t.now()
		sessions := c.list()
		if present != nil && present != before {
			// A new stream, so perhaps a new leader: it learns at once who is alive.
			for _, session := range sessions {
				session.renewNow(now)
			}
		}
		before = present
		pause, due := never, false
		for _, session := range sessions {
			look, renew, live := session.pollDeadlines(now)
			if !live {
				continue
			}
			// Without a stream nothing is sent, so a keep-alive that is due is no reason to wake up.
			if present != nil {
				due = due || renew <= now
				look = min(look, renew)
			}
			pause = min(pause, look.sub(now), sleepMax)
		}
		if due {
			c.sendKeepAlives(sessions, now)
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.wake:
		case <-changed:
		case <-c.t.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// renewal is a session's part of a keep-alive.
type renewal struct {
	session      *Session
	acknowledged []uint64
}

func (c *Client) sendKeepAlives(sessions []*Session, now moment) {
	var batch []renewal
	size := 0
	for _, session := range sessions {
		acknowledged, join := session.joinKeepAlive(now)
		if !join {
			continue
		}
		batch = append(batch, renewal{session, acknowledged})
		if size += 1 + len(acknowledged); size >= keepAliveMax {
			c.dispatch(batch)
			batch, size = nil, 0
		}
	}
	if len(batch) > 0 {
		c.dispatch(batch)
	}
}

func (c *Client) dispatch(batch []renewal) {
	request := &pb.KeepAliveRequest{}
	var longest time.Duration
	for _, part := range batch {
		request.Sessions = append(request.Sessions, part.session.handle())
		for _, token := range part.acknowledged {
			request.Acknowledged = append(request.Acknowledged,
				&pb.Acknowledged{Session: part.session.id, Token: token})
		}
		longest = max(longest, part.session.ttl)
	}
	frame := &pb.ClientFrame{Body: &pb.ClientFrame_KeepAlive{KeepAlive: request}}
	c.inBackground(func(ctx context.Context) {
		// An answer that comes when the last window has passed is of no use.
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		// Never repeated: the next keep-alive carries a later moment. Without an answer there is
		// nothing to do, since that one is due all the same.
		reply, sent, err := c.t.call(ctx, frame, modeOnce)
		if err != nil {
			return
		}
		applyKeepAlive(reply.GetKeepAlive(), sent, batch)
		c.poke()
	})
}

// applyKeepAlive takes what was lost first, then what the reply extends.
func applyKeepAlive(reply *pb.KeepAliveResponse, sent moment, batch []renewal) {
	ended := make(map[uint64]*pb.SessionState)
	for _, state := range reply.GetEnded() {
		ended[state.GetSession()] = state
	}
	untold := make(map[uint64]bool)
	for _, session := range reply.GetUntold() {
		untold[session] = true
	}
	lost := make(map[uint64][]*pb.LostGrant)
	for _, losses := range reply.GetLost() {
		lost[losses.GetSession()] = append(lost[losses.GetSession()], losses.GetGrants()...)
	}
	for _, part := range batch {
		session := part.session
		if state, over := ended[session.id]; over {
			switch state.GetReason() {
			case pb.Reason_REASON_UNAUTHENTICATED:
				// The credential was not taken: the session lives until its window ends, and is asked
				// for again, with another token perhaps.
				session.client.t.bearer.refused()
			case pb.Reason_REASON_WRONG_SECRET, pb.Reason_REASON_PERMISSION_DENIED:
				session.lose(&Loss{Kind: LossWrongSecret, Cause: state.GetReason().String()})
			default:
				session.lose(&Loss{Kind: LossSessionEnded, Cause: sessionEndText(state.GetCause())})
			}
			continue
		}
		session.grantsLost(lost[session.id])
		// What has something untold may have lost anything: nothing is extended, and it asks again soon.
		if untold[session.id] {
			session.askSoon()
			continue
		}
		session.acknowledged(part.acknowledged)
		session.extend(sent)
	}
}
