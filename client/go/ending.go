package ringfence

import (
	"context"
	"errors"
	"slices"

	"ringfence.io/client/go/internal/pb"
)

// ending is what this client has given up, but the cluster may still grant it: a release or a cancel
// that is under way. An acquire of its name waits for it, since requests in flight together have no
// order and new work must have a new token.
type ending struct {
	name    string
	token   uint64        // The grant to release, or
	request uint64        // the request to take back.
	done    chan struct{} // Closed when it is over.
	err     error         // Set before done is closed.
}

// beginEndingLocked repeats the ending in the background until the cluster has answered it or the
// session is over.
func (s *Session) beginEndingLocked(name string, token, request uint64) *ending {
	e := &ending{name: name, token: token, request: request, done: make(chan struct{})}
	s.endings[name] = append(s.endings[name], e)
	over := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.endings[name], func(other *ending) bool { return other == e })
		if s.endings[name] = left; len(left) == 0 {
			delete(s.endings, name)
		}
		e.err = err
		close(e.done)
	}
	go func() {
		if !s.client.inBackground(func(context.Context) { over(s.runEnding(e)) }) {
			over(ErrClosed)
		}
	}()
	return e
}

func (s *Session) runEnding(e *ending) error {
	token := e.token
	if e.request != 0 {
		granted, err := s.cancelRequest(e.request)
		s.confirm(e.request)
		if err != nil || granted == 0 {
			return err
		}
		// The grant crossed the cancel. It was never believed in here.
		s.mu.Lock()
		s.forgetGrantLocked(granted)
		s.mu.Unlock()
		token = granted
	}
	_, err := s.repeat(s.ctx, true, func(number requestNumber) *pb.ClientFrame {
		return &pb.ClientFrame{Body: &pb.ClientFrame_Release{Release: &pb.ReleaseRequest{
			Session: s.handle(),
			Number:  number.number,
			Lowest:  number.lowest,
			Name:    e.name,
			Token:   token,
		}}}
	})
	return err
}

// cancelRequest takes a request back. It returns the token that it was granted, if it was.
func (s *Session) cancelRequest(target uint64) (granted uint64, err error) {
	reply, err := s.repeat(s.ctx, true, func(number requestNumber) *pb.ClientFrame {
		return &pb.ClientFrame{Body: &pb.ClientFrame_Cancel{Cancel: &pb.CancelRequest{
			Session: s.handle(),
			Number:  number.number,
			Lowest:  number.lowest,
			Target:  target,
		}}}
	})
	if err == nil && reply.GetCancel().GetResult() == pb.CancelResponse_GRANTED {
		return reply.GetCancel().GetToken(), nil
	}
	return 0, err
}

// repeat sends a request until it is answered or ctx is done. The request has to name what it ends, so
// that sending it once more under another number does no harm. With settle it is also sent again while
// its outcome is unknown, which does not tell whether it was the first that did it.
func (s *Session) repeat(ctx context.Context, settle bool, body func(requestNumber) *pb.ClientFrame) (*pb.ServerFrame, error) {
	for tries := 0; ; tries++ {
		number, err := s.takeNumber(ctx, kindEnding)
		if err != nil {
			return nil, err
		}
		reply, _, err := s.client.t.call(ctx, body(number), modePrompt)
		s.confirm(number.number)
		if err == nil {
			return reply, nil
		}
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			return nil, err
		}
		s.applyRefusal(refusal)
		again := settle && (refusal.meaning() != meansAnswer || !refusal.coversEarlierTries(true))
		switch refusal.Reason {
		case ErrStaleRequest, ErrRequestMismatch, ErrLimit:
			again = true
		case ErrUnauthenticated:
			// There may be another token to show soon.
			again = true
		}
		if !again {
			return nil, err
		}
		if !pauseFor(ctx, retryPause(tries+3, refusal.RetryAfter)) {
			return nil, err
		}
	}
}

// settle waits until nothing of name is unsettled.
func (s *Session) settle(ctx context.Context, name string) error {
	for {
		s.mu.Lock()
		var first *ending
		if all := s.endings[name]; len(all) > 0 {
			first = all[0]
		}
		s.mu.Unlock()
		if first == nil {
			return nil
		}
		select {
		case <-first.done:
		case <-ctx.Done():
			return errors.Join(unavailable("an earlier grant or request of "+name+" is not settled yet"), context.Cause(ctx))
		}
	}
}
