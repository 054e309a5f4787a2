// Package server embeds a NATS server for programs that need none beside them.
//
// It is the only importer of nats-server. The server listens on the loopback
// interface unless told otherwise, has no monitoring port, no JetStream and no
// store, and never installs signal handlers: the program that embeds it decides
// when it ends, and ends it last, after everything that talks over it.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
)

const (
	// DefaultHost is where the server listens: reachable from this machine only.
	DefaultHost = "127.0.0.1"
	// RandomPort makes the system choose a free port; ClientURL tells which.
	RandomPort = -1
	// DefaultMaxPayload is the largest message in bytes, headers included. It is
	// NATS's own default, so that a separate server behaves alike.
	DefaultMaxPayload = 1 << 20
	// DefaultStartTimeout bounds the wait for the listener at start.
	DefaultStartTimeout = 10 * time.Second

	startPoll     = 50 * time.Millisecond // how often a failed start is looked for
	writeDeadline = 10 * time.Second      // a client that reads nothing for so long is cut off
)

// Config configures an embedded server. The zero value listens on port 4222 of
// the loopback interface.
type Config struct {
	Host         string        // address to listen on; default DefaultHost
	Port         int           // 0 is NATS's port 4222, RandomPort a free one
	Name         string        // shown to clients; default "verae"
	MaxPayload   int32         // bytes; default DefaultMaxPayload
	StartTimeout time.Duration // default DefaultStartTimeout
	Log          *slog.Logger  // nil discards

	options func(*nats.Options) // changes the server's own; nil: as they are
}

// Server is a running NATS server. Its methods may be called from many
// goroutines.
type Server struct {
	nats   *nats.Server
	linked bool // there may be other servers
}

// Start starts a server and returns when it accepts clients. It fails when the
// address can not be listened on, or after StartTimeout.
func Start(cfg Config) (*Server, error) {
	if cfg.Host == "" {
		cfg.Host = DefaultHost
	}
	if cfg.Name == "" {
		cfg.Name = "verae"
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = DefaultStartTimeout
	}
	opts := &nats.Options{
		ServerName:    cfg.Name,
		Host:          cfg.Host,
		Port:          cfg.Port,
		MaxPayload:    cfg.MaxPayload,
		WriteDeadline: writeDeadline,
		NoSigs:        true, // otherwise the library exits our process on SIGINT
		NoLog:         true, // it would log to stderr on its own; we set a logger
	}
	if cfg.options != nil {
		cfg.options(opts)
	}
	others := linked(opts)
	srv, err := nats.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("bus/server: %w", err)
	}
	log := newLogger(cfg.Log)
	srv.SetLogger(log, false, false)
	srv.Start()
	deadline := time.Now().Add(cfg.StartTimeout)
	for !srv.ReadyForConnections(startPoll) {
		why := log.fatal()
		if why == "" && time.Now().Before(deadline) {
			continue
		}
		srv.Shutdown()
		srv.WaitForShutdown()
		if why == "" {
			why = fmt.Sprintf("not listening on %s:%d after %v", cfg.Host, cfg.Port, cfg.StartTimeout)
		}
		return nil, fmt.Errorf("bus/server: start: %s", why)
	}
	return &Server{nats: srv, linked: others}, nil
}

// ClientURL returns the URL under which clients reach the server.
func (s *Server) ClientURL() string { return s.nats.ClientURL() }

// InProcessConn returns a new connection to the server through a pipe in memory:
// a third of the latency of loopback TCP, about half its throughput. It makes a
// Server the provider that bus.Config.InProcess asks for.
func (s *Server) InProcessConn() (net.Conn, error) {
	conn, err := s.nats.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("bus/server: %w", err)
	}
	return conn, nil
}

// Shutdown closes all clients and the listener and waits until the server's
// goroutines have ended. If ctx is done first it returns ctx's error and the
// shutdown goes on by itself. A second Shutdown waits for the first.
func (s *Server) Shutdown(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("bus/server: shutdown not finished"), ctx.Err())
	}
}
