package daemon

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// neighbours are archives that begin to be heard at some time after the start,
// and what they remember.
type neighbours struct {
	began    time.Time
	heard    map[wire.ArchiveID]time.Duration // after began
	failures int                              // of the first questions
	asked    []time.Duration
	told     int
	refuted  bool // what the last of them remembers refutes the node
}

func (n *neighbours) Alive() (alive []wire.ArchiveID) {
	for id, after := range n.heard {
		if time.Since(n.began) >= after {
			alive = append(alive, id)
		}
	}
	return alive
}

func (n *neighbours) Remembered(context.Context, wire.ArchiveID) ([]wire.Remembered, error) {
	n.asked = append(n.asked, time.Since(n.began))
	if len(n.asked) <= n.failures {
		return nil, fault.New(fault.Transient, "TIMEOUT", "nobody answers")
	}
	return make([]wire.Remembered, len(n.Alive())), nil
}

func (n *neighbours) Heard(list []wire.Remembered) error {
	n.told = len(list)
	if n.refuted && len(list) == len(n.heard) {
		return fault.New(fault.Corrupt, "ROLLED_BACK", "it was rolled back")
	}
	return nil
}

// An archive asks when it has started and whenever another one is first heard,
// and goes on when nobody answers.
func TestOthersAreAskedWhenTheyAreHeard(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		others neighbours
		asked  []time.Duration
		told   int
	}{
		"alone":                 {neighbours{}, []time.Duration{500 * ms}, 0},
		"all are there":         {neighbours{heard: map[wire.ArchiveID]time.Duration{"b": 0, "c": 0}}, []time.Duration{500 * ms}, 2},
		"one comes later":       {neighbours{heard: map[wire.ArchiveID]time.Duration{"b": 0, "c": 5 * time.Minute}}, []time.Duration{500 * ms, 5 * time.Minute}, 2},
		"nobody answers yet":    {neighbours{heard: map[wire.ArchiveID]time.Duration{"b": 0}, failures: 3}, []time.Duration{500 * ms, 1500 * ms, 3500 * ms, 7500 * ms}, 1},
		"it is found out":       {neighbours{heard: map[wire.ArchiveID]time.Duration{"b": 0}, refuted: true}, []time.Duration{500 * ms}, 1},
		"it is found out later": {neighbours{heard: map[wire.ArchiveID]time.Duration{"b": 0, "c": time.Minute}, refuted: true}, []time.Duration{500 * ms, time.Minute}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				others := tc.others
				others.began = time.Now()
				askOthers(ctx, "a", &others, &others, slog.New(slog.DiscardHandler))
				if !slices.Equal(others.asked, tc.asked) || others.told != tc.told {
					t.Errorf("asked at %v and told of %d, want %v and %d", others.asked, others.told, tc.asked, tc.told)
				}
				if ended := ctx.Err() == nil; ended != others.refuted {
					t.Errorf("it ended early: %v", ended)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		others := neighbours{began: time.Now(), failures: 1000}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		askOthers(ctx, "a", &others, &others, slog.New(slog.DiscardHandler))
		if len(others.asked) < 55 || len(others.asked) > 70 {
			t.Errorf("asked %d times in an hour in which nobody answers", len(others.asked))
		}
	})
}
