package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
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

// awaitThat waits until cond holds.
func awaitThat(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not: %s", what)
		}
	}
}

// Law 8, over a real server: an archive comes back as an older copy of its whole
// directory, mark and all, and no aggregator has a memory of it. The other archive
// has, so that an aggregator which begins anew does not take it for whole.
func TestLaw8RolledBackArchiveIsFoundByTheOthers(t *testing.T) {
	a := newArchivedDir(t)
	a.fill(3)
	path, older := a.dir, filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	a.fill(3)
	var newest string
	a.open(func(node *archive.Node, _ *blob.Store) { newest = node.Checkpoint() })
	a.bus()
	b := &archivedDir{t: t, dir: filepath.Join(t.TempDir(), "b"), nats: a.nats}
	b.command(0, "init", "--archive-id", "archive-b")
	b.run("--archive-id", "archive-b")
	a.run()

	conn, err := bus.Connect(bus.Config{URL: a.nats, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	peers, err := bus.NewPeers(conn, bus.PeersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peers.Close)
	awaitThat(t, "the other archive remembers it", func() bool {
		list, err := peers.Remembered(t.Context(), "archive-a")
		return err == nil && slices.ContainsFunc(list, func(r wire.Remembered) bool { return r.By == "archive-b" && r.Checkpoint == newest })
	})

	a.stop()
	a.dir = older
	if out := a.command(0, "check"); !strings.Contains(out, "archive-a") {
		t.Errorf("the older copy by itself: %s", out)
	}
	awaitThat(t, "the repair hears and asks the other archive", func() bool {
		code, out := a.ends(a.dir, "repair", "--dry-run")
		return code == 65 && (strings.Contains(out, "ROLLED_BACK") || strings.Contains(out, "older copy"))
	})
	a.run()
	roster, err := bus.OpenRoster(bus.RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { roster.Close() })
	if err := roster.Listen(conn); err != nil {
		t.Fatal(err)
	}
	awaitThat(t, "it is found out", func() bool {
		return slices.ContainsFunc(roster.Snapshot(), func(m bus.Member) bool {
			return m.ID == "archive-a" && m.State == wire.StateReadonly && m.Reason == "ROLLED_BACK"
		})
	})
	awaitThat(t, "its silence is doubted, and that of the other believed", func() bool {
		return roster.Doubted("archive-a") && !roster.Doubted("archive-b")
	})
	a.stop()
	a.dir = path
	a.run()
	awaitThat(t, "the right directory is taken for whole", func() bool {
		up := 0
		for _, m := range roster.Snapshot() {
			if m.State == wire.StateUp {
				up++
			}
		}
		return up == 2
	})
}
