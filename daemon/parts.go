package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

// How long each kind of part may take to stop.
const (
	storeLimit   = 20 * time.Second // commits what is queued and closes its files
	busLimit     = 5 * time.Second  // sends what is published
	serviceLimit = 15 * time.Second // finishes what it has begun
	httpLimit    = 30 * time.Second // a client that waits for a job is answered
	serverLimit  = 5 * time.Second
	startGrace   = 10 * time.Second // a start that was asked to stop may finish in this time
)

// admin opens the admin listener, which also takes the orders of the program's
// own commands.
func (c *Common) admin(log *slog.Logger, level *slog.LevelVar, stack *serve.Stack, health *serve.Health, todo map[string]order, collectors ...[]prometheus.Collector) (serve.Task, error) {
	registry := serve.NewRegistry()
	for _, col := range slices.Concat(collectors...) {
		if err := registry.Register(col); err != nil {
			return serve.Task{}, err
		}
	}
	o := newOrders(log, todo)
	server, err := serve.ListenAdmin(serve.AdminConfig{Addr: c.AdminAddr, Registry: registry, Health: health, Level: level, Routes: o.routes(), Log: log})
	if err != nil {
		return serve.Task{}, err
	}
	log.Info("the admin listener is open", "addr", server.Addr())
	err = errors.Join(
		stack.Push("admin", serverLimit, server.Shutdown),
		stack.Push("orders", serverLimit, o.announce(c.DataDir, server.Addr())),
	)
	return serve.Task{Name: "admin", Run: func(context.Context) error { return server.Serve() }}, err
}

func connected(conn *bus.Conn) error {
	if conn.Connected() {
		return nil
	}
	return fault.New(fault.Transient, "BUS_DISCONNECTED", "NATS can not be reached")
}

// watchBus is the task that ends the program when its connection to NATS is
// gone for good. asked ends when the program was asked to stop: from then on a
// closed connection is what was wanted.
func watchBus(asked context.Context, conn *bus.Conn) serve.Task {
	return serve.Task{Name: "bus", Run: func(ctx context.Context) error {
		select {
		case <-conn.Lost():
			if asked.Err() == nil {
				return fault.New(fault.Transient, "BUS_LOST", "NATS closed the connection for good: see the log before this line")
			}
		case <-ctx.Done():
		}
		return nil
	}}
}

// every calls fn at intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, fn func()) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fn()
		case <-ctx.Done():
			return nil
		}
	}
}

// closeAfter stops what had started before err.
func closeAfter(stack *serve.Stack, err error) error {
	return errors.Join(err, stack.Close())
}

// served is the end of an HTTP server: that it was shut down is no error.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// cut stops an HTTP server, and breaks what is not answered when ctx ends.
func cut(ctx context.Context, srv *http.Server, listener net.Listener) error {
	err := srv.Shutdown(ctx)
	if closeErr := listener.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	return err
}

// starting runs a program's start and gives up on it when the program is asked
// to stop meanwhile: opening a store on a full or failing disk may take for
// ever. What the start still holds ends with the process.
func starting[T any](ctx context.Context, start func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := start()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(startGrace):
		var none T
		return none, fault.New(fault.Transient, "STOPPED", "asked to stop while a store was opening; it may be waiting for its disk")
	}
}

// announceReady writes the ready file, if there is to be one.
func (c *Common) announceReady(r Running) error {
	if c.ReadyFile == "" {
		return nil
	}
	r.PID = os.Getpid()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	half := c.ReadyFile + ".new"
	if err := os.WriteFile(half, data, 0o600); err != nil {
		return err
	}
	return os.Rename(half, c.ReadyFile)
}

// Running is what a program tells once it serves.
type Running struct {
	HTTPURL string `json:"httpURL,omitzero"` // of the API; of an archive where it serves signed URLs, if it does
	NATSURL string `json:"natsURL,omitzero"` // where archives connect
	URLKey  string `json:"urlKey,omitzero"`  // whose signed URLs archives serve that have it among their URL_KEYS
	PID     int    `json:"pid"`
}
