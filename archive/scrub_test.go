package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// scrubbed is a closed archive with tables, records and files.
type scrubbed struct {
	t       *testing.T
	cfg     Config
	blobCfg blob.StoreConfig
}

func newScrubbed(t *testing.T, records, files int) *scrubbed {
	t.Helper()
	fs := vfs.NewMem()
	s := &scrubbed{t: t, cfg: mustDefaults(t, testConfig(fs, "archive-a"))}
	s.blobCfg = blob.StoreConfig{Dir: "blobs", FS: fs, Create: true, OnFatal: s.cfg.OnFatal}
	mustInit(t, s.cfg)
	s.open(func(n *Node, b *blob.Store) {
		for i := range records {
			mustPut(t, n, metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i)))
		}
		for i := range files {
			sums := addFile(t, b, fmt.Appendf(nil, "%d %s", i, strings.Repeat("bytes of a file ", 500*i)))
			r := fileRecord(bob, digest(fmt.Sprint("file ", i)))
			r.File = &wire.File{Name: "f", Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}
			mustPut(t, n, r)
		}
	})
	change(t, s.cfg, func(db *pebble.DB) { must1(t, db.Flush()) })
	return s
}

func addFile(t *testing.T, b *blob.Store, data []byte) blob.Sums {
	t.Helper()
	h := blob.NewHasher(blob.Default)
	_, err := h.Write(data)
	must1(t, err)
	sums := h.Sum()
	must1(t, b.Open("u", blob.Default))
	_, err = b.Write("u", 0, data)
	must1(t, err)
	_, err = b.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID)
	must1(t, err)
	return sums
}

// open opens both stores for the time of f.
func (s *scrubbed) open(f func(n *Node, b *blob.Store)) {
	s.t.Helper()
	b, err := blob.OpenStore(s.blobCfg)
	must1(s.t, err)
	s.blobCfg.Create = false
	c := s.cfg
	c.Files = b
	n := mustOpen(s.t, c)
	f(n, b)
	mustClose(s.t, n)
	must1(s.t, b.Close())
}

func (s *scrubbed) check() CheckReport {
	s.t.Helper()
	b, err := blob.OpenStore(s.blobCfg)
	must1(s.t, err)
	c := s.cfg
	c.Files = b
	r, err := CheckStopped(s.t.Context(), c, CheckOptions{Blobs: b})
	if (err != nil) != (r.Damages > 0) {
		s.t.Fatalf("%d damages and %v", r.Damages, err)
	}
	must1(s.t, b.Close())
	return r
}

// scrub runs a scrub for some time.
func (s *scrubbed) scrub(n *Node, b *blob.Store, rate int64, d time.Duration) ScrubStatus {
	s.t.Helper()
	k, err := NewScrub(n, ScrubConfig{Blobs: b, BytesPerSecond: rate})
	must1(s.t, err)
	k.rows = 8
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	must1(s.t, k.Run(ctx))
	return k.Status()
}

// TestScrubKeepsItsRate: a pass takes as long as its bytes do, and the next one
// begins an hour after it began.
func TestScrubKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000
		s := newScrubbed(t, 40, 4)
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{Blobs: b, BytesPerSecond: rate, Every: 24 * time.Hour})
			must1(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			began, ended := time.Now(), make(chan error)
			go func() { ended <- k.Run(ctx) }()
			for k.Status().Passes == 0 {
				time.Sleep(time.Second)
			}
			took, bytes := time.Since(began), k.Status().Last.Bytes
			if want := time.Duration(bytes) * time.Second / rate; took < want*8/10 || took > want*12/10 || bytes < 10_000 {
				t.Errorf("%d bytes at %d/s took %s", bytes, rate, took)
			}
			time.Sleep(23*time.Hour - took)
			if k.Status().Phase != phaseDone {
				t.Error("the next pass began early")
			}
			time.Sleep(2 * time.Hour)
			if st := k.Status(); st.Phase == phaseDone && st.Passes == 1 {
				t.Error("no second pass")
			}
			cancel()
			must1(t, <-ended)
		})
	})
}

// TestScrubGoesOnAfterARestart: an archive that never lives long enough for a
// pass completes one all the same, and reads nothing twice but what a step had
// begun.
func TestScrubGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 100, 12)
		var st ScrubStatus
		lives, phases := 0, map[string]bool{}
		for st.Passes == 0 {
			if lives++; lives > 1000 {
				t.Fatalf("no pass was completed: %+v", st)
			}
			s.open(func(n *Node, b *blob.Store) { st = s.scrub(n, b, 10_000, 4*time.Second) })
			phases[st.Phase] = true
		}
		whole := s.check()
		if last := st.Last; last.Found != 0 || last.Records != 112 || last.Files != 12 || last.Bytes > whole.Bytes*3/2 {
			t.Errorf("pass %+v, a check read %d bytes", *last, whole.Bytes)
		}
		if lives < 5 || len(phases) < 4 {
			t.Errorf("%d lives, that ended in %v", lives, phases)
		}
	})
}

// TestScrubRemembersWhileItRuns: a crash costs some seconds of it.
func TestScrubRemembersWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 300, 0)
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{BytesPerSecond: 1000})
			must1(t, err)
			k.rows = 8
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- k.Run(ctx) }()
			time.Sleep(3 * time.Minute)
			killed, err := n.loadScrub()
			if at := k.Status(); err != nil || killed.position == nil || at.Seq == 0 || killed.position.Seq+20 < at.Seq {
				t.Errorf("%+v at %d, %v", killed, at.Seq, err)
			}
			cancel()
			must1(t, <-ended)
		})
	})
}

