package ringfence

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Option sets up a client.
type Option func(*options) error

type options struct {
	tls            *tls.Config
	token          string
	tokenFile      string
	log            *slog.Logger
	requestTimeout time.Duration
	connectTimeout time.Duration
	clock          clock
}

// WithTLS speaks TLS to every endpoint but sockets on this machine. The server's name is that of the
// endpoint unless the configuration sets another; certificates of the client's own go into it, too. An
// endpoint that begins with https:// asks for TLS with the system's roots.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		if config == nil {
			return errors.New("WithTLS: the configuration is nil")
		}
		o.tls = config.Clone()
		return nil
	}
}

// WithToken shows this bearer token with each call, at most 8 KiB.
func WithToken(token string) Option {
	return func(o *options) error {
		o.token = token
		return nil
	}
}

// WithTokenFile shows the bearer token in this file. The file is read again every 5 s, so that a token
// can be replaced before it expires; the stream is opened again with the new one.
func WithTokenFile(path string) Option {
	return func(o *options) error {
		o.tokenFile = path
		return nil
	}
}

// WithLogger logs there what no call returns: connections, sessions in jeopardy, losses. Without it
// nothing is logged. Entries are written in order, a moment later; one that is slow holds up nothing
// else, and misses entries.
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) error {
		if logger == nil {
			return errors.New("WithLogger: the logger is nil")
		}
		o.log = logger
		return nil
	}
}

// WithRequestTimeout is how long a request may take that does not wait in a queue, where its context
// has no earlier end; 10 s unless set.
func WithRequestTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		if timeout <= 0 {
			return fmt.Errorf("WithRequestTimeout: %v is not above 0", timeout)
		}
		o.requestTimeout = timeout
		return nil
	}
}

// WithConnectTimeout is how long a member may take to greet; 2 s unless set.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		if timeout <= 0 {
			return fmt.Errorf("WithConnectTimeout: %v is not above 0", timeout)
		}
		o.connectTimeout = timeout
		return nil
	}
}

// checkSchemes turns TLS on where an endpoint asks for it, and refuses a mixture.
func (o *options) checkSchemes(endpoints []string) error {
	for _, endpoint := range endpoints {
		if strings.HasPrefix(strings.TrimSpace(endpoint), "https://") && o.tls == nil {
			o.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	for _, endpoint := range endpoints {
		if o.tls != nil && strings.HasPrefix(strings.TrimSpace(endpoint), "http://") {
			return fmt.Errorf("endpoint %q is without TLS, but TLS was set up or another one is https://", endpoint)
		}
	}
	return nil
}
