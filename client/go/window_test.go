package ringfence

import (
	"math/rand/v2"
	"testing"
	"time"

	systemclock "ringfence.io/client/go/internal/clock"
)

func TestAWindowIsTheTTLLessOnePercentAndTheMargin(t *testing.T) {
	for ttl, expected := range map[time.Duration]time.Duration{
		15000: 15000 - 150 - 300, 1000: 1000 - 10 - 50, 100: 100 - 1 - 50, 50: 0, 0: 0,
	} {
		expected = max(expected*time.Millisecond-1, 0)
		if got := validity(ttl * time.Millisecond); got != expected {
			t.Errorf("TTL %d ms: %v, not %v", ttl, got, expected)
		}
	}
}

// The client's clock is slow by up to 1 %, the cluster's fast by up to 1 %: in true time belief still
// ends before the session can.
func TestBeliefEndsBeforeTheSessionCan(t *testing.T) {
	for range 10000 {
		ttl := time.Duration(50+rand.Int64N(86_400_000)) * time.Millisecond
		believed := float64(validity(ttl)) / 0.99
		if lives := float64(ttl) / 1.01; believed > lives {
			t.Fatalf("TTL %v: believed in for %v, lives %v", ttl, believed, lives)
		}
	}
}

func TestNoOrderOfAcknowledgementsStretchesAWindow(t *testing.T) {
	for range 1000 {
		ttl := time.Duration(100+rand.IntN(20000)) * time.Millisecond
		w := newWindow(ttl, 1<<63-1, 0)
		var now, acknowledged moment
		for range 40 {
			sent := moment(rand.IntN(50000)) * moment(time.Millisecond)
			now = max(now, sent.add(time.Duration(rand.IntN(5000))*time.Millisecond))
			passed, before := w.hasPassed(now), w.validUntil()
			got := w.extend(sent, now)
			if passed && (got != extendedTooLate || w.validUntil() != before) {
				t.Fatal("a late acknowledgement revived a window")
			}
			if !passed {
				acknowledged = max(acknowledged, sent)
			}
			if end := w.validUntil(); end > acknowledged.add(ttl) || end < before {
				t.Fatalf("window to %v after %v and %v", end, before, acknowledged)
			}
		}
	}
}

func TestPatienceNarrowsAWindowAndNeverWidensIt(t *testing.T) {
	if w := newWindow(15*time.Second, 10*time.Second, 0); w.validUntil() != moment(10*time.Second) {
		t.Error(w)
	}
	wide, plain := newWindow(15*time.Second, time.Minute, 0), newWindow(15*time.Second, 1<<63-1, 0)
	if wide != plain {
		t.Error(wide, plain)
	}
	if jeopardy := plain.jeopardyAt(); jeopardy <= moment(5*time.Second) || jeopardy >= plain.leaveAt() {
		t.Error(jeopardy)
	}
}

func TestAcquiresLeaveRoomForWhatEndsThem(t *testing.T) {
	numbers := requestNumbers{next: 1}
	count := func(kind requestKind) (taken int) {
		for {
			if _, ok := numbers.take(kind); !ok {
				return taken
			}
			taken++
		}
	}
	if acquires := count(kindAcquire); acquires != spanMax-numbersReserved {
		t.Error(acquires)
	}
	if endings := count(kindEnding); endings != numbersReserved {
		t.Error(endings)
	}
	numbers.confirm(1)
	if _, ok := numbers.take(kindAcquire); ok {
		t.Error("an acquire took what is reserved")
	}
	if number, ok := numbers.take(kindEnding); !ok || number.lowest != 2 {
		t.Error(number, ok)
	}
	numbers = requestNumbers{next: 1}
	if _, ok := numbers.take(kindWait); !ok {
		t.Error("no number for a wait")
	}
	for expected := uint64(2); expected < 10*spanMax; expected++ {
		number, ok := numbers.take(kindAcquire)
		if !ok || number.number != expected || number.lowest != expected {
			t.Fatal("a wait holds up later numbers", number, ok)
		}
		numbers.confirm(number.number)
	}
}

func TestALossIsAcknowledgedWhenNothingWorksUnderItAnyMore(t *testing.T) {
	var known losses
	known.workBegins(7)
	known.workBegins(7)
	if known.acknowledge(7) || len(known.unheard) != 0 {
		t.Error("acknowledged while work goes on")
	}
	if known.workEnded(7) || !known.workEnded(7) || !known.unheard.has(7) {
		t.Error("not acknowledged when the last work has ended", known)
	}
	known.acknowledged([]uint64{7})
	if len(known.unheard) != 0 {
		t.Error("told twice")
	}
	known.acknowledge(8)
	known.workBegins(8)
	if known.unheard.has(8) {
		t.Error("work begun a moment ago is not waited for")
	}
	for token := range uint64(2 * tokensMax) {
		known.gone.add(token)
	}
	if len(known.gone) != tokensMax || known.gone.has(0) {
		t.Error("what is remembered has no limit")
	}
}

func TestTheClockNeverGoesBack(t *testing.T) {
	for _, c := range []clock{newClock(), systemClock{systemclock.Accumulating()}} {
		before := c.now()
		began := before
		for range 10000 {
			now := c.now()
			if now < before {
				t.Fatalf("%T went from %v to %v", c, before, now)
			}
			before = now
		}
		time.Sleep(20 * time.Millisecond)
		if passed := c.now().sub(began); passed < 20*time.Millisecond || passed > 20*time.Second {
			t.Errorf("%T: %v", c, passed)
		}
	}
}
