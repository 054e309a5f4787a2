package archive

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// filterConfig is an archive that has the file of fileRecord.
func filterConfig(fs vfs.FS) Config {
	c := testConfig(fs, "archive-a")
	f := &files{}
	f.add(digest("bytes of the file"), digest("root"), digest("leaf"))
	c.Files = f
	return c
}

// recordAt is the record that the archives of these tests store as their i-th.
func recordAt(i int) wire.PutRecord {
	if i%7 == 3 {
		r := fileRecord(alice, digest(fmt.Sprint("file ", i)))
		r.Part = i
		return r
	}
	r := metadata(alice, digest(fmt.Sprint("subject ", i)), fmt.Sprintf(`{"n":%d}`, i))
	switch i % 7 {
	case 1:
		r.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeProofs}, {TenantID: wire.Public, Mode: wire.ModeFiles}}
	case 5:
		r.Kind = wire.KindPrivateMetadata
	}
	return r
}

// viewersOf returns who may see something of a record.
func viewersOf(r wire.PutRecord) (all []wire.TenantID) {
	all = append(all, r.TenantID)
	seen := wire.Record{Kind: r.Kind, TenantID: r.TenantID, ShareWith: r.ShareWith}
	for _, s := range r.ShareWith {
		if _, ok := wire.Visible(&seen, s.TenantID); ok {
			all = append(all, s.TenantID)
		}
	}
	return all
}

// deniesPair returns a viewer of a stored record who would be denied it, under its
// subject, its id, its file or one of the blocks, or "".
func deniesPair(n *Node, r wire.PutRecord, blocks ...[digestLen]byte) string {
	for _, at := range placesOf(&r, r.ID(), blocks) {
		for _, viewer := range viewersOf(r) {
			if n.views.set.TestHash(mirror.Pair(n.secret.Key, viewer, at.digest)) == bloom.Absent {
				return fmt.Sprintf("%s under %x", viewer, at.digest)
			}
		}
	}
	return ""
}

// filtered returns the image of an archive with so many records that was closed
// in order.
func filtered(t testing.TB, from image, records ...int) image {
	t.Helper()
	fs := vfs.FS(vfs.NewMem())
	if from != nil {
		fs = from.disk(t, "", nil)
	}
	c := filterConfig(fs)
	if from == nil {
		mustInit(t, c)
	}
	n := mustOpen(t, c)
	for _, i := range records {
		mustPut(t, n, recordAt(i))
	}
	mustClose(t, n)
	return readTree(t, fs, c.Dir)
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// with returns the image with what another has at paths that contain part.
func (m image) with(other image, part string) image {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(path string, _ []byte) bool { return strings.Contains(path, part) })
	for path, data := range other {
		if strings.Contains(path, part) {
			out[path] = data
		}
	}
	return out
}

func (m image) changed(path string, f func([]byte) []byte) image {
	out := maps.Clone(m)
	out[path] = f(bytes.Clone(out[path]))
	return out
}

// deniesNone asks for everything that the records are found under.
func deniesNone(t testing.TB, n *Node, records int) {
	t.Helper()
	for i := range records {
		r := recordAt(i)
		for _, d := range []wire.Digest{r.SHA256, wire.Digest(r.ID())} {
			if got := ask(t, n, alice, d); len(got) == 0 {
				t.Fatalf("record %d of %d is denied under %s", i, records, d)
			}
		}
		var blocks [][digestLen]byte
		if r.File != nil {
			blocks = [][digestLen]byte{digest("root"), digest("leaf")}
		}
		if who := deniesPair(n, r, blocks...); who != "" {
			t.Fatalf("record %d of %d is denied to %s", i, records, who)
		}
	}
	if records > 3 && (n.Absent(digest("root")) || n.Absent(digest("leaf")) || n.Absent(digest("bytes of the file"))) {
		t.Error("the file or a block of it is denied")
	}
}

const (
	snapshotPath = "data/filters/keys/snapshot"
	viewsPath    = "data/filters/views/snapshot"
)

