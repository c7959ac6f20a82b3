package ringfence

import "slices"

const (
	// spanMax is how far a request number may be above the lowest unconfirmed one: what the cluster
	// remembers.
	spanMax = 256
	// numbersReserved are left free by acquires, so that what ends waits and grants gets through.
	numbersReserved = 64
)

type requestKind int

const (
	kindAcquire requestKind = iota // Answered at once.
	// kindWait may wait for hours. The cluster remembers it as long as it waits or holds, whatever is
	// confirmed meanwhile, so it holds up no later number.
	kindWait
	kindEnding // A cancel, release or transfer.
)

// requestNumber is a request's number and the lowest unconfirmed one, as when it was first sent.
type requestNumber struct{ number, lowest uint64 }

// requestNumbers are those of one session.
type requestNumbers struct {
	next        uint64
	unconfirmed []uint64 // Ascending.
}

// take returns the next number, unless it would be too far above the lowest that is unconfirmed.
func (n *requestNumbers) take(kind requestKind) (requestNumber, bool) {
	number, lowest := n.next, n.next
	if len(n.unconfirmed) > 0 {
		lowest = n.unconfirmed[0]
	}
	room := uint64(spanMax)
	if kind != kindEnding {
		room -= numbersReserved
	}
	if number-lowest >= room {
		return requestNumber{}, false
	}
	n.next++
	if kind != kindWait {
		n.unconfirmed = append(n.unconfirmed, number)
	}
	return requestNumber{number, lowest}, true
}

// confirm says that the answer has come, or that no caller wants it any more.
func (n *requestNumbers) confirm(number uint64) {
	if at, found := slices.BinarySearch(n.unconfirmed, number); found {
		n.unconfirmed = slices.Delete(n.unconfirmed, at, at+1)
	}
}

// skipTo says that the numbers up to lowest are spent.
func (n *requestNumbers) skipTo(lowest uint64) {
	n.next = max(n.next, lowest+1)
}
