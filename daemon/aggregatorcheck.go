package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/jobs"
)

// aggregatorCheck is `aggregator check`.
type aggregatorCheck struct{}

// Run reads everything that a stopped aggregator keeps and says what is wrong.
func (c *aggregatorCheck) Run(ctx context.Context, env Env[Aggregator]) error {
	cfg := env.Config
	if err := mustExist(cfg.DataDir, dirJobs, "aggregator"); err != nil {
		return err
	}
	k := &aggregatorChecker{Env: env}
	for _, step := range []func(context.Context) error{k.ledger, k.vault, k.roster, k.keys, k.blocks} {
		if err := step(ctx); inUse(err) {
			return fault.New(fault.Conflict, "IN_USE", "daemon: the aggregator runs; stop it, or make a backup of it, which is checked: %w", err)
		} else if err != nil {
			return err
		}
	}
	if k.found > 0 {
		return fault.New(fault.Corrupt, "DAMAGED", "daemon: %d findings in %s; restore it from a backup, see the part Restore of docs/operations.md", k.found, cfg.DataDir)
	}
	fmt.Fprintf(env.Stdout, "%s: nothing is wrong\n", cfg.DataDir)
	return nil
}

// aggregatorChecker is one run of it.
type aggregatorChecker struct {
	Env[Aggregator]
	found int
}

// note shows a damage and returns any other error: that nothing could be said.
func (k *aggregatorChecker) note(err error) error {
	if kind := fault.KindOf(err); err == nil || inUse(err) || kind != fault.Corrupt && kind != fault.NotFound && kind != fault.Conflict && kind != fault.Invalid {
		return err
	}
	k.found++
	fmt.Fprintln(k.Stdout, "damaged:", err)
	return nil
}

// ledger checks the ledger and, with its seals, the job store. Without the one
// the other is checked by itself.
func (k *aggregatorChecker) ledger(ctx context.Context) (err error) {
	sealed, err := ledger.Open(k.Config.ledgerConfig(k.Log))
	if err != nil {
		return errors.Join(k.note(err), k.jobs(ctx, nil))
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	if err := k.note(sealed.Check(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(k.Stdout, "ledger: %s\n", firstLines(sealed.Latest()))
	return k.jobs(ctx, sealed)
}

// firstLines are origin, size and root of a checkpoint on one line.
func firstLines(note []byte) string {
	var origin, size, root string
	if _, err := fmt.Sscanf(string(note), "%s\n%s\n%s\n", &origin, &size, &root); err != nil {
		return ""
	}
	return fmt.Sprintf("%s has %s leaves, root %s", origin, size, root)
}

func (k *aggregatorChecker) jobs(ctx context.Context, seals jobs.Seals) (err error) {
	store, err := jobs.OpenStopped(nil, k.Config.path(dirJobs), k.Log)
	if err != nil {
		return k.note(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	report, found, err := store.Check(ctx, seals)
	if err != nil {
		return k.note(err)
	}
	for _, f := range found {
		if err := k.note(f); err != nil {
			return err
		}
	}
	fmt.Fprintf(k.Stdout, "job store: %d submissions, %d of them unfinished, %d puts in the outbox, %d events, %d job ids\n",
		report.Submissions, report.Unfinished, report.Outbox, report.Events, report.Jobs)
	return nil
}

func (k *aggregatorChecker) vault(context.Context) error {
	tenants, err := checkVault(k.Config.vaultDir())
	if err != nil {
		return k.note(err)
	}
	fmt.Fprintf(k.Stdout, "vault: %d tenants\n", tenants)
	return nil
}

func (k *aggregatorChecker) roster(context.Context) error {
	roster, err := bus.OpenRoster(bus.RosterConfig{Path: k.Config.path(fileRoster), Log: k.Log})
	if err != nil {
		return k.note(err)
	}
	fmt.Fprintf(k.Stdout, "roster: version %d, %d archives\n", roster.Version(), len(roster.Enrolled()))
	return roster.Close()
}

func (k *aggregatorChecker) keys(context.Context) error {
	keys, err := edge.ListKeys(k.Config.KeysFile())
	if err != nil {
		return k.note(err)
	}
	fmt.Fprintf(k.Stdout, "API keys: %d\n", len(keys))
	return nil
}

// blocks reads every file of the stores from the disk, also what no row is in.
func (k *aggregatorChecker) blocks(ctx context.Context) error {
	for _, dir := range []string{filepath.Join(dirLedger, "ledger.db"), dirJobs} {
		flaws, sum, err := pebblex.Verify{Dir: k.Config.path(dir)}.All(ctx)
		if err != nil {
			return err
		}
		k.flaws(k.Stdout, flaws)
		fmt.Fprintf(k.Stdout, "%s: %d files, %d bytes read\n", dir, sum.Files, sum.Bytes)
	}
	return nil
}

func (k *aggregatorChecker) flaws(w io.Writer, flaws []pebblex.Flaw) {
	for _, f := range flaws {
		if !f.Damage {
			fmt.Fprintf(w, "noticed: %s: %s\n", f.Path, f.What)
			continue
		}
		k.found++
		fmt.Fprintf(w, "damaged: %s: %s\n", f.Path, f.What)
	}
}