// surelyAbsent reports whether the filter denies what is not there.
func (f *filter) surelyAbsent() bool {
	if f.name == "keys" {
		return f.n.Absent(digest("not there"))
	}
	_, perhaps := f.n.mayShow(alice, digest("not there"))
	return !perhaps
}

// TestFilterTable opens archives beside snapshots that are theirs, and such that
// are not. Nothing is denied while the filter is completed nor later, whatever is
// absent is denied in the end, and the next start has a complete filter at once.
func TestFilterTable(t *testing.T) {
	const records = 40
	half := filtered(t, nil, upTo(records/2)...)
	whole := filtered(t, half, upTo(records)[records/2:]...)
	other := filtered(t, half, func() (all []int) { // another history with as many records
		for i := range records / 2 {
			all = append(all, 1000+7*i)
		}
		return all
	}()...)
	stranger := filtered(t, nil, upTo(records)...)
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 4; return b }
	}
	for name, tc := range map[string]struct {
		image    image
		of       string // which filter the rest is of; empty: both. The other one is as it was left
		records  int
		file     bool   // whether the file of the records is there
		ready    bool   // when Open returns
		replayed uint64 // at least so many keys
		refused  uint64 // snapshots
		corrupt  uint64 // chunks
	}{
		"as it was left":             {whole, "", records, true, true, 0, 0, 0},
		"older":                      {whole.with(half, "filters/"), "", records, true, false, records, 0, 0},
		"older, file not here":       {whole.with(half, "filters/"), "", records, false, false, 0, 0, 0},
		"newer":                      {half.with(whole, "filters/"), "", records / 2, true, true, 0, 1, 0}, // the one before is used
		"of another history":         {whole.with(other, "filters/"), "", records, true, false, records, 1, 0},
		"of another archive":         {whole.with(stranger, "filter"), "", records, true, false, 0, 1, 0},
		"under another key":          {whole.with(stranger, "filter.key"), "", records, true, false, 0, 2, 0},
		"key damaged":                {whole.changed("data/filter.key", flip(5)), "", records, true, false, 0, 2, 0},
		"no key":                     {whole.with(nil, "filter.key"), "", records, true, false, 0, 2, 0},
		"no snapshot":                {whole.with(nil, "filters/"), "", records, true, false, 0, 0, 0},
		"header damaged":             {whole.changed(snapshotPath, flip(30)), "keys", records, true, false, records, 1, 0},
		"a chunk damaged":            {whole.changed(snapshotPath, flip(200)), "keys", records, true, true, 0, 0, 1},
		"header of views damaged":    {whole.changed(viewsPath, flip(30)), "views", records, true, false, records, 1, 0},
		"a chunk of views damaged":   {whole.changed(viewsPath, flip(200)), "views", records, true, true, 0, 0, 1},
		"no views":                   {whole.with(nil, "filters/views"), "views", records, true, false, 0, 0, 0},
		"views older":                {whole.with(half, "filters/views"), "views", records, true, false, records, 0, 0},
		"views newer":                {half.with(whole, "filters/views"), "views", records / 2, true, true, 0, 1, 0},
		"views of another history":   {whole.with(other, "filters/views"), "views", records, true, false, records, 1, 0},
		"views of another archive":   {whole.with(stranger, "filters/views"), "views", records, true, false, 0, 1, 0},
		"keys in the place of views": {whole.changed(viewsPath, func([]byte) []byte { return whole[snapshotPath] }), "views", records, true, false, records, 1, 0},
		"views in the place of keys": {whole.changed(snapshotPath, func([]byte) []byte { return whole[viewsPath] }), "keys", records, true, false, records, 1, 0},
		"nothing stored":             {filtered(t, nil), "", 0, true, false, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := filterConfig(tc.image.disk(t, "", nil))
			if !tc.file {
				c.Files = &files{}
			}
			n, err := Open(c)
			must1(t, err)
			if got := n.keys.set.Ready() && n.views.set.Ready(); tc.ready && !got {
				t.Error("the filters are not complete after Open")
			}
			deniesNone(t, n, tc.records)
			<-n.Loaded()
			deniesNone(t, n, tc.records)
			for _, f := range n.filters() {
				if !f.surelyAbsent() && f.corruptChunks.Load() == 0 {
					t.Errorf("%s denies nothing", f.name)
				}
				want, replayed := []uint64{tc.refused, tc.corrupt}, tc.replayed
				if tc.of != "" && tc.of != f.name {
					want, replayed = []uint64{0, 0}, 0
				}
				if got := []uint64{f.rejected.Load(), f.corruptChunks.Load()}; !slices.Equal(got, want) {
					t.Errorf("%s: refused and corrupt %v, want %v", f.name, got, want)
				}
				if got := f.replayed.Load(); tc.file && (got < replayed || (got == 0) != (replayed == 0)) {
					t.Errorf("%s: %d keys replayed, want %d", f.name, got, replayed)
				}
				if s := f.set.Stats(); s.Repaired > 0 {
					t.Errorf("%s: %d stored keys were denied", f.name, s.Repaired)
				}
				eventually(t, "the filter is not mended", func() bool { return !f.set.Stats().Damaged })
			}
			if !tc.file {
				mustClose(t, n) // it misses the file, and stores nothing
				return
			}
			mustPut(t, n, recordAt(tc.records))
			mustClose(t, n)
			n, err = Open(c)
			must1(t, err)
			defer mustClose(t, n)
			for _, f := range n.filters() {
				if !f.set.Ready() || f.replayed.Load() > 0 || f.covered.Load() != n.Seq() {
					t.Errorf("after a clean stop: %s: ready %v, %d keys replayed, stored up to %d of %d",
						f.name, f.set.Ready(), f.replayed.Load(), f.covered.Load(), n.Seq())
				}
				if !f.surelyAbsent() {
					t.Errorf("%s denies nothing", f.name)
				}
			}
			deniesNone(t, n, tc.records+1)
		})
	}
}

