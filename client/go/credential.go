package ringfence

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// tokenLookMin is how soon it is read again because the token was refused.
	tokenLookMin = 100 * time.Millisecond
)

// bearer shows a bearer token with each call. A token from a file is read again every few seconds,
// since projected service-account tokens and their like are replaced before they expire.
type bearer struct {
	file   string
	secure bool

	mu      sync.Mutex
	token   string
	read    time.Time
	reading bool
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
	about, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("the token's file: %w", err)
	}
	// To open a pipe would wait for its writer, and what is in it can be read once only.
	if !about.Mode().IsRegular() {
		return "", fmt.Errorf("the token's file: %s is no regular file; it is read again and again", file)
	}
	opened, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("the token's file: %w", err)
	}
	defer opened.Close()
	// A little more than a token and its line's end, so that one that is too long is noticed.
	text, err := io.ReadAll(io.LimitReader(opened, tokenBytesMax+1024))
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

// current is the token to show now. When it is time to read the file again that is done beside, since a
// slow disk must hold up nothing else.
func (b *bearer) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked(tokenLook)
	return b.token
}

// refused says that the token was not taken: perhaps there is a newer one.
func (b *bearer) refused() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked(tokenLookMin)
}

// lookLocked reads the file again if the last time is as long ago. A file that cannot be read leaves the
// token before in place: it may be valid for long.
func (b *bearer) lookLocked(after time.Duration) {
	if b.file == "" || b.reading || time.Since(b.read) < after {
		return
	}
	b.reading = true
	go func() {
		token, err := readToken(b.file)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reading, b.read = false, time.Now()
		if err == nil {
			b.token = token
		}
	}()
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
