package ringfence

import "slices"

// tokensMax is how many tokens are remembered per session and kind.
const tokensMax = 4096

// losses is which grants of a session were lost, and of which of them the cluster hears back.
type losses struct {
	// gone were listed as lost. An acquire whose answer brings one of these brings nothing.
	gone tokenSet
	// givenUp were granted to this client, which does not believe in them, by its own doing.
	givenUp tokenSet
	// unheard are not believed in any more, and the cluster has not heard so.
	unheard tokenSet
	// workedUnder counts work that does not end at once; withheld are those of its tokens that are not
	// believed in any more: the cluster, which would let the next holder in, hears of them when the
	// work has ended.
	workedUnder map[uint64]int
	withheld    tokenSet
}

// listed notes that the cluster lists this one, and says whether this client had given it up before.
func (l *losses) listed(token uint64) bool {
	l.gone.add(token)
	return l.givenUp.remove(token)
}

// acknowledge is to tell the cluster that belief in this one has ended, as soon as nothing works under
// it; it says whether there is news for it.
func (l *losses) acknowledge(token uint64) bool {
	if l.workedUnder[token] > 0 {
		l.withheld.add(token)
		return false
	}
	return l.unheard.add(token)
}

func (l *losses) workBegins(token uint64) {
	if l.workedUnder == nil {
		l.workedUnder = make(map[uint64]int)
	}
	l.workedUnder[token]++
	if l.unheard.remove(token) {
		l.withheld.add(token)
	}
}

// workEnded says whether there is news for the cluster.
func (l *losses) workEnded(token uint64) bool {
	if l.workedUnder[token]--; l.workedUnder[token] > 0 {
		return false
	}
	delete(l.workedUnder, token)
	return l.withheld.remove(token) && l.acknowledge(token)
}

// acknowledged says that the cluster has heard of these.
func (l *losses) acknowledged(tokens []uint64) {
	for _, token := range tokens {
		l.unheard.remove(token)
	}
}

// tokenSet is ascending; beyond tokensMax it forgets the oldest.
type tokenSet []uint64

func (s tokenSet) has(token uint64) bool {
	_, found := slices.BinarySearch(s, token)
	return found
}

func (s *tokenSet) add(token uint64) bool {
	at, found := slices.BinarySearch(*s, token)
	if found {
		return false
	}
	*s = slices.Insert(*s, at, token)
	if len(*s) > tokensMax {
		*s = slices.Delete(*s, 0, 1)
	}
	return true
}

func (s *tokenSet) remove(token uint64) bool {
	at, found := slices.BinarySearch(*s, token)
	if found {
		*s = slices.Delete(*s, at, at+1)
	}
	return found
}
