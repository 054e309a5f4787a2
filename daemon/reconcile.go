package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// startCopies starts what an archive does with others: it serves them, fetches
// from them, and sees to copies. The parts are on the stack so that they end
// before the stores.
func (c *Archived) startCopies(conn *bus.Conn, queries *bus.ArchiveService, node *archive.Node, files *blob.Store, log *slog.Logger, stack *serve.Stack, health *serve.Health) ([]prometheus.Collector, error) {
	peers, err := bus.NewPeers(conn, bus.PeersConfig{Self: wire.ArchiveID(c.ArchiveID), Log: log})
	if err != nil {
		return nil, err
	}
	if err := stack.Push("peers", busLimit, func(context.Context) error { peers.Close(); return nil }); err != nil {
		return nil, err
	}
	puller := archive.NewPuller(node, files, peers, log)
	if err := stack.Push("pulls", serviceLimit, func(context.Context) error { puller.Close(); return nil }); err != nil {
		return nil, err
	}
	reconciler := archive.NewReconciler(archive.ReconcilerConfig{
		Node: node, Puller: puller, Fleet: peers, Copies: c.PutCopies, Every: c.ReconcileEvery, PerSecond: c.ReconcileRate, Log: log,
	})
	service, err := bus.ServeSync(conn, bus.SyncConfig{Node: node, Blobs: files, Peers: peers, Puller: puller, Reconciler: reconciler, Queries: queries, Log: log})
	if err != nil {
		return nil, err
	}
	if err := stack.Push("sync", serviceLimit, service.Drain); err != nil {
		return nil, err
	}
	err = runUntilClosed(stack, "memory of others", func(ctx context.Context) error {
		askOthers(ctx, wire.ArchiveID(c.ArchiveID), peers, node, log)
		return nil
	})
	if err != nil {
		return nil, err
	}
	health.Add(serve.Check{Name: "copies", Degraded: true, Func: func(context.Context) error { return reconciler.Healthy() }})
	return slices.Concat(puller.Metrics(), reconciler.Metrics(), service.Metrics()), runUntilClosed(stack, "reconcile", reconciler.Run)
}

// runUntilClosed runs a part whose context ends when the stack closes it, which
// is before the parts below it: the context of a task ends after all of them.
func runUntilClosed(stack *serve.Stack, name string, run func(context.Context) error) error {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return stack.Push(name, serviceLimit, func(ctx context.Context) error {
		stop()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// How the command that reconciles follows the archive that does it.
const (
	followInterval = 500 * time.Millisecond
	followPatience = 30 * time.Second // how long the archive may be silent, say to start anew
)

// archivedReconcile is the command of archived that has a running archive see to
// the copies of its records.
type archivedReconcile struct{}

// Run starts the reconciliation, or joins the one under way, and returns when it
// has ended. It fails if copies could not be made.
func (archivedReconcile) Run(ctx context.Context, env Env[Archived]) error {
	c := env.Config
	id, err := wire.ParseArchiveID(c.ArchiveID)
	if err != nil {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "ARCHIVE_ID: %w", err).InField("ARCHIVE_ID")
	}
	if c.NATSURL == "" {
		return fault.New(fault.Invalid, "MISSING", "NATS_URL: reconcile asks the running archive over NATS").InField("NATS_URL")
	}
	conn, err := bus.Connect(bus.Config{URL: c.NATSURL, Name: "reconcile-" + c.ArchiveID, NKeyFile: c.NKeyFile, Log: env.Log})
	if err != nil {
		return err
	}
	peers, err := bus.NewPeers(conn, bus.PeersConfig{Log: env.Log})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer peers.Close()
	return errors.Join(followReconcile(ctx, peers, id, env.Stdout), conn.Close())
}

// reconciling is an archive that can be told to reconcile.
type reconciling interface {
	Reconcile(ctx context.Context, archive wire.ArchiveID, start bool) (wire.ReconcileProgress, error)
}

// followReconcile starts a reconciliation and writes a line for each step of it
// until it has ended.
func followReconcile(ctx context.Context, at reconciling, id wire.ArchiveID, out io.Writer) error {
	p, err := at.Reconcile(ctx, id, true)
	if err != nil {
		return err
	}
	last, heard := "", time.Now()
	for {
		if line := progressLine(p); line != last {
			last = line
			fmt.Fprintln(out, line)
		}
		if !p.Running {
			return reconciled(p)
		}
		select {
		case <-time.After(followInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
		next, err := at.Reconcile(ctx, id, false)
		switch {
		case err == nil:
			p, heard = next, time.Now()
		case !fault.Is(err, fault.Transient) || time.Since(heard) > followPatience:
			return fmt.Errorf("the archive does not answer any more; it goes on with the reconciliation when it can: %w", err)
		}
	}
}

func progressLine(p wire.ReconcileProgress) string {
	line := fmt.Sprintf("%s: %d of %d, %d with too few copies, %d copies made, %d failed", p.ArchiveID, p.Seq, p.End, p.Missing, p.Copied, p.Failed)
	if p.Problem != nil {
		line += ": " + p.Problem.Message
	}
	return line
}

// reconciled is how a reconciliation ended.
func reconciled(p wire.ReconcileProgress) error {
	if p.DoneAt != "" && p.Failed == 0 {
		return nil
	}
	reason := "no reason is known"
	if p.Problem != nil {
		reason = p.Problem.Message
	}
	return &serve.ExitError{Code: serve.ExitFailed, Err: fmt.Errorf("%d copies of records could not be made: %s", p.Failed, reason)}
}
