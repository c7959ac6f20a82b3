package leaseapi

import (
	"net/http"
	"testing"
	"time"
)

// answered is the answer to a write that granted or renewed the lease for 22 s.
func answered(token string) http.Header {
	return http.Header{fenceHeader: {"k8s/shop/web#" + token}, validForHeader: {"22000"}}
}

// grantOf7 is an election that holds the lease with token 7.
func grantOf7(t *testing.T) *Election {
	t.Helper()
	election, err := New("shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	election.heard(answered("7"), begun(t, election))
	if _, err := election.Term().Fence(); err != nil {
		t.Fatal(err)
	}
	return election
}

func begun(t *testing.T, election *Election) write {
	t.Helper()
	write, err := election.begin()
	if err != nil {
		t.Fatal(err)
	}
	return write
}

// I24: a grant that is over is never again reported held. Two requests may be under way, and the answer to
// a renewal come when the next holder has begun.
func TestALateRenewalDoesNotBringBackAReleasedGrant(t *testing.T) {
	election := grantOf7(t)
	first := election.Term()
	renewal := begun(t, election)
	election.release()
	next := election.Term()
	election.heard(answered("7"), renewal)
	for _, term := range []*Term{first, next, election.Term()} {
		if fence, err := term.Fence(); err == nil {
			t.Error("the released grant is believed in again:", fence)
		}
	}
	// What is written after the release begins a term as ever.
	election.heard(answered("9"), begun(t, election))
	if fence, err := next.Fence(); err != nil || fence.Token != 9 {
		t.Error("the next grant is not believed in:", fence, err)
	}
}

// The answer to an acquire may come after the release that was sent behind it.
func TestALateGrantIsNotBelievedInAfterARelease(t *testing.T) {
	election, err := New("shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	acquire := begun(t, election)
	election.release()
	election.heard(answered("7"), acquire)
	if fence, err := election.Term().Fence(); err == nil {
		t.Error("the released grant is believed in:", fence)
	}
}

// The quarantine after a loss is over at some time; an answer from before the loss is not the next grant.
func TestALateRenewalDoesNotBringBackALostGrant(t *testing.T) {
	election := grantOf7(t)
	term := election.Term()
	renewal := begun(t, election)
	term.ReportStale()
	election.mu.Lock()
	election.quarantine = 0
	election.mu.Unlock()
	time.Sleep(time.Millisecond)
	election.heard(answered("7"), renewal)
	if fence, err := election.Term().Fence(); err == nil {
		t.Error("the lost grant is believed in again:", fence)
	}
}
