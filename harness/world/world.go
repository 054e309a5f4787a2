// Package world runs the whole system on one machine: archives and an
// aggregator with its embedded NATS server and ledger, each as a process of its
// own or all in this one. `go run ./harness` is made of it, and so are the
// end-to-end tests, which kill its processes and start them again.
//
// A world keeps everything below one directory and goes on where it was when it
// is started there again. Its processes never outlive the one that started it.
package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Config says what a world consists of.
type Config struct {
	// Dir is where everything is kept; it is made if it is not there.
	Dir string
	// Archives are the ids of the archives; empty means archive-a, -b and -c.
	Archives []wire.ArchiveID
	// Tenants get a development key each; empty means acme and globex.
	Tenants []wire.TenantID
	// InProcess runs everything in this process. Otherwise this program's main
	// (or TestMain) must call Child first.
	InProcess bool
	// HTTPAddr and NATSAddr are the aggregator's addresses; empty means a free
	// port of the loopback interface each.
	HTTPAddr, NATSAddr string
	// Env is added to the environment from which the programs read their
	// settings, and wins over what is there: NATS_URL= makes the aggregator embed
	// its server whatever this process's environment says. Where the data is and
	// which addresses are used is the world's own to say.
	Env []string
	// Log gets what the world itself does; nil discards. The programs log to
	// files in Dir.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if len(c.Archives) == 0 {
		c.Archives = []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}
	}
	if len(c.Tenants) == 0 {
		c.Tenants = []wire.TenantID{"acme", "globex"}
	}
	c.HTTPAddr, c.NATSAddr = cmp.Or(c.HTTPAddr, "127.0.0.1:0"), cmp.Or(c.NATSAddr, "127.0.0.1:0")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Aggregator is the name of the aggregator among a world's programs; an archive's
// is its id.
const Aggregator = "aggregator"

// World is a running system. Its methods may be called from many goroutines.
type World struct {
	cfg     Config
	spawner *child.Spawner // nil in one process
	keys    map[wire.TenantID]string

	mu       sync.Mutex // guards the fields below
	programs map[string]*program
	httpURL  string
	natsURL  string
}

// Ready describes a world that serves.
type Ready struct {
	HTTPURL  string                   `json:"httpURL"`
	NATSURL  string                   `json:"natsURL"`
	APIKeys  map[wire.TenantID]string `json:"apiKeys"`
	Archives []Archive                `json:"archives"`
	Dir      string                   `json:"dir"`
}

// Archive is one archive of a world.
type Archive struct {
	ID  wire.ArchiveID `json:"id"`
	Dir string         `json:"dir"`
	PID int            `json:"pid"` // of its process
}

// startLimit bounds how long one program may take to serve.
const startLimit = 60 * time.Second

// Start starts a world and returns when every archive takes records. What had
// started is stopped again when it fails.
func Start(ctx context.Context, cfg Config) (*World, error) {
	cfg = cfg.withDefaults()
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("world: %w", err)
	}
	cfg.Dir = dir
	w := &World{cfg: cfg, programs: map[string]*program{}}
	if !cfg.InProcess {
		w.spawner = child.NewSpawner()
	}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop(context.WithoutCancel(ctx)))
	}
	return w, nil
}

func (w *World) start(ctx context.Context) (err error) {
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("world: %w", err)
	}
	if w.keys, err = devKeys(w.cfg.Dir, w.keysFile(), w.cfg.Tenants); err != nil {
		return err
	}
	if err := filterKey(w.filterKeyFile()); err != nil {
		return err
	}
	if err := w.Restart(ctx, Aggregator); err != nil {
		return err
	}
	for _, id := range w.cfg.Archives {
		if err := w.Restart(ctx, string(id)); err != nil {
			return err
		}
	}
	return w.WaitUp(ctx, len(w.cfg.Archives))
}

// WaitUp waits until n archives of this world take records, by what their
// processes of now have said: what is listed of one that was killed may be the last
// word of its earlier process.
func (w *World) WaitUp(ctx context.Context, n int) error {
	ctx, stop := context.WithTimeout(ctx, startLimit)
	defer stop()
	c := w.Client(w.cfg.Tenants[0])
	for {
		up, err := w.countUp(ctx, c)
		if err == nil && up >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Transient, "NOT_UP", "world: %d of %d archives are up: %w", up, n, errors.Join(err, ctx.Err()))
		case <-poll():
		}
	}
}

