package archive

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

const (
	maxLeasesFile = 1 << 10 // bytes
	leasesFormat  = "verae-leases/1 %d\n"
	// unknownLease is taken for the lease that a damaged file named, unless that of
	// the configuration is longer.
	unknownLease = time.Minute
)

// leasesPath is a file that is there from before the first lease on the filter views
// is given until the archive is closed with none out. It has the length of a lease in
// milliseconds: for so long the next start takes no records if it finds it.
func (c Config) leasesPath() string { return c.FS.PathJoin(c.Dir, "leases") }

// leases is the file of leases, as far as this process is concerned with it.
type leases struct {
	mu    sync.Mutex
	found time.Duration // the lease that the file named at the start
	noted bool          // it was written since, and names a lease as long or longer
}

// find reads what the last process left: 0 if it had no leases out.
func (l *leases) find(c Config) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := pebblex.ReadFile(c.FS, c.leasesPath(), maxLeasesFile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		l.found, err = parseLeases(text)
	}
	if err != nil {
		l.found = max(unknownLease, c.Lease)
		c.Log.Error("the file of leases can not be read, and its lease is taken to be a long one", "path", c.leasesPath(), "lease", l.found, "err", err)
	}
	return l.found, nil
}

func leasesText(lease time.Duration) string {
	return fmt.Sprintf(leasesFormat, (lease + time.Millisecond - 1).Milliseconds())
}

func parseLeases(text []byte) (time.Duration, error) {
	var ms int64
	if _, err := fmt.Sscanf(string(text), leasesFormat, &ms); err != nil {
		return 0, fmt.Errorf("archive: %d bytes are no file of leases: %w", len(text), err)
	}
	lease := time.Duration(ms) * time.Millisecond
	if ms <= 0 || lease/time.Millisecond != time.Duration(ms) || leasesText(lease) != string(text) {
		return 0, fmt.Errorf("archive: a file of leases of %d ms", ms)
	}
	return lease, nil
}

// note makes durable that leases may be out, before the first of them is.
func (l *leases) note(c Config) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// What was found may be longer, and is not over yet.
	if err := l.writeLeases(c, max(c.Lease, l.found)); err != nil {
		return fault.New(fault.Transient, "LEASE_FILE", "archive: it can not be noted that aggregators rely on the filter: %w", err)
	}
	l.noted = true
	return nil
}

func (l *leases) writeLeases(c Config, lease time.Duration) error {
	return pebblex.WriteFile(c.FS, c.leasesPath(), []byte(leasesText(lease)), markPerm)
}

// over says that those are over that the last process had out. The file goes, or is
// about those of this process alone if there are any.
func (l *leases) over(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.noted:
		l.removeLeases(c)
	case l.found > c.Lease:
		if err := l.writeLeases(c, c.Lease); err != nil {
			c.Log.Warn("the start after a crash waits for leases that are over", "path", c.leasesPath(), "lease", l.found, "err", err)
			return
		}
		l.found = 0
	}
}

// forget removes the file, if there is one.
func (l *leases) forget(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLeases(c)
}

// removeLeases removes the file, if there is one. What fails costs the next start some
// time. mu is held.
func (l *leases) removeLeases(c Config) {
	if l.found == 0 && !l.noted {
		return
	}
	err := c.FS.Remove(c.leasesPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Log.Warn("the next start waits for leases that are over", "path", c.leasesPath(), "err", err)
		return
	}
	l.found, l.noted = 0, false
}

// giveBack sees to the file of leases when those are over that the last process had
// out.
func (n *Node) giveBack() {
	if n.health.failure() == nil {
		n.leases.over(n.cfg)
	}
}

// closeLeases removes the file of leases at the end, if none are out.
func (n *Node) closeLeases() {
	if n.cfg.Lease >= 0 && n.unsettled() == nil && n.feed.Idle() {
		n.leases.forget(n.cfg)
	}
}
