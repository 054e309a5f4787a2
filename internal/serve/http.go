package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// MaxHeaderBytes is the largest request header, in bytes, that a [Server] reads.
const MaxHeaderBytes = 64 << 10

// Timeouts are the four limits of an http.Server. A server without one of them
// can be held open for ever by a client that stops reading or writing. A
// handler that streams moves its own deadlines with http.ResponseController.
type Timeouts struct {
	ReadHeader time.Duration // for the request header
	Read       time.Duration // for the whole request
	Write      time.Duration // from the end of the header to the end of the answer
	Idle       time.Duration // between requests of one connection
}

// DefaultTimeouts leave room for the longest wait that a client may ask for
// (WAIT_JOB_MS is 25 s) and for a form of ordinary size on a slow line.
var DefaultTimeouts = Timeouts{
	ReadHeader: 10 * time.Second,
	Read:       60 * time.Second,
	Write:      60 * time.Second,
	Idle:       120 * time.Second,
}

// A Server is an http.Server with its listener. It is made by [Listen].
type Server struct {
	http     *http.Server
	listener net.Listener
	abort    context.CancelFunc // cancels the context of every request
}

// Listen opens addr (host:port; port 0 takes a free one) and returns a server
// for h that does not accept yet, so that the address is known, and its errors
// are reported, before the rest of the program starts. Every timeout must be
// positive. The log gets what net/http has to say about single connections; nil
// discards it.
func Listen(addr string, h http.Handler, t Timeouts, log *slog.Logger) (*Server, error) {
	if t.ReadHeader <= 0 || t.Read <= 0 || t.Write <= 0 || t.Idle <= 0 {
		return nil, fmt.Errorf("serve: listen on %q: every timeout must be positive, have %+v", addr, t)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve: listen on %q: %w", addr, err)
	}
	ctx, abort := context.WithCancel(context.Background())
	return &Server{
		listener: l,
		abort:    abort,
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: t.ReadHeader,
			ReadTimeout:       t.Read,
			WriteTimeout:      t.Write,
			IdleTimeout:       t.Idle,
			MaxHeaderBytes:    MaxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(orDiscard(log).Handler(), slog.LevelDebug),
			BaseContext:       func(net.Listener) context.Context { return ctx },
		},
	}, nil
}

// Addr returns the address the server listens on, with the port it was given.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL returns the address as the start of an http URL.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Serve accepts connections until Shutdown. It returns nil after a Shutdown and
// the reason when it had to stop by itself.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: on %s: %w", s.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting, waits until the requests in flight are answered,
// and when ctx ends cuts those that are not: their contexts are cancelled and
// their connections closed. It returns the error of ctx if it had to cut. A
// server that never served only releases its address.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.abort()
	err := s.http.Shutdown(ctx)
	// Shutdown closes only listeners that Serve has seen.
	_ = s.listener.Close()
	if err == nil {
		return nil
	}
	s.abort()
	return errors.Join(fmt.Errorf("serve: requests on %s cut off: %w", s.Addr(), err), s.http.Close())
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