// A start after a clean stop that stores nothing writes no snapshot.
func TestAnUnchangedFilterIsNotStoredAgain(t *testing.T) {
	before := filtered(t, nil, upTo(10)...)
	after := filtered(t, before)
	for path, data := range before {
		if strings.Contains(path, "filter") && !bytes.Equal(after[path], data) {
			t.Errorf("%s has changed", path)
		}
	}
	if before[snapshotPath] == nil || before[viewsPath] == nil {
		t.Error("there is no snapshot")
	}
}

// A snapshot that is not to be believed and can not be removed keeps the archive
// from taking records, not from answering; it takes them when the disk is well.
func TestSnapshotThatStaysHoldsUpPuts(t *testing.T) {
	image := filtered(t, nil, upTo(10)...)
	disk := newFaultFS(image.with(filtered(t, nil, upTo(3)...), "filters/").disk(t, "", nil), -1, false)
	bad := true
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool {
		return bad && p.Op == faultfs.OpRemove && strings.Contains(p.Path, "filters")
	}, faultfs.ErrIO))
	n := mustOpen(t, filterConfig(disk))
	deniesNone(t, n, 10)
	_, err := n.Put(t.Context(), wire.Put{Record: recordAt(10)})
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "FILTER_STAYS" || !strings.Contains(err.Error(), "data/filters/keys") {
		t.Errorf("put: %v", err)
	}
	if h := n.Hello(); h.State != wire.StateReadonly || h.Reason != "FILTER_STAYS" {
		t.Errorf("hello: %s %s", h.State, h.Reason)
	}
	n.stop()
	n.background.Wait() // the rest is for this goroutine
	if err := n.tendOnce(t.Context()); fault.CodeOf(err) != "FILTER_STAYS" {
		t.Errorf("the disk is as it was: %v", err)
	}
	bad = false
	must1(t, n.tendOnce(t.Context()))
	mustPut(t, n, recordAt(10))
	mustClose(t, n)
	n = mustOpen(t, filterConfig(disk))
	defer mustClose(t, n)
	deniesNone(t, n, 11)
}

