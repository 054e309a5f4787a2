package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// archivedRestore is `archived restore`.
type archivedRestore struct {
	From    string `required:"" help:"Directory of the backup."`
	Offline bool   `help:"Ask nobody what is remembered of this archive. Then the numbers of records that were stored after the backup may be given out again, in the new generation, unless SEEN names the highest."`
	Seen    uint64 `help:"A sequence number that the archive is known to have given out, as in the aggregator's memory.json."`
}

// Run makes the data directory from a backup, as a new generation of the archive.
func (c *archivedRestore) Run(ctx context.Context, env Env[Archived]) error {
	cfg := env.Config
	m, err := pebblex.ReadManifest(nil, c.From, kindArchive)
	if err != nil {
		return err
	}
	if cfg.ArchiveID == "" {
		cfg.ArchiveID = m.ID
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	if cfg.ArchiveID != m.ID {
		return fault.New(fault.Conflict, "ARCHIVE_ID", "ARCHIVE_ID: the backup in %s is of the archive %q, not of %q: an id can not be changed", c.From, m.ID, cfg.ArchiveID).InField("ARCHIVE_ID")
	}
	env.Config = cfg
	remembered, err := c.remembered(ctx, env)
	if err != nil {
		return err
	}
	var out archive.Restored
	err = pebblex.Restore(ctx, nil, c.From, m, filepath.Clean(cfg.DataDir), func(dir string) error {
		half := cfg.half(dir, wire.ArchiveID(m.ID))
		return half.withFiles(env.Log, func(files *blob.Store) (err error) {
			out, err = archive.Restore(ctx, archive.RestoreConfig{
				Config: half.recordConfig(env.Log, files), Remembered: remembered, Seq: c.Seen,
			})
			return err
		})
	})
	if err != nil {
		return err
	}
	c.tell(env, m, out)
	return nil
}

// tell says what was made and what is left to do.
func (c *archivedRestore) tell(env Env[Archived], m pebblex.Manifest, out archive.Restored) {
	id := env.Config.ArchiveID
	fmt.Fprintf(env.Stdout, "%s: restored %d records of %s from the backup of %s, up to seq %d\n", env.Config.DataDir, out.Records, id, m.Created, out.Kept)
	if out.Remembered > out.Kept {
		fmt.Fprintf(env.Stdout, "seq %d to %d were given out after the backup: the other archives have those records, and reconciling brings them back\n", out.Kept+1, out.Remembered)
	}
	fmt.Fprintf(env.Stdout, "it is generation %d and begins with seq %d. Start it, and admit it:\n", out.Generation, out.FirstSeq)
	fmt.Fprintf(env.Stdout, "  verae archives accept %s/g%d\n", id, out.Generation)
	fmt.Fprintf(env.Stdout, "which shuts out every older generation for ever; then, on each archive: archived reconcile\n")
}

// remembered asks everybody what was heard of the archive: the other archives
// since they started, aggregators ever.
func (c *archivedRestore) remembered(ctx context.Context, env Env[Archived]) (list []wire.Remembered, err error) {
	cfg, id := env.Config, wire.ArchiveID(env.Config.ArchiveID)
	if c.Offline {
		return nil, nil
	}
	if cfg.NATSURL == "" {
		return nil, fault.New(fault.Invalid, "MISSING", "NATS_URL: the other archives are asked what they remember of this one; give the URL of the NATS server, or --offline").InField("NATS_URL")
	}
	conn, err := bus.Connect(bus.Config{URL: cfg.NATSURL, Name: "restore-" + cfg.ArchiveID, NKeyFile: cfg.NKeyFile, Log: env.Log})
	if err != nil {
		return nil, err
	}
	defer func() {
		drain, stop := context.WithTimeout(context.WithoutCancel(ctx), busLimit)
		defer stop()
		err = errors.Join(err, conn.Drain(drain))
	}()
	peers, err := bus.NewPeers(conn, bus.PeersConfig{Log: env.Log})
	if err != nil {
		return nil, err
	}
	defer peers.Close()
	if err := peers.Settle(ctx); err != nil {
		return nil, err
	}
	if err := connected(conn); err != nil {
		return nil, err
	}
	if slices.Contains(peers.Alive(), id) {
		return nil, fault.New(fault.Conflict, "ARCHIVE_ALIVE", "daemon: an archive %s is running: what is restored would be its twin. Stop it first; if it is sound, it needs no restore", id)
	}
	return askAll(ctx, peers, id)
}

// rememberers are whom a restore asks; *bus.Peers is them.
type rememberers interface {
	Alive() []wire.ArchiveID
	Remembered(ctx context.Context, id wire.ArchiveID) ([]wire.Remembered, error)
	Roster(ctx context.Context) (wire.RosterReply, error)
}

// askAll asks aggregators and archives. It fails if nobody answers.
func askAll(ctx context.Context, all rememberers, id wire.ArchiveID) ([]wire.Remembered, error) {
	list, err := all.Remembered(ctx, id)
	if err == nil && len(list) == 0 && len(all.Alive()) == 0 {
		_, err = all.Roster(ctx) // tells an aggregator that remembers nothing from none
	}
	if err != nil {
		return nil, fault.New(fault.Transient, "NOBODY_ANSWERS", "daemon: no archive and no aggregator says what it remembers of %s; start one, or say --offline, with --seen if a number is known: %w", id, err)
	}
	return list, nil
}
