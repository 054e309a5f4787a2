package daemon

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How an archive that has started asks the others what they remember of it.
const (
	askPause    = bus.HelloInterval // between looks at who is heard
	maxAskPause = time.Minute       // when nobody answers, however often
)

// remembering are the others, as an archive asks them about itself.
type remembering interface {
	Alive() []wire.ArchiveID
	Remembered(ctx context.Context, id wire.ArchiveID) ([]wire.Remembered, error)
}

// askedAbout is an archive that is told what others remember of it.
type askedAbout interface {
	Heard(list []wire.Remembered) error
}

// askOthers tells a node what the other archives, and an aggregator, remember of
// it: once when it has started, and again whenever one is heard that was not
// before. It asks as soon as it can: what an older copy signs meanwhile may take
// the place of what is remembered. It ends with ctx, and when the node is refuted;
// that nobody answers is no reason to stop.
func askOthers(ctx context.Context, id wire.ArchiveID, others remembering, node askedAbout, log *slog.Logger) {
	asked, first, pause := map[wire.ArchiveID]bool{}, true, askPause
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		alive := others.Alive()
		if !first && !slices.ContainsFunc(alive, func(a wire.ArchiveID) bool { return !asked[a] }) {
			continue
		}
		list, err := others.Remembered(ctx, id)
		if err == nil {
			err = node.Heard(list)
		}
		switch {
		case err == nil:
			first, pause = false, askPause
			for _, a := range alive {
				asked[a] = true
			}
		case fault.Is(err, fault.Corrupt):
			return // the node says so from now on
		case ctx.Err() == nil:
			pause = min(2*pause, maxAskPause)
			log.Info("this archive was not compared with what others remember of it; it is tried again", "after", pause, "err", err)
		}
	}
}