// TestScrubBeginsAnewWithoutItsPlace: of another version, of another log, cut or
// gone, the file is as if it was not there.
func TestScrubBeginsAnewWithoutItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 100, 0)
		s.open(func(n *Node, b *blob.Store) { s.scrub(n, b, 1000, 30*time.Second) })
		text, err := pebblex.ReadFile(s.cfg.FS, s.cfg.scrubPath(), maxScrubFile)
		must1(t, err)
		for name, bad := range map[string]string{
			"version":  strings.Replace(string(text), `"version":1`, `"version":2`, 1),
			"archive":  strings.Replace(string(text), `"archive-a"`, `"archive-b"`, 1),
			"position": strings.Replace(string(text), `"position":{"version":2`, `"position":{"version":9`, 1),
			"log":      strings.Replace(string(text), `"end":100`, `"end":101`, 1),
			"cut":      string(text[:len(text)/2]),
			"nothing":  "",
		} {
			if bad == string(text) {
				t.Fatalf("%s: %s", name, text)
			}
			must1(t, pebblex.WriteFile(s.cfg.FS, s.cfg.scrubPath(), []byte(bad), scrubPerm))
			s.open(func(n *Node, b *blob.Store) {
				if k, err := NewScrub(n, ScrubConfig{}); err != nil || k.state.position != nil || k.state.Passes != 0 {
					t.Errorf("%s: %+v, %v", name, k, err)
				}
			})
		}
	})
}

// TestScrubFindsDamage: the archive is read-only at once, and again after a
// restart, until a check finds it whole.
func TestScrubFindsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 50, 2)
		flip := func() {
			data, err := s.cfg.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(tablesOf(t, s.cfg)[0])
			must1(t, err)
			data[len(data)/8] ^= 1
		}
		damaged := func(n *Node, k *Scrub) {
			t.Helper()
			if n.Hello().State != wire.StateReadonly || fault.CodeOf(n.Ready()) != "DAMAGED" || fault.CodeOf(k.Healthy()) != "DAMAGED" || gathered(t, k)["verae_scrub_damages"] == 0 {
				t.Errorf("%+v, %v, %v", n.Hello(), n.Ready(), k.Healthy())
			}
		}
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{Blobs: b})
			must1(t, err)
			if k.Healthy() != nil || n.Hello().State != wire.StateUp {
				t.Errorf("before: %v", k.Healthy())
			}
			flip()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must1(t, k.Run(ctx))
			flip()
			damaged(n, k)
			if st := k.Status(); st.Passes != 1 || st.Last.Damages == 0 || st.Last.First == "" || len(st.Last.Kept) == 0 {
				t.Errorf("%+v", st)
			}
		})
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{Blobs: b})
			must1(t, err)
			damaged(n, k)
		})
		if r := s.check(); r.Found > 0 {
			t.Fatal(listed(r))
		}
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{Blobs: b})
			must1(t, err)
			if st := k.Status(); k.Healthy() != nil || n.Hello().State != wire.StateUp || st.Passes != 2 {
				t.Errorf("after a clean check: %v, %+v", k.Healthy(), st)
			}
			if m := gathered(t, k); m["verae_scrub_damages"] != 0 || m["verae_scrub_passes"] != 2 || m["verae_scrub_age_seconds"] > 60 {
				t.Errorf("%v", m)
			}
		})
	})
}

// TestScrubOfFiles: the damage of a file is the file's only.
func TestScrubOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 5, 3)
		s.open(func(n *Node, b *blob.Store) {
			var path string
			must1(t, walkFiles(s.cfg.FS, "blobs/files", func(p string) { path = p }))
			data, err := s.cfg.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(path)
			must1(t, err)
			data[0] ^= 1
			k, err := NewScrub(n, ScrubConfig{Blobs: b})
			must1(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must1(t, k.Run(ctx))
			if k.Healthy() == nil || n.Hello().State != wire.StateUp || len(b.Damages()) != 1 || k.Status().Last.Damages != 1 {
				t.Errorf("%v, state %s, %v", k.Healthy(), n.Hello().State, b.Damages())
			}
		})
	})
}

func walkFiles(fs vfs.FS, dir string, f func(path string)) error {
	names, err := fs.List(dir)
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, statErr := fs.Stat(path)
		switch {
		case statErr != nil:
			err = errors.Join(err, statErr)
		case info.IsDir():
			err = errors.Join(err, walkFiles(fs, path, f))
		default:
			f(path)
		}
	}
	return err
}

// TestScrubEndsWithTheArchive: neither its context nor a closed store is an
// error.
func TestScrubEndsWithTheArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScrubbed(t, 5, 0)
		ended := make(chan error, 1)
		s.open(func(n *Node, b *blob.Store) {
			k, err := NewScrub(n, ScrubConfig{Blobs: b, BytesPerSecond: 100})
			must1(t, err)
			go func() { ended <- k.Run(t.Context()) }()
			time.Sleep(time.Second)
		})
		must1(t, <-ended)
		if _, err := s.cfg.FS.Stat(s.cfg.scrubPath()); errors.Is(err, os.ErrNotExist) {
			t.Error("the place was not written")
		}
	})
}

// gathered returns the values of a scrub's metrics.
func gathered(t *testing.T, k *Scrub) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(k.Metrics()...)
	families, err := r.Gather()
	must1(t, err)
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return values
}
