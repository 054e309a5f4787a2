package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/verae/archive/daemon"
	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// childCommand is the first argument by which this program knows that it is to
// be one of the world's programs.
const childCommand = "world-program"

// Child runs one of the world's programs if the arguments (os.Args) say so, and
// returns its exit code. Every main that starts worlds of processes calls it
// first.
func Child(args []string) (code int, is bool) {
	if len(args) < 3 || args[1] != childCommand {
		return 0, false
	}
	main := daemon.ArchivedProgram.Main
	if args[2] == Aggregator {
		main = daemon.AggregatorProgram.Main
	}
	return main(args[3:], os.Stdout, os.Stderr), true
}

// program is a running program: a process, or a goroutine of this one.
type program struct {
	process *child.Process
	cancel  context.CancelFunc // of the goroutine
	done    <-chan struct{}
	err     func() error // waits for the end
	served  wire.Time    // when it was seen to serve
	httpURL string       // what it told then
}

func (p *program) pid() int {
	if p.process != nil {
		return p.process.PID()
	}
	return os.Getpid()
}

func (p *program) stop(ctx context.Context) error {
	if p.process != nil {
		return p.process.Stop(ctx)
	}
	p.cancel()
	return p.err()
}

func (p *program) kill(ctx context.Context) error {
	if p.process == nil {
		return p.stop(ctx)
	}
	p.process.Kill()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *World) logFile(name string) string { return filepath.Join(w.cfg.Dir, name+".log") }

func (w *World) readyFile(name string) string { return filepath.Join(w.cfg.Dir, name+".ready") }

// launch starts a program and waits until it serves.
func (w *World) launch(ctx context.Context, name string) (*program, error) {
	if err := os.Remove(w.readyFile(name)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	run := w.spawn
	if w.cfg.InProcess {
		run = w.embed
	}
	p, err := run(ctx, name)
	if err != nil {
		return nil, err
	}
	running, err := w.awaitReady(ctx, name, p)
	if err != nil {
		return nil, errors.Join(err, p.kill(context.WithoutCancel(ctx)))
	}
	p.served = wire.At(time.Now())
	p.httpURL = running.HTTPURL
	if name == Aggregator {
		w.mu.Lock()
		w.httpURL, w.natsURL = running.HTTPURL, running.NATSURL
		w.cfg.HTTPAddr, w.cfg.NATSAddr = address(running.HTTPURL), address(running.NATSURL)
		w.mu.Unlock()
	}
	return p, nil
}

// address is the host:port of a URL.
func address(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr
}

// settings are the variables of a program, the world's own first.
func (w *World) settings(name string) []string {
	env := []string{"DATA_DIR=" + w.dir(name), "READY_FILE=" + w.readyFile(name)}
	if name == Aggregator {
		env = append(env, "HTTP_ADDR="+w.cfg.HTTPAddr, "NATS_LISTEN="+w.cfg.NATSAddr, "API_KEYS_FILE="+w.keysFile(), "FILTER_KEY_FILE="+w.filterKeyFile())
	} else {
		env = append(env, "ARCHIVE_ID="+name, "NATS_URL="+w.natsURL, "FILTER_KEY_FILE="+w.filterKeyFile(), "ADMIN_ADDR=127.0.0.1:0") // one address can not be all the archives'
	}
	return env
}

// reserve is the free space that a world keeps unless it is told otherwise:
// enough for its stores, less than a program of its own keeps, since a world is
// for trying things out on a disk that may be nearly full.
const reserve = "DISK_RESERVE=536870912"

// environment is the whole environment of a program: this process's, what the
// caller added, and the world's own, which wins.
func (w *World) environment(name string) []string {
	return slices.Concat([]string{reserve}, os.Environ(), w.cfg.Env, w.settings(name))
}

// spawn starts a program as a process, after making its directory.
func (w *World) spawn(ctx context.Context, name string) (*program, error) {
	log, err := os.OpenFile(w.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	_, err = os.Stat(w.dir(name))
	if os.IsNotExist(err) {
		p, err := w.process(name, "init", log)
		if err != nil {
			return nil, err
		}
		if err := p.Err(); err != nil {
			return nil, fmt.Errorf("init: %w (its log: %s)", err, w.logFile(name))
		}
	} else if err != nil {
		return nil, err
	}
	p, err := w.process(name, "serve", log)
	if err != nil {
		return nil, err
	}
	return &program{process: p, done: p.Done(), err: p.Err}, nil
}

func (w *World) process(name, command string, log *os.File) (*child.Process, error) {
	self, err := child.Self()
	if err != nil {
		return nil, err
	}
	kind := "archived"
	if name == Aggregator {
		kind = Aggregator
	}
	cmd := exec.Command(self, childCommand, kind, command)
	cmd.Env, cmd.Stderr, cmd.Stdout = w.environment(name), log, log
	return w.spawner.Start(cmd)
}

// awaitReady waits for the file that a program writes once it serves.
func (w *World) awaitReady(ctx context.Context, name string, p *program) (running daemon.Running, err error) {
	ctx, stop := context.WithTimeout(ctx, startLimit)
	defer stop()
	for {
		data, err := os.ReadFile(w.readyFile(name))
		if err == nil {
			return running, json.Unmarshal(data, &running)
		}
		if !os.IsNotExist(err) {
			return running, err
		}
		select {
		case <-p.done:
			return running, fmt.Errorf("it ended before it served: %w (its log: %s)", p.err(), w.logFile(name))
		case <-ctx.Done():
			return running, fault.New(fault.Transient, "NOT_READY", "it does not serve in time: %w (its log: %s)", ctx.Err(), w.logFile(name))
		case <-poll():
		}
	}
}

// embed runs a program in this process.
func (w *World) embed(ctx context.Context, name string) (*program, error) {
	log, err := os.OpenFile(w.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	logger, level, err := serve.NewLogger(log, os.Getenv)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	run, err := w.configure(name, logger, level)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	var end error
	go func() {
		defer close(done)
		end = errors.Join(run(running), log.Close())
	}()
	return &program{cancel: cancel, done: done, err: func() error { <-done; return end }}, nil
}

// configure reads a program's settings, makes its directory if it is not
// there, and returns what runs it.
func (w *World) configure(name string, log *slog.Logger, level *slog.LevelVar) (func(context.Context) error, error) {
	_, err := os.Stat(w.dir(name))
	fresh := os.IsNotExist(err)
	if name == Aggregator {
		return prepare(daemon.AggregatorProgram, w.environment(name), fresh, log, level)
	}
	return prepare(daemon.ArchivedProgram, w.environment(name), fresh, log, level)
}

func prepare[C any](p daemon.Program[C], env []string, fresh bool, log *slog.Logger, level *slog.LevelVar) (func(context.Context) error, error) {
	var cfg C
	if _, err := daemon.Parse(p.Name, "", &cfg, nil, env, os.Stderr); err != nil {
		return nil, err
	}
	if fresh {
		if err := p.Init(cfg, log); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error { return p.Run(ctx, cfg, log, level) }, nil
}
