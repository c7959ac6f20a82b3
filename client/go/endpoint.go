package ringfence

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// endpointsMax is how many endpoints a client takes.
	endpointsMax = 64
	// rest is how long an address that failed is not gone to on a hint, and stands last.
	rest = 2 * time.Second
	// learnedMax is how many addresses are remembered beside those that the user gave.
	learnedMax = 16
)

// parseEndpoint reads HOST:PORT, with or without http:// or https:// before it, or unix: and the path
// of a socket.
func parseEndpoint(text string) (string, error) {
	text = strings.TrimSpace(text)
	if path, local := strings.CutPrefix(text, "unix:"); local {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return "", errors.New("the path of the socket is missing, as in unix:/var/lib/ringfence/admin.sock")
		}
		return "unix:" + path, nil
	}
	address := strings.TrimPrefix(strings.TrimPrefix(text, "http://"), "https://")
	address = strings.TrimSuffix(address, "/")
	at := strings.LastIndexByte(address, ':')
	if at < 0 {
		return "", errors.New("the port is missing")
	}
	host, port := address[:at], address[at+1:]
	switch {
	case host == "":
		return "", errors.New("the host is missing")
	case strings.Contains(host, ":") && !(strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")):
		return "", errors.New("an IPv6 address stands in brackets")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#@", r) }):
		return "", errors.New("the host has a character that no host has")
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", errors.New("the port is no number from 1 to 65535")
	}
	return address, nil
}

func isLocal(endpoint string) bool { return strings.HasPrefix(endpoint, "unix:") }

// endpointSelector says which member to talk to. Any member answers every request; the leader is
// preferred, since it answers without a detour. After a leader has died, members go on naming it for
// a while: a hint at an address that has just failed means wait, not go.
type endpointSelector struct {
	mu      sync.Mutex
	given   []string
	learned []string
	leader  string
	failed  map[string]moment
	turn    int
}

func newEndpointSelector(offered []string, turn int) (*endpointSelector, error) {
	if len(offered) > endpointsMax {
		return nil, fmt.Errorf("%d endpoints were given; at most %d are allowed", len(offered), endpointsMax)
	}
	s := &endpointSelector{failed: make(map[string]moment)}
	for _, text := range offered {
		endpoint, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w; give HOST:PORT or unix:PATH", text, err)
		}
		if !slices.Contains(s.given, endpoint) {
			s.given = append(s.given, endpoint)
		}
	}
	if len(s.given) == 0 {
		return nil, errors.New("no endpoints were given; give at least one, HOST:PORT")
	}
	s.turn = turn % len(s.given)
	return s, nil
}

// candidates are the addresses to try, best first.
func (s *endpointSelector) candidates(now moment) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Concat(s.given[s.turn:], s.given[:s.turn], s.learned)
	if s.leader != "" {
		all = slices.Insert(all, 0, s.leader)
	}
	var candidates []string
	for _, resting := range []bool{false, true} {
		for _, endpoint := range all {
			if s.rests(endpoint, now) == resting && !slices.Contains(candidates, endpoint) {
				candidates = append(candidates, endpoint)
			}
		}
	}
	return candidates
}

// hint says that a member names the leader's address; it returns it if it is worth going there from
// current.
func (s *endpointSelector) hint(named, current string, now moment) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// By a node's own socket the client is local, by a port it is not: that node forwards.
	if slices.ContainsFunc(s.given, isLocal) {
		return "", false
	}
	leader, err := parseEndpoint(named)
	if err != nil || isLocal(leader) {
		return "", false
	}
	s.learn(leader)
	s.leader = leader
	return leader, leader != current && !s.rests(leader, now)
}

func (s *endpointSelector) markFailed(endpoint string, now moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[endpoint] = now
	if s.leader == endpoint {
		s.leader = ""
	}
	if s.given[s.turn] == endpoint {
		s.turn = (s.turn + 1) % len(s.given)
	}
}

func (s *endpointSelector) markGreeted(endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, endpoint)
	if at := slices.Index(s.given, endpoint); at >= 0 {
		s.turn = at
	}
}

func (s *endpointSelector) rests(endpoint string, now moment) bool {
	at, failed := s.failed[endpoint]
	return failed && now < at.add(rest)
}

func (s *endpointSelector) learn(endpoint string) {
	if slices.Contains(s.given, endpoint) || slices.Contains(s.learned, endpoint) {
		return
	}
	if len(s.learned) == learnedMax {
		delete(s.failed, s.learned[0])
		s.learned = s.learned[1:]
	}
	s.learned = append(s.learned, endpoint)
}
