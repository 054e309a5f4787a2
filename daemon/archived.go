package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bloom"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// Archived is the configuration of one archive.
type Archived struct {
	Common    `embed:""`
	ArchiveID string `env:"ARCHIVE_ID" help:"Name of this archive: up to 32 of a-z, 0-9 and '-'. It is part of subjects and receipts and never changes: a directory of another archive is refused."`

	PutCopies      int           `env:"PUT_COPIES" default:"2" help:"Copies that the fleet keeps of a record. An archive needs it for puts that nobody placed, and to see which records have too few."`
	BloomKeys      uint64        `env:"BLOOM_KEYS" default:"1000000" help:"Keys that each of the two filters is first sized for; they grow. About 2 bytes each."`
	BloomErrorRate float64       `env:"BLOOM_ERROR_RATE" default:"0.001" help:"Share of absent keys that each filter lets through: 0.000001 to 0.5."`
	BloomMaxBytes  uint64        `env:"BLOOM_MAX_BYTES" default:"0" help:"Most memory, in bytes, for the two filters together, half for each, which needs 2 to 4 a key and half as much again while it is rebuilt. With less it lets more queries through to the store, and denies nothing. 0: a quarter of the memory that the process may have by GOMEMLIMIT or its control group; without those no limit."`
	FilterKeyFile  string        `env:"FILTER_KEY_FILE" help:"File with the key of the filters of all archives, which nobody but its owner may read: 32 hex digits, as openssl rand -hex 16 makes them. With another key the filter is built anew at the next start. Empty: the archive makes a key of its own."`
	UploadIdle     int           `name:"upload-idle-s" env:"UPLOAD_IDLE_S" default:"60" help:"Seconds after which an upload whose sender is silent is removed."`
	LeaseMS        int           `name:"lease-ms" env:"LEASE_MS" default:"2000" help:"Milliseconds that an aggregator may rely on its mirror of the filter without a word from the archive: so long puts wait for one that died, and so long the archive takes no records after a start that follows a crash, or a restore."`
	HTTPAddr       string        `name:"archive-http-addr" env:"ARCHIVE_HTTP_ADDR" help:"host:port at which the archive serves /ipfs/ to whoever has a signed URL, and to nobody else. Port 0 takes a free one and logs it. Empty: it serves no HTTP."`
	URLKeys        string        `name:"url-keys" env:"URL_KEYS" help:"Ed25519 public keys, in standard base64 and separated by commas, of the aggregators whose signed URLs are served: each logs its own as urlKey."`
	WitnessLedgers string        `env:"WITNESS_LEDGERS" help:"Verifier keys (name+hash+base64), separated by commas, of the ledgers whose checkpoints this archive cosigns. Empty: whoever shows one first under a name, for ever."`
	ReconcileEvery time.Duration `env:"RECONCILE_EVERY" default:"24h" help:"How long after one reconciliation the archive begins the next: it looks for records with too few live copies and has them copied. 0 turns that off."`
	ReconcileRate  int           `name:"reconcile-records-per-s" env:"RECONCILE_RECORDS_PER_S" default:"1000" help:"Records a second that such a reconciliation goes through. One that somebody asked for goes as fast as it can. 0: so do all."`
	ScrubRate      int64         `name:"scrub-bytes-per-s" env:"SCRUB_BYTES_PER_S" default:"4194304" help:"Bytes a second at which the archive reads all that it keeps, over and over, to find damage before somebody asks for it. 0 turns that off: then archived check has to be run."`
	MaxFile        int64         `name:"max-file-bytes" env:"MAX_FILE_BYTES" default:"17179869184" help:"Largest file, in bytes."`
}

