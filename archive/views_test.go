package archive

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// manyBlocks are those of the file of sharedRecords.
func manyBlocks() (blocks [][32]byte) {
	for i := range 300 {
		blocks = append(blocks, digest(fmt.Sprint("block ", i)))
	}
	return blocks
}

// sharedRecords are records of every kind, shared with nobody, some and everybody,
// in every mode, and the blocks of the file that one of them is of.
func sharedRecords(t testing.TB) (records []wire.PutRecord, blocks map[wire.RecordID][][32]byte) {
	subject, blocks := digest("x"), map[wire.RecordID][][32]byte{}
	share := func(r wire.PutRecord, shares ...wire.Share) {
		r.ShareWith = shares
		records = append(records, r)
	}
	for i, mode := range []string{wire.ModeProofs, wire.ModeMetadata, wire.ModeFiles} {
		share(metadata(alice, subject, fmt.Sprintf(`{"n":%d}`, i)), wire.Share{TenantID: bob, Mode: mode})
		share(metadata(alice, digest(fmt.Sprint("own subject ", i)), `{}`), wire.Share{TenantID: carol, Mode: mode}, wire.Share{TenantID: bob, Mode: mode})
		share(metadata(alice, digest(fmt.Sprint("public ", i)), `{}`), wire.Share{TenantID: wire.Public, Mode: mode})
	}
	share(metadata(bob, subject, `{"whose":"bob"}`))
	private := metadata(alice, digest("private"), `{"n":"private"}`)
	private.Kind = wire.KindPrivateMetadata
	share(private)
	share(private, wire.Share{TenantID: bob, Mode: wire.ModeFiles})
	hold := control(t, alice, subject, wire.KindHold, 1, wire.Control{})
	share(hold)
	file := fileRecord(alice, subject)
	share(file, wire.Share{TenantID: bob, Mode: wire.ModeMetadata}, wire.Share{TenantID: carol, Mode: wire.ModeFiles})
	blocks[records[len(records)-1].ID()] = manyBlocks()
	return records, blocks
}

// viewsConfig is an archive that has the file of sharedRecords, with filters that
// are hardly ever wrong.
func viewsConfig(fs vfs.FS) Config {
	c := testConfig(fs, "archive-a")
	c.Bloom.Capacity = 1 << 14
	f := &files{}
	f.add(digest("bytes of the file"), manyBlocks()...)
	c.Files = f
	return c
}

// storedShared returns those of sharedRecords that the archive takes, stored.
func storedShared(t testing.TB, n *Node) (stored []wire.PutRecord, blocks map[wire.RecordID][][32]byte) {
	t.Helper()
	records, blocks := sharedRecords(t)
	for _, r := range records {
		if err := r.Check(); err != nil {
			t.Logf("%s shared with %d is no record: %v", r.Kind, len(r.ShareWith), err)
			continue
		}
		mustPut(t, n, r)
		stored = append(stored, r)
	}
	return stored, blocks
}

