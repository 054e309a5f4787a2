package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// archivedCheck is `archived check`.
type archivedCheck struct {
	JSON bool `name:"json" help:"Print the report as one JSON object."`
}

// Run reads everything that a stopped archive keeps and says what is wrong.
func (k *archivedCheck) Run(ctx context.Context, env Env[Archived]) error {
	c := env.Config
	if err := c.Check(); err != nil {
		return err
	}
	if err := c.unfinishedRepair(); err != nil {
		return err
	}
	if err := mustExist(c.DataDir, dirRecords, "archived"); err != nil {
		return err
	}
	report, err := c.check(ctx, env)
	if kind := fault.KindOf(err); err != nil && kind != fault.Corrupt {
		if inUse(err) {
			return fault.New(fault.Conflict, "IN_USE", "daemon: the archive runs, and checks itself: see /readyz?verbose and the metrics verae_scrub_* of its ADMIN_ADDR, or stop it first: %w", err)
		}
		return err
	}
	if printErr := k.print(env.Stdout, c, report); printErr != nil {
		return printErr
	}
	if report.Damages > 0 {
		return &serve.ExitError{Code: serve.ExitDamaged, Err: fmt.Errorf("daemon: %d findings of damage in %s", report.Damages, c.DataDir)}
	}
	return err
}

// check checks the records and, if their store opens, the files.
func (c *Archived) check(ctx context.Context, env Env[Archived]) (report archive.CheckReport, err error) {
	var o archive.CheckOptions
	files, filesErr := blob.OpenStore(c.fileConfig(env.Log, false))
	if filesErr != nil && !fault.Is(filesErr, fault.Corrupt) && !errors.Is(filesErr, pebblex.ErrMissing) {
		return report, filesErr
	}
	config := c.recordConfig(env.Log, nil)
	if filesErr == nil {
		defer func() { err = errors.Join(err, files.Close()) }()
		o.Blobs, config.Files = files, files
	} else {
		o.FilesUnknown = true
	}
	report, err = archive.CheckStopped(ctx, config, o)
	if filesErr != nil {
		report.Add(archive.Finding{
			Kind: archive.FindingFile, What: filesErr.Error(), Damage: true,
			Path: c.fileConfig(env.Log, false).Dir, Repair: "archived repair",
		})
	}
	return report, err
}

// print writes a report for people, or for programs.
func (k *archivedCheck) print(w io.Writer, c Archived, r archive.CheckReport) error {
	if k.JSON {
		data, err := wire.Encode(r)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", data)
		}
		return err
	}
	p := &printer{w: w}
	p.line("%s: %d records, %d of them lost; %d leaves; %d index rows; %d files of %d bytes",
		c.ArchiveID, r.Records, r.Lost, r.Leaves, r.IndexRows+r.TenantRows+r.PutIDs, r.Files, r.FileBytes)
	took := time.Duration(r.Ended-r.Began) * time.Millisecond
	p.line("%d bytes were read in %s", r.Bytes, took)
	for _, f := range r.Findings {
		word := "note"
		if f.Damage {
			word = "DAMAGE"
		}
		p.line("%s: %s: %s", word, f.Kind, f.What)
		if f.Repair != "" {
			p.line("  repair: %s", f.Repair)
		}
	}
	if more := r.Found - uint64(len(r.Findings)); more > 0 {
		p.line("and %d more findings", more)
	}
	switch {
	case r.Stopped != "":
		p.line("the check could not go on: %s", r.Stopped)
	case r.Found == 0:
		p.line("nothing is wrong")
	case r.Damages == 0:
		p.line("nothing is damaged")
	default:
		p.line("%d findings of damage: do not start the archive as it is", r.Damages)
	}
	return p.err
}

// printer remembers that its writer failed.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// startScrub has the archive read itself while it serves, if it is to. The
// readiness shows what was found: what is damaged has to be seen to, but all
// else is served.
func (c *Archived) startScrub(node *archive.Node, files *blob.Store, log *slog.Logger, health *serve.Health) (serve.Task, []prometheus.Collector, error) {
	if c.ScrubRate == 0 {
		log.Warn("SCRUB_BYTES_PER_S is 0: nobody looks for damage before it is met")
		return serve.Task{Name: "scrub", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}, nil, nil
	}
	scrub, err := archive.NewScrub(node, archive.ScrubConfig{Blobs: files, BytesPerSecond: c.ScrubRate})
	if err != nil {
		return serve.Task{}, nil, err
	}
	health.Add(serve.Check{Name: "scrub", Degraded: true, Func: func(context.Context) error { return scrub.Healthy() }})
	return serve.Task{Name: "scrub", Run: scrub.Run}, scrub.Metrics(), nil
}
