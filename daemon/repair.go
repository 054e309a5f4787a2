package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// archivedRepair is `archived repair`.
type archivedRepair struct {
	Offline    bool `help:"Ask no other archive: what is not here is lost, and a stub proves that it was."`
	DryRun     bool `name:"dry-run" help:"Say what would be done and change nothing."`
	TrustStore bool `name:"trust-store" help:"When the mark is lost and no other archive remembers one, take the end of what is left for the end of the log. Records that were cut off behind it are then not missed."`
	FilesGone  bool `name:"files-gone" help:"The directory of the files is empty because they were lost, not because a volume is not mounted: fetch them all anew."`
	JSON       bool `name:"json" help:"Write the report as JSON."`
}

// repairReport is what `archived repair --json` writes.
type repairReport struct {
	Records *archive.RepairReport `json:"records"`
	Files   repairedFiles         `json:"files"`
}

type repairedFiles struct {
	Rebuilt  bool         `json:"rebuilt"` // the index of the files was built anew
	Damages  []string     `json:"damages"`
	Fetched  []fileOutput `json:"fetched"`
	Lost     []fileOutput `json:"lost"`
	Evidence []string     `json:"evidence"`
}

type fileOutput struct {
	SHA256 wire.Digest `json:"sha256"`
	CID    string      `json:"cid"`
	Size   int64       `json:"size"`
	Known  bool        `json:"known,omitzero"` // of a lost file: an earlier repair has found that it is
}

// Run repairs a stopped archive, its files first: records name them.
func (c archivedRepair) Run(ctx context.Context, env Env[Archived]) (err error) {
	cfg := env.Config
	if err := cfg.Check(); err != nil {
		return err
	}
	if !c.Offline && cfg.NATSURL == "" {
		return fault.New(fault.Invalid, "MISSING", "NATS_URL: a repair asks the other archives for what is missing; give their NATS server, or --offline").InField("NATS_URL")
	}
	if pending, err := pebblex.Pending(nil, filepath.Join(cfg.DataDir, dirRecords)); err != nil || !pending {
		if err := errors.Join(err, mustExist(cfg.DataDir, dirRecords, "archived")); err != nil {
			return err
		}
	}
	if err := c.filesThere(cfg); err != nil {
		return err
	}
	r := &archiveRepair{archivedRepair: c, cfg: cfg, log: env.Log, now: time.Now()}
	r.report.Files = repairedFiles{Damages: []string{}, Fetched: []fileOutput{}, Lost: []fileOutput{}, Evidence: []string{}}
	r.known = archive.LostFiles(cfg.recordConfig(env.Log, nil))
	if !c.Offline {
		leave, err := r.meetPeers(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, leave()) }()
	}
	err = r.run(ctx)
	if r.report.Records != nil {
		err = errors.Join(err, r.write(env.Stdout))
	}
	return err
}

// filesThere refuses a directory without files: what is fetched must not go to
// the disk below a volume that is not mounted.
func (c archivedRepair) filesThere(cfg Archived) error {
	if c.FilesGone {
		return nil
	}
	for _, part := range []string{"index", "files"} {
		if there, err := exists(filepath.Join(cfg.DataDir, dirFiles, part)); there || err != nil {
			return err
		}
	}
	return fault.New(fault.NotFound, "MISSING", "DATA_DIR: there are no files in %s: is a volume not mounted? If they are lost, say --files-gone", filepath.Join(cfg.DataDir, dirFiles)).InField("DATA_DIR")
}

// archiveRepair is one run of it.
type archiveRepair struct {
	archivedRepair
	cfg   Archived
	log   *slog.Logger
	now   time.Time
	peers archive.Peers // nil: offline
	files *blob.Store

	unheard error                // why not everybody was asked; nil if everybody was
	known   map[wire.Digest]bool // files that were given up before

	missing []blob.FileRef // named by the index of the files
	report  repairReport
}

func (r *archiveRepair) run(ctx context.Context) error {
	if err := r.repairFiles(ctx); err != nil {
		return err
	}
	if err := r.withFiles(func(files archive.Files) (err error) {
		if err := r.refetchAll(ctx); err != nil {
			return err
		}
		r.report.Records, err = archive.Repair(ctx, archive.RepairConfig{
			Config: r.cfg.recordConfig(r.log, files), Peers: r.peers, Unheard: r.unheard, TrustStore: r.TrustStore, DryRun: r.DryRun,
			Refetch: func(ctx context.Context, f wire.File) error {
				return r.refetch(ctx, blob.FileRef{SHA256: f.SHA256, CID: f.CID, Size: f.Size})
			},
		})
		if err == nil {
			r.knownLost()
		}
		return err
	}); err != nil {
		r.report.Records = nil // what was not done is not reported
		return err
	}
	return r.outcome()
}

// unfinishedRepair refuses to use a directory of which a repair is under way, or
// was cut short: what is in it may be about to be replaced.
func (c *Archived) unfinishedRepair() error {
	for _, dir := range []string{filepath.Join(c.DataDir, dirRecords), filepath.Join(c.DataDir, dirFiles, "index")} {
		pending, err := pebblex.Pending(nil, dir)
		if err != nil {
			return err
		}
		if pending {
			return fault.New(fault.Corrupt, "REPAIR_UNFINISHED",
				"DATA_DIR: a repair of %s is under way, or was cut short: wait for it, or run `archived repair` again, which ends it", dir).InField("DATA_DIR")
		}
	}
	return nil
}

// knownLost notes which of the lost files were known to be.
func (r *archiveRepair) knownLost() {
	for i, f := range r.report.Files.Lost {
		r.report.Files.Lost[i].Known = slices.ContainsFunc(r.report.Records.Files, func(k archive.RepairFile) bool { return k.SHA256 == f.SHA256 && k.Known })
	}
}

// outcome is the end of a repair that was done: whole, or not any more. What was
// lost before is told, and was settled then.
func (r *archiveRepair) outcome() error {
	records := r.report.Records
	if records.Clean() && !slices.ContainsFunc(r.report.Files.Lost, func(f fileOutput) bool { return !f.Known }) {
		return nil
	}
	if records.Behind() && len(records.Lost)+len(records.LeftOut) == 0 {
		return &serve.ExitError{Code: serve.ExitDamaged, Err: fmt.Errorf("archived: this archive has told more than is left of it (seq %d, of %d): make a backup of it, and of that a new generation with `archived restore`", records.Seq, records.HeardSeq)}
	}
	lost := map[wire.Digest]bool{}
	for _, f := range r.report.Files.Lost {
		if !f.Known {
			lost[f.SHA256] = true
		}
	}
	for _, f := range records.Files {
		if f.Lost && !f.Known {
			lost[f.SHA256] = true
		}
	}
	return &serve.ExitError{Code: serve.ExitDamaged, Err: fmt.Errorf("archived: %d records and %d files are lost, %d records were left out: nobody who could be asked has them; the report names them. If an archive that has them comes back, run the repair again",
		len(records.Lost), len(lost), len(records.LeftOut))}
}

// write tells people, or programs, what was done.
func (r *archiveRepair) write(out io.Writer) error {
	if r.JSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r.report)
	}
	w := repairWriter{out: out}
	if r.DryRun {
		w.would = "would be "
	}
	w.damages(r.report)
	w.files(r.report)
	w.records(r.report.Records)
	w.summary(r.cfg.DataDir, r.report)
	return w.err
}