// Check refuses values that the archive can not work with.
func (c *Archived) Check() error {
	if _, err := wire.ParseArchiveID(c.ArchiveID); err != nil {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "ARCHIVE_ID: %w", err).InField("ARCHIVE_ID")
	}
	if c.BloomErrorRate < bloom.MinErrorRate || c.BloomErrorRate > bloom.MaxErrorRate {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "BLOOM_ERROR_RATE: %g is out of range: %g to %g", c.BloomErrorRate, bloom.MinErrorRate, bloom.MaxErrorRate).InField("BLOOM_ERROR_RATE")
	}
	if err := c.checkReserve(); err != nil {
		return err
	}
	switch keys, err := parseURLKeys(c.URLKeys); {
	case err != nil:
		return err
	case c.HTTPAddr != "" && len(keys) == 0:
		return fault.New(fault.Invalid, "MISSING", "URL_KEYS: ARCHIVE_HTTP_ADDR serves signed URLs alone, and nobody is named whose signature counts").InField("URL_KEYS")
	}
	if c.ScrubRate < 0 {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "SCRUB_BYTES_PER_S: %d is below 0, which turns the scrub off", c.ScrubRate).InField("SCRUB_BYTES_PER_S")
	}
	if c.ReconcileEvery < 0 {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "RECONCILE_EVERY: %s is below 0, which turns it off", c.ReconcileEvery).InField("RECONCILE_EVERY")
	}
	if c.ReconcileRate < 0 {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "RECONCILE_RECORDS_PER_S: %d is below 0, which means no limit", c.ReconcileRate).InField("RECONCILE_RECORDS_PER_S")
	}
	if c.LeaseMS > wire.MaxLeaseMs {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "LEASE_MS: %d is out of range: it must be at most %d", c.LeaseMS, wire.MaxLeaseMs).InField("LEASE_MS")
	}
	for name, v := range map[string]int64{"PUT_COPIES": int64(c.PutCopies), "UPLOAD_IDLE_S": int64(c.UploadIdle), "LEASE_MS": int64(c.LeaseMS), "MAX_FILE_BYTES": c.MaxFile} {
		if err := positive(name, v); err != nil {
			return err
		}
	}
	return nil
}

// Parts of an archive's directory.
const (
	dirRecords = "records"
	dirFiles   = "files"
)

// InitArchive makes the directory of a new archive. It fails if there is
// anything at DataDir.
func InitArchive(c Archived, log *slog.Logger) error {
	if err := c.Check(); err != nil {
		return err
	}
	return create(c.DataDir, func(dir string) error {
		c.DataDir = dir
		files, err := blob.OpenStore(c.fileConfig(log, true))
		if err != nil {
			return err
		}
		if err := files.Close(); err != nil {
			return err
		}
		return archive.Init(c.recordConfig(log, nil))
	})
}

func (c *Archived) fileConfig(log *slog.Logger, create bool) blob.StoreConfig {
	return blob.StoreConfig{
		Dir: filepath.Join(c.DataDir, dirFiles), Create: create, Owner: c.ArchiveID, DiskReserve: c.DiskReserve, MaxFileSize: c.MaxFile,
		Log: log, OnFatal: exitOnFatal(log),
	}
}

func (c *Archived) recordConfig(log *slog.Logger, files archive.Files) archive.Config {
	return archive.Config{
		Dir: filepath.Join(c.DataDir, dirRecords), ID: wire.ArchiveID(c.ArchiveID), Files: files,
		Bloom:         bloom.Params{Capacity: c.BloomKeys, ErrorRate: c.BloomErrorRate, MaxBytes: c.filterBytes()},
		FilterKeyFile: c.FilterKeyFile, DiskReserve: c.DiskReserve,
		Lease: time.Duration(c.LeaseMS) * time.Millisecond, Log: log, OnFatal: exitOnFatal(log),
	}
}

// exitOnFatal ends the process when a store can not go on: what it wrote last
// may or may not be on disk, and only opening it again can tell.
func exitOnFatal(log *slog.Logger) func(string) {
	return func(reason string) {
		log.Error("a store failed; the process ends so that opening it again decides what is on disk", "reason", reason)
		os.Exit(serve.ExitStoreFailed)
	}
}

// RunArchive runs an archive until ctx ends.
func RunArchive(ctx context.Context, c Archived, log *slog.Logger, level *slog.LevelVar) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.NATSURL == "" {
		return fault.New(fault.Invalid, "MISSING", "NATS_URL: an archive needs the URL of a NATS server").InField("NATS_URL")
	}
	if err := c.unfinishedRepair(); err != nil {
		return err
	}
	if err := mustExist(c.DataDir, dirRecords, "archived"); err != nil {
		return err
	}
	return reopening(ctx, log, func() error { return serveArchive(ctx, c, log, level) })
}

// serveArchive runs an archive with its stores as they open now.
func serveArchive(ctx context.Context, c Archived, log *slog.Logger, level *slog.LevelVar) error {
	stack := &serve.Stack{Log: log}
	var running Running
	tasks, err := starting(ctx, func() ([]serve.Task, error) { return startArchive(ctx, c, log, level, stack, &running) })
	if err != nil {
		return closeAfter(stack, err)
	}
	log.Info("the archive serves", "archive", c.ArchiveID, "dir", c.DataDir, "version", serve.Version().String())
	if err := c.announceReady(running); err != nil {
		return closeAfter(stack, err)
	}
	return stack.Run(ctx, tasks...)
}