func (w *World) countUp(ctx context.Context, c *client.Client) (up int, err error) {
	raw, err := c.Archives(ctx)
	if err != nil {
		return 0, err
	}
	var list struct{ Archives []edge.ArchiveInfo }
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("world: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range list.Archives {
		p := w.programs[string(a.ArchiveID)]
		if p != nil && a.State == wire.StateUp && a.LastHelloAt.Compare(p.served) > 0 {
			up++
		}
	}
	return up, nil
}

// Client returns a client with the key of a tenant.
func (w *World) Client(tenant wire.TenantID) *client.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &client.Client{URL: w.httpURL, Key: w.keys[tenant]}
}

// Ready describes the world as it is now.
func (w *World) Ready() Ready {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Ready{HTTPURL: w.httpURL, NATSURL: w.natsURL, APIKeys: w.keys, Dir: w.cfg.Dir, Archives: []Archive{}}
	for _, id := range w.cfg.Archives {
		a := Archive{ID: id, Dir: w.dir(string(id))}
		if p := w.programs[string(id)]; p != nil {
			a.PID = p.pid()
		}
		r.Archives = append(r.Archives, a)
	}
	return r
}

// Names are the names of all programs, the aggregator first.
func (w *World) Names() []string {
	names := []string{Aggregator}
	for _, id := range w.cfg.Archives {
		names = append(names, string(id))
	}
	return names
}

// FilesURL is where an archive serves signed URLs; empty: it does not.
func (w *World) FilesURL(id wire.ArchiveID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.programs[string(id)]; p != nil {
		return p.httpURL
	}
	return ""
}

func (w *World) dir(name string) string { return filepath.Join(w.cfg.Dir, name) }

func (w *World) keysFile() string { return w.dir("keys.json") }

func (w *World) filterKeyFile() string { return w.dir("filter.key") }

// Restart starts a program, after stopping it if it runs, and returns when it
// serves. Addresses stay what they were.
func (w *World) Restart(ctx context.Context, name string) error {
	if err := w.StopOne(ctx, name); err != nil {
		return err
	}
	p, err := w.launch(ctx, name)
	if err != nil {
		return fmt.Errorf("world: start %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.programs[name] = p
	return nil
}

// StopOne asks a program to end and waits for it.
func (w *World) StopOne(ctx context.Context, name string) error {
	if p := w.take(name); p != nil {
		return p.stop(ctx)
	}
	return nil
}

// Kill ends a program at once, as a power loss would, and waits until it is
// gone. In one process it is the same as StopOne.
func (w *World) Kill(ctx context.Context, name string) error {
	if p := w.take(name); p != nil {
		return p.kill(ctx)
	}
	return nil
}

func (w *World) take(name string) *program {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.programs[name]
	delete(w.programs, name)
	return p
}

// Failure is the end of a program that was not asked to end.
type Failure struct {
	Name string
	Err  error
}

// Failed returns a channel that gets every program of now that ends without
// being asked to, until ctx ends.
func (w *World) Failed(ctx context.Context) <-chan Failure {
	failed := make(chan Failure, len(w.Names()))
	for _, name := range w.Names() {
		w.mu.Lock()
		p := w.programs[name]
		w.mu.Unlock()
		if p == nil {
			continue
		}
		go func() {
			select {
			case <-p.done:
				if ctx.Err() == nil {
					failed <- Failure{name, fmt.Errorf("%s ended by itself: %w (its log: %s)", name, p.err(), w.logFile(name))}
				}
			case <-ctx.Done():
			}
		}()
	}
	return failed
}

// Stop stops the archives, then the aggregator, and waits for all.
func (w *World) Stop(ctx context.Context) error {
	var all []error
	for _, id := range w.cfg.Archives {
		all = append(all, w.StopOne(ctx, string(id)))
	}
	all = append(all, w.StopOne(ctx, Aggregator))
	if w.spawner != nil {
		w.spawner.Close()
	}
	return errors.Join(all...)
}

// poll is the rhythm in which the world looks for what it can not be told.
func poll() <-chan time.Time { return time.After(20 * time.Millisecond) }
