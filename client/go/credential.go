package ringfence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// tokenBytesMax is the longest bearer token.
	tokenBytesMax = 8 * 1024
	// tokenLook is how long a token that was read from a file is shown before the file is read again.
	tokenLook = 5 * time.Second
)

// bearer shows a bearer token with each call. A token from a file is read again every few seconds,
// since projected service-account tokens and their like are replaced before they expire.
type bearer struct {
	file   string
	secure bool

	mu    sync.Mutex
	token string
	read  time.Time
}

func newBearer(token, file string, secure bool) (*bearer, error) {
	b := &bearer{file: file, secure: secure}
	var err error
	if file != "" {
		b.token, err = readToken(file)
	} else {
		b.token, err = checkToken(token)
	}
	b.read = time.Now()
	if err != nil {
		return nil, err
	}
	return b, nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the token's file: %w", err)
	}
	token, err := checkToken(string(text))
	if err != nil {
		return "", fmt.Errorf("the token in %s: %w", file, err)
	}
	return token, nil
}

// checkToken never puts the token into its errors.
func checkToken(text string) (string, error) {
	token := strings.TrimSpace(text)
	switch {
	case token == "":
		return "", errors.New("it is empty")
	case len(token) > tokenBytesMax:
		return "", fmt.Errorf("it has %d bytes; at most %d are allowed", len(token), tokenBytesMax)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("it has a character that is not visible ASCII")
	}
	return token, nil
}

// current is the token to show now. A file that cannot be read leaves the token before in place: it
// may be valid for long.
func (b *bearer) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != "" && time.Since(b.read) >= tokenLook {
		b.read = time.Now()
		if token, err := readToken(b.file); err == nil {
			b.token = token
		}
	}
	return b.token
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.current()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: with TLS configured, the token is
// never sent over a connection without.
func (b *bearer) RequireTransportSecurity() bool { return b.secure }

// localBearer shows it to a socket on this machine, which never speaks TLS.
type localBearer struct{ *bearer }

func (localBearer) RequireTransportSecurity() bool { return false }

// Format keeps the token out of whatever is printed.
func (b *bearer) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte("bearer(redacted)")) }
