package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
)

// checkReserve refuses a reserve that no disk has.
func (c *Common) checkReserve() error {
	if c.DiskReserve > 1<<62 {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "DISK_RESERVE: %d is out of range: no disk is that large", c.DiskReserve).InField("DISK_RESERVE")
	}
	return nil
}

// roomInterval is how often an archive that is open for reading only looks
// whether there is room to open it for writing.
const roomInterval = time.Second

// errReopen ends an archive that was opened read-only on a full disk, when there
// is room again.
var errReopen = errors.New("daemon: there is room to open the stores for writing")

// reopening calls serve again as long as it ends for errReopen. The process
// stays; only its stores and connections are opened anew.
func reopening(ctx context.Context, log *slog.Logger, serve func() error) error {
	for {
		err := serve()
		if !errors.Is(err, errReopen) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		log.Info("there is room on the disk again: the stores are opened for writing")
	}
}

// watchRoom is the task that ends with errReopen. It does nothing for stores that
// are open for writing: those go on by themselves.
func watchRoom(node *archive.Node, files *blob.Store) serve.Task {
	return serve.Task{Name: "room", Run: func(ctx context.Context) error {
		ctx, found := context.WithCancelCause(ctx)
		defer found(nil)
		err := every(ctx, roomInterval, func() {
			if node.Reopen() || files.Reopen() {
				found(errReopen)
			}
		})
		if errors.Is(context.Cause(ctx), errReopen) {
			return errReopen
		}
		return err
	}}
}

// addArchiveChecks adds what must be well before an archive takes records. Each
// says what is wrong and what to do; queries are answered in any case.
func addArchiveChecks(health *serve.Health, node *archive.Node, files *blob.Store) {
	health.Add(serve.Check{Name: "records", Func: func(context.Context) error { return node.Ready() }})
	health.Add(serve.Check{Name: "files", Func: func(context.Context) error { return files.Ready() }})
	health.Add(serve.Check{Name: "damage", Degraded: true, Func: func(context.Context) error {
		if n := damagedFiles(node, files); n > 0 {
			return fault.New(fault.Corrupt, "DAMAGED", "%d files are not what was stored: run archived check, then archived repair", n)
		}
		return nil
	}})
	health.Add(serve.Check{Name: "filter", Degraded: true, Func: func(context.Context) error { return filterTrouble(node.Stats()) }})
}

// damagedFiles returns how many files are damaged. Those that are known to be lost
// the archive counts elsewhere: nobody can do anything about them here.
func damagedFiles(node *archive.Node, files *blob.Store) (n int) {
	for _, d := range files.Damages() {
		if !node.FileLost(d.SHA256) {
			n++
		}
	}
	return n
}

// filterTrouble says what is wrong with a filter of an archive, whose answers are
// right nevertheless: nil if nothing is, else the worst.
func filterTrouble(s archive.Stats) error {
	for _, f := range s.Filters {
		if f.Denied > 0 {
			return fault.New(fault.Corrupt, "FILTER_DENIED", "the filter %s denied %d keys that are stored, and has been mended: test the memory of this machine", f.Name, f.Denied)
		}
	}
	for _, f := range s.Filters {
		if f.Suspect {
			return fault.New(fault.Transient, "FILTER_SUSPECT", "the filter %s lets through more than twice the absent keys that it should: somebody may know its key and search for them; give the archives another FILTER_KEY_FILE", f.Name)
		}
	}
	for _, f := range s.Filters {
		if f.Degraded {
			return fault.New(fault.Transient, "FILTER_DEGRADED", "the filter %s has more keys than its half of BLOOM_MAX_BYTES leaves room for, and sends more queries to the store with each: allow it more memory", f.Name)
		}
	}
	return nil
}

// disks are the disks that an aggregator's stores are on, often one.
type disks []*pebblex.Space

func watchDisks(reserve uint64, log *slog.Logger, dirs ...string) (list disks) {
	for _, dir := range dirs {
		list = append(list, pebblex.NewSpace(pebblex.SpaceConfig{Dir: dir, Reserve: reserve, Log: log}))
	}
	need := uint64(len(dirs)) * pebblex.RoomOf(pebblex.DefaultMemTableSize)
	if tight := list.tightest(); tight.Known && tight.Reserve < need {
		log.Warn("the disk reserve is smaller than what the stores may still write below it: when the disk is full they may fail", "reserve", tight.Reserve, "room", need)
	}
	return list
}

// full returns why one of them takes nothing new, or nil.
func (d disks) full() error {
	for _, disk := range d {
		if err := disk.Full(); err != nil {
			return err
		}
	}
	return nil
}

// metrics tell of the disk with the least room above its reserve.
func (d disks) metrics() []prometheus.Collector {
	gauge := func(name, help string, get func(pebblex.Usage) uint64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(get(d.tightest())) })
	}
	return []prometheus.Collector{
		gauge("verae_aggregator_disk_free_bytes", "Free bytes on the disk of the job store and the ledger; of two, the one that is fuller.", func(u pebblex.Usage) uint64 { return u.Free }),
		gauge("verae_aggregator_disk_reserve_bytes", "Free bytes on it below which no new submission is taken.", func(u pebblex.Usage) uint64 { return u.Reserve }),
	}
}

func (d disks) tightest() (tight pebblex.Usage) {
	for _, disk := range d {
		u := disk.Usage()
		if u.Known && (!tight.Known || u.Free+tight.Reserve < tight.Free+u.Reserve) {
			tight = u
		}
	}
	return tight
}
