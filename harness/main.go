// Command harness runs the whole system on this machine: three archives with
// overlapping hashes, the ledger, and an aggregator with an embedded NATS
// server, each as a process of its own.
//
//	go run ./harness                 # serve until Ctrl-C; the data stays in ./verae-data
//	go run ./harness --seed DIR      # first timestamp every file of DIR
//	go run ./harness --in-process    # all in one process
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/verae/archive/daemon"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/serve"
)

// config is what the harness can be told. The settings of the programs are
// their environment variables, which reach them as they are.
type config struct {
	Dir        string `default:"verae-data" help:"Directory of all data; starting on it again continues with the same keys and data."`
	InProcess  bool   `help:"Run everything in this process."`
	HTTPAddr   string `name:"http-addr" env:"HTTP_ADDR" default:"127.0.0.1:0" help:"host:port of the HTTP API; port 0 takes a free one."`
	NATSListen string `name:"nats-listen" env:"NATS_LISTEN" default:"127.0.0.1:0" help:"host:port of the embedded NATS server; port 0 takes a free one."`
	Ready      string `placeholder:"FILE" help:"File that is written, in one step, once everything serves: a JSON object with URLs, API keys and archives."`
	Seed       string `placeholder:"DIR" help:"Timestamp every file of this directory through the API, with its bytes, before serving on."`
	Verify     bool   `help:"After --seed look every file up again and compare its bytes, fetched by CID, with the original."`
	Once       bool   `help:"Stop after --seed instead of serving on."`
}

func main() {
	if code, is := world.Child(os.Args); is {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	var cfg config
	_, err := daemon.Parse("harness", "The whole system on one machine: archives, ledger, aggregator and NATS.", &cfg, args, os.Environ(), stdout)
	if errors.Is(err, daemon.ErrHelp) {
		return serve.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return serve.ExitUsage
	}
	child.FollowGoRun()
	ctx, stop := serve.Signals(context.Background())
	defer stop()
	if err := serveWorld(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "harness:", err)
		return serve.ServerExitCode(err)
	}
	return serve.ExitOK
}

// stopLimit bounds the stop of the whole world.
const stopLimit = 90 * time.Second

// serveWorld starts the world, does what was asked for, and stops it again.
func serveWorld(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	begin := time.Now()
	if cfg.Ready != "" { // what an earlier run wrote must not be taken for this one's
		if err := os.Remove(cfg.Ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	w, err := world.Start(ctx, world.Config{Dir: cfg.Dir, InProcess: cfg.InProcess, HTTPAddr: cfg.HTTPAddr, NATSAddr: cfg.NATSListen})
	if err != nil {
		return err
	}
	defer func() {
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer stop()
		err = errors.Join(err, w.Stop(ending))
	}()
	failed := w.Failed(ctx)
	ready := w.Ready()
	if err := greet(stdout, ready, time.Since(begin)); err != nil {
		return err
	}
	if cfg.Ready != "" {
		data, err := json.MarshalIndent(ready, "", "  ")
		if err != nil {
			return err
		}
		if err := world.WriteFile(cfg.Ready, data); err != nil {
			return err
		}
	}
	if cfg.Seed != "" {
		if err := seed(ctx, w.Client("acme"), cfg.Seed, cfg.Verify, stdout, stderr); err != nil || cfg.Once {
			return err
		}
	}
	return watch(ctx, w, failed, stdout, ready.Dir)
}

// watch waits for Ctrl-C. An archive that ends by itself, or is killed to see
// what happens, is told and not missed: the others serve on, and say that it is
// missing. Without the aggregator nothing serves.
func watch(ctx context.Context, w *world.World, failed <-chan world.Failure, stdout io.Writer, dir string) error {
	for {
		select {
		case f := <-failed:
			if f.Name == world.Aggregator {
				return f.Err
			}
			if err := w.Kill(ctx, f.Name); err != nil { // it is dead: only its place is cleared
				return err
			}
			fmt.Fprintf(stdout, "\n%v\nthe others serve on; start the harness again to bring it back\n", f.Err)
		case <-ctx.Done():
			fmt.Fprintln(stdout, "\nstopping; the data stays in", dir)
			return nil
		}
	}
}

// greet tells where everything is and what to try first.
func greet(out io.Writer, r world.Ready, took time.Duration) error {
	var text strings.Builder
	fmt.Fprintf(&text, "verae archive is up (%d ms)\n\n  HTTP API  %s\n  NATS      %s\n  data      %s\n", took.Milliseconds(), r.HTTPURL, r.NATSURL, r.Dir)
	for _, a := range r.Archives {
		fmt.Fprintf(&text, "  %-9s pid %d\n", a.ID, a.PID)
	}
	text.WriteString("\nDevelopment API keys, one a tenant:\n")
	for _, tenant := range slices.Sorted(maps.Keys(r.APIKeys)) {
		fmt.Fprintf(&text, "  %-9s %s\n", tenant, r.APIKeys[tenant])
	}
	fmt.Fprintf(&text, `
Try it: seal a text, attach metadata, and get the receipts.

curl -sS %s/zapier/v1/timestamp/wait \
  -H 'x-api-key: %s' \
  -F 'data=hello archive' \
  -F 'publicMetadata={"title":"my first seal"}' \
  -F 'includeAttached=true'

Then look it up:

VERAE_URL=%s VERAE_API_KEY=%s go run ./cmd/verae lookup %s

Ctrl-C stops everything.
`, r.HTTPURL, r.APIKeys["acme"], r.HTTPURL, r.APIKeys["acme"], firstDigest)
	_, err := io.WriteString(out, text.String())
	return err
}

// firstDigest is the SHA-256 of the text that greet proposes.
const firstDigest = "f8976760708ac1d60ab4b2dd1fa3c02d3bbf9693846f1db27aa77b46f0bb4276"
