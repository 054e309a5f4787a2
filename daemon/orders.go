package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// fileAdmin, in the data directory of a running program, tells the commands of
// that program where its admin listener is, and with which word it takes orders.
// Whoever can read it may read the rest of the directory as well.
const fileAdmin = "admin.json"

const (
	maxAdminFile = 4 << 10  // bytes
	maxOrder     = 64 << 10 // bytes of an order
	maxOutcome   = 1 << 30  // bytes of its outcome: a list of files
)

type adminFile struct {
	Addr string `json:"addr"` // host:port
	Word string `json:"word"`
	PID  int    `json:"pid"`
}

// An order is work that a program does for a command of its own while it runs:
// nobody else can, for a store is open in one process at a time.
type order func(ctx context.Context, in []byte) (out any, err error)

// orders are the orders of a program by name. They are done one at a time.
type orders struct {
	word string
	log  *slog.Logger
	one  sync.Mutex
	all  map[string]order
}

func newOrders(log *slog.Logger, all map[string]order) *orders {
	return &orders{word: rand.Text(), log: log, all: all}
}

// routes are the orders as routes of the admin listener.
func (o *orders) routes() map[string]http.Handler {
	routes := map[string]http.Handler{}
	for name, do := range o.all {
		routes["POST /orders/"+name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(w, r, name, do) })
	}
	return routes
}

func (o *orders) serve(w http.ResponseWriter, r *http.Request, name string, do order) {
	// An order may take as long as its disk does.
	control := http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
		o.log.Warn("an order may be cut off", "order", name, "err", err)
	}
	out, err := o.do(r, name, do)
	status := http.StatusOK
	if err != nil {
		o.log.Error("an order failed", "order", name, "err", err)
		status, out = http.StatusUnprocessableEntity, wire.Problem{Kind: fault.KindOf(err).String(), Code: fault.CodeOf(err), Message: err.Error()}
	}
	data, err := wire.Encode(out)
	if err != nil {
		status, data = http.StatusInternalServerError, nil
		o.log.Error("the outcome of an order can not be told", "order", name, "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the command may have gone
}

func (o *orders) do(r *http.Request, name string, do order) (any, error) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+o.word)) != 1 {
		return nil, fault.New(fault.Denied, "ORDER_WORD", "daemon: orders are taken with the word in %s of the data directory", fileAdmin)
	}
	in, err := io.ReadAll(io.LimitReader(r.Body, maxOrder))
	if err != nil {
		return nil, err
	}
	if !o.one.TryLock() {
		return nil, fault.New(fault.Transient, "ORDER_RUNNING", "daemon: another order is being carried out; try again when it has ended")
	}
	defer o.one.Unlock()
	began := time.Now()
	out, err := do(r.Context(), in)
	if err == nil {
		o.log.Info("an order was carried out", "order", name, "dur", time.Since(began))
	}
	return out, err
}

// announce writes the admin file, and returns how it is removed. A program that
// can not write it serves all the same: its disk may be full.
func (o *orders) announce(dataDir, addr string) (withdraw func(context.Context) error) {
	path := filepath.Join(dataDir, fileAdmin)
	data, err := wire.Encode(adminFile{Addr: addr, Word: o.word, PID: os.Getpid()})
	if err == nil {
		err = pebblex.WriteFile(nil, path, append(data, '\n'), 0o600)
	}
	if err != nil {
		o.log.Warn("commands can not find this program: the admin file could not be written", "err", err)
	}
	return func(context.Context) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
}

// give gives an order to the program that runs in dataDir, and returns its
// outcome.
func give[T any](ctx context.Context, dataDir, name string, in any) (out T, err error) {
	path := filepath.Join(dataDir, fileAdmin)
	data, err := pebblex.ReadFile(nil, path, maxAdminFile)
	if err != nil {
		return out, fault.New(fault.Conflict, "IN_USE", "daemon: a process has the data directory %s open and does not say where it takes orders; stop it, or start it anew: %w", dataDir, err)
	}
	at, err := wire.Decode[adminFile](data)
	if err != nil {
		return out, fmt.Errorf("daemon: %s: %w", path, err)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at.Addr+"/orders/"+name, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	req.Header.Set("Authorization", "Bearer "+at.Word)
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req) // no proxy
	if err != nil {
		return out, fault.New(fault.Transient, "ORDER_UNREACHABLE", "daemon: the process that has %s open can not be reached: %w", dataDir, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxOutcome))
	if err != nil {
		return out, fault.New(fault.Transient, "ORDER_UNREACHABLE", "daemon: the order was cut off: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return wire.Decode[T](answer)
	}
	p, err := wire.Decode[wire.Problem](answer)
	if err != nil || p.Message == "" {
		return out, fault.New(fault.Transient, "ORDER_UNREACHABLE", "daemon: the order %s was answered with status %d: %q", name, resp.StatusCode, answer[:min(len(answer), 200)])
	}
	return out, fault.New(fault.ParseKind(p.Kind), p.Code, "%s", p.Message)
}