func startArchive(ctx context.Context, c Archived, log *slog.Logger, level *slog.LevelVar, stack *serve.Stack, running *Running) ([]serve.Task, error) {
	files, err := blob.OpenStore(c.fileConfig(log, false))
	if err != nil {
		return nil, err
	}
	if err := stack.Push("files", storeLimit, func(context.Context) error { return files.Close() }); err != nil {
		return nil, err
	}
	node, err := archive.Open(c.recordConfig(log, files))
	if err != nil {
		return nil, err
	}
	if err := stack.Push("records", storeLimit, func(context.Context) error { return node.Close() }); err != nil {
		return nil, err
	}
	conn, err := bus.Connect(bus.Config{URL: c.NATSURL, Name: c.ArchiveID, NKeyFile: c.NKeyFile, Log: log})
	if err != nil {
		return nil, err
	}
	if err := stack.Push("bus", busLimit, conn.Drain); err != nil {
		return nil, err
	}
	witness, witnessMetrics, err := c.witness(node, log)
	if err != nil {
		return nil, err
	}
	service, err := bus.ServeArchive(conn, node, files, bus.ArchiveConfig{Copies: c.PutCopies, Witness: witness, Log: log})
	if err != nil {
		return nil, err
	}
	if err := stack.Push("service", serviceLimit, service.Drain); err != nil {
		return nil, err
	}
	health := &serve.Health{}
	addArchiveChecks(health, node, files)
	health.Add(serve.Check{Name: "bus", Func: func(context.Context) error { return connected(conn) }})
	copyMetrics, err := c.startCopies(conn, service, node, files, log, stack, health)
	if err != nil {
		return nil, err
	}
	scrub, scrubMetrics, err := c.startScrub(node, files, log, health)
	if err != nil {
		return nil, err
	}
	door, url, err := c.startFiles(node, files, log, stack)
	if err != nil {
		return nil, err
	}
	running.HTTPURL = url
	admin, err := c.admin(log, level, stack, health, c.backupOrders(node, files), node.Metrics(), fileMetrics(node, files), conn.Metrics(), service.Metrics(), witnessMetrics, copyMetrics, scrubMetrics)
	if err != nil {
		return nil, err
	}
	sweep := serve.Task{Name: "sweep", Run: func(ctx context.Context) error {
		return every(ctx, sweepInterval, func() {
			if n, err := files.Sweep(time.Duration(c.UploadIdle) * time.Second); n > 0 || err != nil {
				log.Warn("uploads whose senders are silent were removed", "uploads", n, "err", err)
			}
		})
	}}
	return append(door, admin, sweep, scrub, watchBus(ctx, conn), watchRoom(node, files)), nil
}

// sweepInterval is how often idle uploads are looked for.
const sweepInterval = 5 * time.Second

// fileMetrics are the collectors of a file store, which itself knows no
// metrics library.
func fileMetrics(node *archive.Node, s *blob.Store) []prometheus.Collector {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "verae", Subsystem: "blob", Name: name, Help: help}
	}
	gauge := func(name, help string, get func(blob.Stats) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), func() float64 { return float64(get(s.Stats())) })
	}
	counter := func(name, help string, get func(blob.Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts(opts(name, help)), func() float64 { return float64(get(s.Stats())) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("disk_free_bytes", "Free bytes on the disk of the files; 0 if it does not tell.")), func() float64 { return float64(s.Disk().Free) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("disk_reserve_bytes", "Free bytes below which no more files are stored.")), func() float64 { return float64(s.Disk().Reserve) }),
		gauge("open_uploads", "Uploads under way.", func(s blob.Stats) int { return s.OpenUploads }),
		gauge("damaged_files", "Files known to be damaged.", func(blob.Stats) int { return damagedFiles(node, s) }),
		counter("received_bytes_total", "Bytes of uploads, whatever became of them.", func(s blob.Stats) uint64 { return s.BytesReceived }),
		counter("commits_total", "Files committed.", func(s blob.Stats) uint64 { return s.Commits }),
		counter("duplicates_total", "Commits of files that were there.", func(s blob.Stats) uint64 { return s.Duplicates }),
		counter("leaves_verified_total", "Blocks hashed before they were served.", func(s blob.Stats) uint64 { return s.LeavesVerified }),
		counter("leaves_cached_total", "Blocks served from memory, hashed before.", func(s blob.Stats) uint64 { return s.LeavesCached }),
	}
}