// TestLaw4NoPairIsDenied: whatever the shares and the kind of a record, the filter
// views lets each of its viewers through under each of its digests: when it was
// stored, when the filter was rebuilt, and after starts that read the filter, add
// what the log has more, or make it of the index. Whoever may not see it is denied,
// also if it is shared with him in a mode that does not admit it.
func TestLaw4NoPairIsDenied(t *testing.T) {
	fs := vfs.NewMem()
	c := viewsConfig(fs)
	mustInit(t, c)
	n := mustOpen(t, c)
	mustPut(t, n, metadata(alice, digest("first"), `{}`))
	mustClose(t, n)
	early := readTree(t, fs, c.Dir)
	n = mustOpen(t, c)
	records, blocks := storedShared(t, n)
	look := func(n *Node, when string) {
		t.Helper()
		for _, r := range records {
			if who := deniesPair(n, r, blocks[r.ID()]...); who != "" {
				t.Errorf("%s: %s of %s, shared %v, is denied to %s", when, r.Kind, r.TenantID, r.ShareWith, who)
			}
			viewers := viewersOf(r)
			for _, foreign := range []wire.TenantID{"dave", "erin", bob} {
				if _, perhaps := n.mayShow(foreign, wire.Digest(r.ID())); perhaps && !slices.Contains(viewers, foreign) && !slices.Contains(viewers, wire.Public) {
					t.Errorf("%s: %s of %s, shared %v, is let through to %s", when, r.Kind, r.TenantID, r.ShareWith, foreign)
				}
			}
		}
		if s := n.views.set.Stats(); !s.Ready || s.Repaired > 0 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	look(n, "stored")
	n.stop()
	n.background.Wait() // nobody else rebuilds it
	must1(t, n.views.rebuild(t.Context(), 1<<14, n.views.fill))
	look(n, "rebuilt")
	if _, err := n.Check(t.Context()); err != nil {
		t.Error(err)
	}
	look(n, "checked")
	mustClose(t, n)
	whole := readTree(t, fs, c.Dir)

	for when, disk := range map[string]image{
		"from a snapshot": whole,
		"from the log":    image(whole).with(early, "filters/views"),
		"from the index":  image(whole).with(nil, "filters/views"),
	} {
		c := viewsConfig(image(disk).disk(t, "", nil))
		n := mustOpen(t, c)
		look(n, when)
		mustClose(t, n)
	}
}

// visibleTo is what the store has for a viewer, without a look at the filters.
func visibleTo(t testing.TB, n *Node, viewer wire.TenantID, d wire.Digest) (ids []wire.RecordID, lost uint64) {
	t.Helper()
	records, lost, err := n.visible(t.Context(), d, viewer, new(sight), func(row) bool { return true })
	must1(t, err)
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids, lost
}

// TestLaw5ViewsChangeNoAnswer: with both filters everybody is answered what the
// store has for him, under every digest, also of lost records; what is not his is
// met with silence before the store is read, and counted as what is not there.
func TestLaw5ViewsChangeNoAnswer(t *testing.T) {
	c := viewsConfig(vfs.NewMem())
	mustInit(t, c)
	n := mustOpen(t, c)
	records, blocks := storedShared(t, n)
	mustClose(t, n)
	lose(t, c, 1, 3)
	must1(t, c.FS.RemoveAll("data/filters")) // as a repair does that loses records
	n = mustOpen(t, c)
	defer mustClose(t, n)
	answers, silences := 0, 0
	for _, viewer := range []wire.TenantID{alice, bob, carol, "dave"} {
		for _, r := range records {
			for _, at := range placesOf(&r, r.ID(), blocks[r.ID()][:min(3, len(blocks[r.ID()]))]) {
				want, lost := visibleTo(t, n, viewer, at.digest)
				reply, ok, err := n.Answer(t.Context(), query(viewer, at.digest))
				must1(t, err)
				var got []wire.RecordID
				for _, r := range reply.Records {
					got = append(got, r.ID)
				}
				if diff := cmp.Diff(want, got); diff != "" || reply.Lost != lost || ok != (len(want) > 0 || lost > 0) {
					t.Errorf("%s under %x: %v, %d lost, want %d\n%s", viewer, at.digest, ok, reply.Lost, lost, diff)
				}
				if answers++; !ok {
					silences++
				}
				_, found, err := n.FileOf(t.Context(), viewer, fileCID, at.digest)
				must1(t, err)
				if shown := at.roles&roleBlock != 0 && (viewer == alice || viewer == carol); found != shown {
					t.Errorf("%s gets the file of %x: %v", viewer, at.digest, found)
				}
			}
		}
	}
	if s := n.views.set.Stats(); s.Absent == 0 || s.FalsePositives > 0 || s.Confirmed == 0 {
		t.Errorf("%d answers, %d of them silence: %+v", answers, silences, s)
	}
}

// TestErrorRateOfViews: what was let through and read counts as found if something
// gives the pair, whatever of it is shown, and as a false positive only if nothing
// does; what was not read is not counted.
func TestErrorRateOfViews(t *testing.T) {
	n := newNode(t)
	lie := func(viewer wire.TenantID, subject wire.Digest) {
		n.views.set.AddHash(mirror.Pair(n.secret.Key, viewer, subject))
	}
	n.cfg.Files.(*files).add(digest("bytes of the file"), digest("root"))
	shared := func(i int, change func(*wire.PutRecord)) wire.Digest {
		r := fileRecord(alice, digest(fmt.Sprint("subject ", i)))
		r.Part = i
		change(&r)
		mustPut(t, n, r)
		return r.SHA256
	}
	for i, tc := range []struct {
		name           string
		viewer         wire.TenantID
		kinds          []wire.Kind
		change         func(*wire.PutRecord)
		lie            wire.TenantID
		confirm, wrong uint64
	}{
		{"his own", alice, nil, func(*wire.PutRecord) {}, "", 1, 0},
		{"shared", carol, nil, func(*wire.PutRecord) {}, "", 1, 0},
		{"shared, but not the file", bob, nil, func(*wire.PutRecord) {}, "", 0, 0},
		{"shared, but not the file, and let through", bob, nil, func(*wire.PutRecord) {}, bob, 0, 1},
		{"shared, of a kind that is not wanted", carol, []wire.Kind{wire.KindMetadata}, func(*wire.PutRecord) {}, "", 0, 0},
		{"shared with everybody", "dave", nil, func(r *wire.PutRecord) { r.ShareWith[1].TenantID = wire.Public }, "", 1, 0},
		{"not shared", "dave", nil, func(*wire.PutRecord) {}, "dave", 0, 1},
		{"shared with nobody", "dave", nil, func(r *wire.PutRecord) { r.ShareWith = nil }, "dave", 0, 1},
		{"with nobody, taken for public", "dave", nil, func(r *wire.PutRecord) { r.ShareWith = nil }, wire.Public, 0, 1},
		{"silent", "dave", nil, func(*wire.PutRecord) {}, "", 0, 0},
	} {
		subject := shared(i, tc.change)
		if tc.lie != "" {
			lie(tc.lie, subject)
		}
		before := n.views.set.Stats()
		ask(t, n, tc.viewer, subject, tc.kinds...)
		after := n.views.set.Stats()
		if got := [2]uint64{after.Confirmed - before.Confirmed, after.FalsePositives - before.FalsePositives}; got != [2]uint64{tc.confirm, tc.wrong} {
			t.Errorf("%s: %d confirmed, %d wrong", tc.name, got[0], got[1])
		}
	}
	// Of what is not read, shares may give a pair where they may show something.
	for kind, unsure := range map[wire.Kind]bool{wire.KindFile: true, wire.KindMetadata: true, wire.KindHold: false, wire.KindPrivateMetadata: false} {
		s := sight{views: true, viewer: bob}
		s.row(row{tenant: alice, shared: true, kind: kind}, true, false)
		if s.found || s.unsure != unsure {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

// A record with shares that can not be read keeps the filter views from being made
// of the index: it is damage, and everybody is answered from the store. The filter
// keys is made all the same.
func TestViewsNeedTheSharesOfRecords(t *testing.T) {
	c := viewsConfig(vfs.NewMem())
	mustInit(t, c)
	n := mustOpen(t, c)
	records, _ := storedShared(t, n)
	mustClose(t, n)
	must1(t, c.FS.RemoveAll("data/filters"))
	change(t, c, func(db *pebble.DB) {
		frame := get(t, db, logKey(1))
		frame[len(frame)/2] ^= 1
		must1(t, db.Set(logKey(1), frame, pebble.Sync))
	})
	n = mustOpen(t, c)
	defer mustClose(t, n)
	if !n.keys.set.Ready() || n.views.set.Ready() || n.health.damage() == "" {
		t.Errorf("keys %v, views %v, damage %q", n.keys.set.Ready(), n.views.set.Ready(), n.health.damage())
	}
	if _, perhaps := n.mayShow("dave", digest("not there")); !perhaps {
		t.Error("half a filter denies")
	}
	for _, r := range records[1:] {
		if _, err := n.Put(t.Context(), wire.Put{Record: r}); err == nil {
			t.Error("a damaged archive takes records")
		}
		if want, _ := visibleTo(t, n, alice, wire.Digest(r.ID())); len(want) > 0 && len(ask(t, n, alice, wire.Digest(r.ID()))) == 0 {
			t.Errorf("%s is not answered", r.Kind)
		}
	}
}

// What a viewing remembers is bounded, and what it forgot it computes again.
func TestViewingForgets(t *testing.T) {
	c := viewsConfig(vfs.NewMem())
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	records, _ := storedShared(t, n)
	v := n.newViewing()
	for i := range 2*maxViewerKeys + 7 {
		v.key(wire.TenantID(fmt.Sprint("tenant-", i)))
		if i < 2*maxSharedRecords {
			v.shared[uint64(1000+i)] = nil
		}
	}
	if len(v.known) > maxViewerKeys {
		t.Errorf("%d keys are remembered", len(v.known))
	}
	fresh := maps.Clone(v.known)
	rows := func(v *viewing) (all []bloom.Hash) {
		for i, r := range records {
			value := row{roles: roleSubject, shared: len(r.ShareWith) > 0, id: r.ID(), kind: r.Kind, tenant: r.TenantID}.encode()
			all, _ = v.row(all, r.SHA256, uint64(i+1), value)
		}
		return all
	}
	if diff := cmp.Diff(rows(n.newViewing()), rows(v)); diff != "" || len(v.shared) > maxSharedRecords {
		t.Errorf("%d records with shares are remembered, of %d keys\n%s", len(v.shared), len(fresh), diff)
	}
}

// TestLaw4PairsAreKnownBeforeTheCommit: when a record is being written to the disk,
// both filters have it already, and who mirrors views was told.
func TestLaw4PairsAreKnownBeforeTheCommit(t *testing.T) {
	disk := newFaultFS(vfs.NewMem(), -1, false)
	c := testConfig(disk, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	n.Feed().Follow()
	told := make(map[bloom.Hash]bool) // of the committer
	n.Feed().SetSend(func(d wire.Delta) {
		for b := d.Hashes; len(b) > 0; b = b[wire.HashSize:] {
			told[bloom.Hash{A: binary.LittleEndian.Uint64(b), B: binary.LittleEndian.Uint64(b[8:])}] = true
		}
	})
	r := metadata(alice, digest("x"), `{}`)
	r.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeProofs}, {TenantID: wire.Public, Mode: wire.ModeProofs}}
	looked := 0
	disk.beforeSync = func() { // of the log of the store
		looked++
		if who := deniesPair(n, r); who != "" || n.Absent(r.SHA256) || n.Absent(wire.Digest(r.ID())) {
			t.Errorf("the record is denied, to %q", who)
		}
		for _, viewer := range viewersOf(r) {
			if !told[mirror.Pair(n.secret.Key, viewer, r.SHA256)] || !told[mirror.Pair(n.secret.Key, viewer, r.ID())] {
				t.Errorf("the pairs of %s were not told", viewer)
			}
		}
	}
	mustPut(t, n, r)
	disk.beforeSync = nil
	if looked == 0 {
		t.Error("nothing was synced")
	}
	mustClose(t, n)
}

// A record that was lost and is stored again is denied to none of its viewers: not
// then, nor after a rebuild, nor after starts from a snapshot, the log or the index,
// all of which still have the lost one.
func TestLaw4PairsOfWhatIsStoredAgain(t *testing.T) {
	fs := vfs.NewMem()
	c := viewsConfig(fs)
	mustInit(t, c)
	n := mustOpen(t, c)
	records, blocks := storedShared(t, n)
	mustClose(t, n)
	lost := []uint64{1, 2, 3, uint64(len(records))} // the last is the file
	lose(t, c, lost...)
	must1(t, fs.RemoveAll("data/filters")) // as a repair does that loses records
	n = mustOpen(t, c)
	mustClose(t, n)
	early := readTree(t, fs, c.Dir)
	look := func(n *Node, when string) {
		t.Helper()
		for _, r := range records {
			if who := deniesPair(n, r, blocks[r.ID()]...); who != "" {
				t.Errorf("%s: %s shared %v is denied to %s", when, r.Kind, r.ShareWith, who)
			}
		}
		if s := n.views.set.Stats(); !s.Ready || s.Repaired > 0 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	n = mustOpen(t, c)
	if who := deniesPair(n, records[0]); who == "" {
		t.Error("the shares of a lost record are known")
	}
	for _, seq := range lost {
		mustPut(t, n, records[seq-1])
	}
	look(n, "stored again")
	n.stop()
	n.background.Wait() // nobody else rebuilds it
	must1(t, n.views.rebuild(t.Context(), 1<<14, n.views.fill))
	look(n, "rebuilt")
	mustClose(t, n)
	whole := readTree(t, fs, c.Dir)
	for when, disk := range map[string]image{
		"from a snapshot": whole,
		"from the log":    image(whole).with(early, "filters/views"),
		"from the index":  image(whole).with(nil, "filters/views"),
	} {
		n := mustOpen(t, viewsConfig(image(disk).disk(t, "", nil)))
		look(n, when)
		mustClose(t, n)
	}
}
