package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/archive"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/receipts"
)

// Values of MIRRORS.
const mirrorsOff = "off"

// Values of QUERY_MODE: who gets a query.
const (
	queryBroadcast = "broadcast" // every archive
	queryDirected  = "directed"  // those of which an answer is expected, alone
)

// manyArchives is from how many enrolled archives on auto is directed, however many
// are asked. With few a broadcast is one message, and costs an archive that has nothing
// a look into its filter.
const manyArchives = 17

// direct is receipts.Gatherer.Direct.
func (c *Aggregator) direct() int {
	switch c.QueryMode {
	case queryBroadcast:
		return 0
	case queryDirected:
		return 1
	}
	return manyArchives
}

// startMirrors begins to mirror the filters of the archives, if this aggregator has
// their key.
func (a *aggregator) startMirrors() error {
	if a.Mirrors == mirrorsOff {
		return nil
	}
	if a.FilterKeyFile == "" {
		a.log.Warn("every lookup with attachments waits for the answers of all archives, and takes the whole wait while one of them hangs: set FILTER_KEY_FILE to the filter key of the archives, so that their filters are mirrored")
		return nil
	}
	secret, err := archive.ReadFilterKey(a.FilterKeyFile)
	if err != nil {
		return err
	}
	mirrors, err := bus.Follow(a.conn, a.roster, bus.MirrorConfig{Secret: secret, MaxBytes: a.mirrorBytes(), Log: a.log})
	if err != nil {
		return err
	}
	a.mirrors = mirrors
	return a.stack.Push("mirrors", busLimit, func(context.Context) error { return mirrors.Close() })
}

// silences are the mirrors as a gathering asks them; nil where there are none.
func (a *aggregator) silences() receipts.Mirrors {
	if a.mirrors == nil {
		return nil
	}
	return a.mirrors
}

// mirrorMetrics tell how the mirrors are. Of none there is nothing to tell.
func (a *aggregator) mirrorMetrics() []prometheus.Collector {
	if a.mirrors == nil {
		return nil
	}
	return a.mirrors.Metrics()
}
