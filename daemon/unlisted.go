package daemon

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Values of UNLISTED_ARCHIVES: how the aggregator knows whether an archive that
// is not enrolled may be listening, whose silence means nothing.
const (
	unlistedAuto   = "auto"   // census where the aggregator embeds its server, else wait
	unlistedCensus = "census" // the embedded server knows who listens
	unlistedWait   = "wait"   // there may always be one
	unlistedNone   = "none"   // the operator says that there are none
)

// checkUnlisted refuses a census of a server that is not this program's own.
func (c *Aggregator) checkUnlisted() error {
	if c.UnlistedArchives == unlistedCensus && c.NATSURL != "" {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "UNLISTED_ARCHIVES: census asks the embedded NATS server, and NATS_URL names another: set wait, or none if all archives are enrolled").InField("UNLISTED_ARCHIVES")
	}
	return nil
}

// unlisted returns what a gathering asks about archives that are not enrolled.
func (a *aggregator) unlisted() func() bool {
	mode := a.UnlistedArchives
	switch {
	case mode == unlistedNone:
		return nil
	case mode == unlistedWait || a.nats == nil:
		a.log.Warn("every lookup with attachments takes the whole wait and says that it is not complete: an archive that is not enrolled may be listening. If there is none, set UNLISTED_ARCHIVES=none", "wait_archive_ms", a.WaitArchive)
		return func() bool { return true }
	}
	a.census = &census{server: a.nats, roster: a.roster, log: a.log}
	return a.census.unlisted
}

// A census finds out who listens for queries without being enrolled. It is taken
// anew when a subscription came or went, or the roster changed, and else kept.
type census struct {
	server interface {
		Listeners(subject string) (list []server.Listener, whole bool, err error)
		Version() (uint64, error)
	}
	roster interface {
		Knows(id wire.ArchiveID) bool
		Version() uint64
	}
	log *slog.Logger

	mu    sync.Mutex // guards all below
	taken bool
	at    [2]uint64 // versions of server and roster that it was taken at
	count int       // unlisted listeners; uncounted: nobody knows
	shown string    // what was logged last
}

// uncounted is the count of a census that could not be taken.
const uncounted = -1

// unlisted reports whether an archive that is not enrolled may be listening now.
func (c *census) unlisted() bool { return c.take() != 0 }

// take returns how many listeners are not enrolled archives, or uncounted.
func (c *census) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, err := c.server.Version() // before the look: what changes during it is seen by the next
	at := [2]uint64{version, c.roster.Version()}
	if err == nil && c.taken && c.at == at {
		return c.count
	}
	list, whole, err2 := c.server.Listeners(wire.SubjectQuery)
	if err == nil {
		err = err2
	}
	c.taken, c.at = err == nil, at
	list = slices.DeleteFunc(list, c.enrolled)
	c.count = len(list)
	if err != nil || !whole {
		c.count = uncounted
	}
	c.show(list, err)
	return c.count
}

// enrolled reports whether a listener is an archive that the roster knows, which
// is expected to answer, or was retired. It goes by the name that a connection
// gave itself: whoever takes an archive's name is that archive's trouble.
func (c *census) enrolled(l server.Listener) bool {
	role := bus.RoleOf(l.Name)
	return role != "" && c.roster.Knows(wire.ArchiveID(role))
}

// maxShown is how many listeners one line of the log names.
const maxShown = 8

// show logs what changed for whoever looks up.
func (c *census) show(list []server.Listener, err error) {
	var names []string
	for _, l := range list[:min(len(list), maxShown)] {
		names = append(names, strings.TrimSpace(l.Name+" "+l.Addr)+" on "+l.Subject)
	}
	now := strings.Join(names, ", ")
	if c.count == uncounted {
		now = "unknown"
	}
	if now == c.shown {
		return
	}
	switch {
	case c.count == uncounted:
		c.log.Warn("nobody knows who listens for queries: every lookup with attachments takes the whole wait and is not complete", "err", err)
	case c.count > 0:
		c.log.Warn("somebody who is not an enrolled archive listens for queries: while this lasts every lookup with attachments takes the whole wait and is not complete", "count", c.count, "listeners", now)
	default:
		c.log.Info("only enrolled archives listen for queries")
	}
	c.shown = now
}

// metrics tell how many there are. Of no census there is nothing to tell.
func (c *census) metrics() []prometheus.Collector {
	if c == nil {
		return nil
	}
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verae_aggregator_unlisted_listeners",
		Help: "Subscriptions to queries that are not of enrolled archives, with UNLISTED_ARCHIVES=census: while there is one no lookup is complete. -1: nobody knows.",
	}, func() float64 { return float64(c.take()) })}
}