func TestFilterKeyIsFrozen(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	golden(t, "filter-key.v1", filterKeyText(key))
	text, err := os.ReadFile("testdata/filter-key.v1")
	must1(t, err)
	for _, good := range []string{string(text), string(text[:32]), " " + strings.ToUpper(string(text)) + "\n"} {
		if s, err := ParseFilterKey([]byte(good)); err != nil || s.Key != key || s.ID != idOfFilterKey(key) {
			t.Errorf("%q: %d, %v", good, s.ID, err)
		}
	}
	for i := range len(text) - 1 {
		bad := bytes.Clone(text)
		bad[i] ^= 2
		if _, err := ParseFilterKey(bad); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), string(text[:32])) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for _, bad := range []string{"", "0001", string(text) + "more", string(text[:31]), string(text[:32]) + "00", string(text[:32]) + " 1"} {
		if _, err := ParseFilterKey([]byte(bad)); fault.CodeOf(err) != "FILTER_KEY" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	second := NewFilterKey()
	if _, err := ParseFilterKey([]byte(string(text[:32]) + "\n" + second[:32])); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), second[:8]) {
		t.Errorf("two keys: %v", err)
	}
	if one, other := NewFilterKey(), NewFilterKey(); one == other {
		t.Error("two keys are one")
	}
}

// A filter of the fleet's key is used by whoever has it, and stands beside the
// archive's own no more.
func TestFleetKey(t *testing.T) {
	secret, err := ParseFilterKey([]byte(NewFilterKey()))
	must1(t, err)
	fs := vfs.NewMem()
	c := filterConfig(fs)
	c.Bloom.Secret = secret
	mustInit(t, c)
	n := mustOpen(t, c)
	mustPut(t, n, recordAt(0))
	mustClose(t, n)
	if _, err := fs.Stat(c.filterKeyPath()); !os.IsNotExist(err) {
		t.Errorf("the archive made a key of its own: %v", err)
	}
	n = mustOpen(t, c)
	if h := n.Hello().Filter; !h.Ready || n.keys.set.SecretID() != secret.ID || h.KeyID != fmt.Sprintf("%08x", secret.ID) {
		t.Errorf("%+v, key %d", h, n.keys.set.SecretID())
	}
	mustClose(t, n)
}

// eventually waits for what the background does.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	ctx := t.Context()
	for tick := time.NewTicker(time.Millisecond); !f(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
}

// A file that is no key, or that others can read, stops the start and is named;
// a good one gives the filter its key.
func TestFilterKeyFile(t *testing.T) {
	good := NewFilterKey()
	want, err := ParseFilterKey([]byte(good))
	must1(t, err)
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		why  string
	}{
		"good":           {good, 0o600, ""},
		"read-only":      {good, 0o400, ""},
		"group":          {good, 0o640, "chmod"},
		"world":          {good, 0o604, "chmod"},
		"no key":         {"secret", 0o600, "hex"},
		"empty":          {"", 0o600, "hex"},
		"changed":        {"f" + good[1:30] + "00" + good[32:], 0o600, "id"},
		"too long":       {strings.Repeat("0", maxFilterKey+1), 0o600, ""},
		"does not exist": {"", 0, "no such file"},
	} {
		path := filepath.Join(t.TempDir(), "filter.key")
		if tc.mode != 0 {
			must1(t, os.WriteFile(path, []byte(tc.text), tc.mode))
			must1(t, os.Chmod(path, tc.mode))
		}
		c := filterConfig(vfs.NewMem())
		c.FilterKeyFile = path
		c, err := c.withDefaults()
		if strings.HasPrefix(name, "good") || strings.HasPrefix(name, "read") {
			if err != nil || c.Bloom.Secret != want {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "FILTER_KEY" || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: %v", name, err)
		}
		if err := Init(Config{Dir: "new", FS: vfs.NewMem(), ID: "archive-a", FilterKeyFile: path}); fault.CodeOf(err) != "FILTER_KEY" {
			t.Errorf("%s: init: %v", name, err)
		}
	}
}
