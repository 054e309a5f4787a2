package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// checked returns a closed archive with a bit of everything: seven records in
// two generations, one of a file, one of another tenant, one that is lost, and
// two of the sequence numbers unused.
func checked(t *testing.T) Config {
	t.Helper()
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	for i := range 4 {
		mustPut(t, n, metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i)))
	}
	file := fileRecord(bob, digest("4"))
	c.Files.(*files).add(file.File.SHA256, digest("root"), digest("leaf"))
	mustPut(t, n, file)
	mustClose(t, n)
	lose(t, c, 2)
	begins(t, c, 5)
	n = mustOpen(t, c)
	mustPut(t, n, metadata(alice, digest("7"), `{"n":7}`))
	mustMark(t, n, metadata(alice, digest("8"), `{"n":8}`))
	mustClose(t, n)
	return c
}

// mustCheck returns the report of a check that could look at everything. One that
// takes its time, and with it one thing after the other, must find the same.
func mustCheck(t *testing.T, c Config) CheckReport {
	t.Helper()
	var reports [2]CheckReport
	for i, o := range []CheckOptions{{Read: func(ctx context.Context, _ int) error { return ctx.Err() }}, {}} {
		r, err := CheckStopped(t.Context(), c, o)
		if (err != nil) != (r.Damages > 0) || err != nil && !fault.Is(err, fault.Corrupt) {
			t.Fatalf("%d damages and %v", r.Damages, err)
		}
		reports[i] = r
	}
	sorted := func(r CheckReport) string {
		r.Bytes, r.Tables, r.Began, r.Ended, r.Findings = 0, 0, 0, 0, slices.Clone(r.Findings)
		slices.SortFunc(r.Findings, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
		return fmt.Sprintf("%+v\n%s", r, listed(r))
	}
	// Of what can not be read, how much is skipped depends on where a part begins.
	if one, other := sorted(reports[0]), sorted(reports[1]); one != other && !strings.Contains(one, "can not be read") {
		t.Errorf("one after the other: %s\nside by side: %s", one, other)
	}
	return reports[1]
}

func TestCheckFindsNothingInAWholeArchive(t *testing.T) {
	c := checked(t)
	r := mustCheck(t, c)
	r.Tables, r.Bytes, r.Began, r.Ended = 0, 0, 0, 0
	// Two rows each of five metadata records, and five of the file.
	want := CheckReport{Records: 7, Lost: 1, Leaves: 5 + 3, IndexRows: 5*2 + 5, TenantRows: 6, PutIDs: 6}
	if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\nwant %+v", r, want)
	}
}

// TestCheckFindsPlantedDamage plants one damage of each kind. The check finds it
// and nothing else that is not a part of it, also where the archive does not open
// any more.
func TestCheckFindsPlantedDamage(t *testing.T) {
	set := func(key, value []byte) func(t *testing.T, db *pebble.DB) {
		return func(t *testing.T, db *pebble.DB) { must1(t, db.Set(key, value, pebble.Sync)) }
	}
	del := func(key []byte) func(t *testing.T, db *pebble.DB) {
		return func(t *testing.T, db *pebble.DB) { must1(t, db.Delete(key, pebble.Sync)) }
	}
	edit := func(key []byte, f func(v []byte) []byte) func(t *testing.T, db *pebble.DB) {
		return func(t *testing.T, db *pebble.DB) { must1(t, db.Set(key, f(get(t, db, key)), pebble.Sync)) }
	}
	flipAt := func(i int) func(v []byte) []byte {
		return func(v []byte) []byte { v[(i+len(v))%len(v)] ^= 1; return v }
	}
	idOf := func(i int) wire.RecordID {
		r := metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i))
		return r.ID()
	}
	stored := metadata(alice, digest("3"), `{"n":3}`)
	for name, tc := range map[string]struct {
		plant func(t *testing.T, db *pebble.DB)
		kinds []string // of the findings, sorted
		seq   uint64   // of the first
	}{
		"frame flipped":            {edit(logKey(4), flipAt(-10)), []string{FindingRecord}, 4},
		"header flipped":           {edit(logKey(4), flipAt(20)), []string{FindingRecord}, 4},
		"frame flipped, sum right": {edit(logKey(4), resealed), []string{FindingRecord}, 4},
		"record gone":              {del(logKey(4)), []string{FindingIndex, FindingIndex, FindingIndex, FindingIndex, FindingLog}, 4},
		"frame of another place":   {func(t *testing.T, db *pebble.DB) { must1(t, db.Set(logKey(4), get(t, db, logKey(3)), pebble.Sync)) }, []string{FindingRecord}, 4},
		"last record gone":         {del(logKey(8)), []string{FindingIndex, FindingIndex, FindingIndex, FindingIndex, FindingLog, FindingOpen}, 0},
		"record in no generation":  {func(t *testing.T, db *pebble.DB) { must1(t, db.Set(logKey(6), get(t, db, logKey(4)), pebble.Sync)) }, []string{FindingLog, FindingRecord}, 6},
		"subject row gone":         {del(indexKey(digest("3"), 4)), []string{FindingIndex}, 4},
		"record id row gone":       {del(indexKey(idOf(3), 4)), []string{FindingIndex}, 4},
		"block row gone":           {del(indexKey(digest("leaf"), 5)), []string{FindingIndex}, 5},
		"row changed":              {edit(indexKey(digest("3"), 4), flipAt(-1)), []string{FindingIndex}, 4},
		"row too many":             {set(indexKey(digest("elsewhere"), 4), row{roleSubject, false, 7, stored.ID(), wire.KindMetadata, alice}.encode()), []string{FindingIndex}, 4},
		"row beyond the log":       {set(indexKey(digest("elsewhere"), 40), row{roleSubject, false, 7, stored.ID(), wire.KindMetadata, alice}.encode()), []string{FindingIndex}, 40},
		"row in no generation":     {set(indexKey(digest("elsewhere"), 6), row{roleSubject, false, 7, stored.ID(), wire.KindMetadata, alice}.encode()), []string{FindingIndex}, 6},
		"odd index key":            {set([]byte("hodd"), nil), []string{FindingIndex}, 0},
		"key of no kind":           {set([]byte("odd"), nil), []string{FindingIndex}, 0},
		"last key of no kind":      {set([]byte("zebra"), nil), []string{FindingIndex}, 0},
		"tenant row too many":      {set(tenantKey(tagOf(bob), 7, 4), nil), []string{FindingIndex}, 4},
		"put id too many":          {set(putIDKey(putKey{9}), putValue(4, stored.ID())), []string{FindingIndex}, 4},
		"put id of a lost record":  {set(putIDKey(putKey{9}), putValue(2, idOf(1))), []string{FindingIndex}, 2},
		"tenant row gone": {func(t *testing.T, db *pebble.DB) {
			f := mustDecode(t, get(t, db, logKey(4)))
			del(tenantKey(tagOf(alice), f.StoredAt, 4))(t, db)
		}, []string{FindingIndex}, 4},
		"put id gone": {func(t *testing.T, db *pebble.DB) {
			f := mustDecode(t, get(t, db, logKey(4)))
			del(putIDKey(putKey(f.PutID)))(t, db)
		}, []string{FindingIndex}, 4},
		"stored hash flipped": {edit(commitKey(4), flipHash(4, 0)), []string{FindingTree}, 4},
		"commit flipped":      {edit(commitKey(4), flipAt(12)), []string{FindingTree}, 4},
		"commit gone":         {del(commitKey(3)), []string{FindingTree}, 3},
		"commit too many": {func(t *testing.T, db *pebble.DB) {
			must1(t, db.Set(commitKey(7), commitRow{first: 7, last: 7, hashes: make([]tlog.Hash, 1)}.encode(), pebble.Sync))
		}, nil, 0},
		"generation changed":       {edit(generationKey(1), flipAt(9)), []string{FindingOpen}, 0},
		"lost record off the list": {del(lostKey(2)), []string{FindingLost}, 2},
		"whole record on the list": {func(t *testing.T, db *pebble.DB) { id := idOf(3); must1(t, db.Set(lostKey(4), id[:], pebble.Sync)) }, []string{FindingIndex, FindingLost}, 4},
		"lost record in no log":    {func(t *testing.T, db *pebble.DB) { id := idOf(3); must1(t, db.Set(lostKey(6), id[:], pebble.Sync)) }, []string{FindingLost}, 6},
		"all records gone":         {func(t *testing.T, db *pebble.DB) { must1(t, db.DeleteRange(logKey(0), logKey(100), pebble.Sync)) }, nil, 0},
		"identity gone":            {del(metaKey(metaArchive)), []string{FindingOpen}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := checked(t)
			change(t, c, func(db *pebble.DB) { tc.plant(t, db) })
			r := mustCheck(t, c)
			var kinds []string
			for _, f := range r.Findings {
				kinds = append(kinds, f.Kind)
				if !f.Damage || f.What == "" || f.Repair == "" {
					t.Errorf("finding %+v", f)
				}
			}
			slices.Sort(kinds)
			if tc.kinds == nil {
				if len(kinds) == 0 {
					t.Error("nothing was found")
				}
				return
			}
			if !slices.Equal(kinds, tc.kinds) || len(r.Findings) > 0 && tc.seq != 0 && r.Findings[0].Seq != tc.seq {
				t.Errorf("found %v, want %v:\n%s", kinds, tc.kinds, listed(r))
			}
		})
	}
}

func listed(r CheckReport) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%+v\n", f)
	}
	return b.String()
}

// resealed flips a byte of a frame's body and makes its checksum right again.
func resealed(v []byte) []byte {
	head, body, err := splitFrame(v)
	if err != nil {
		panic(err)
	}
	body = bytes.Clone(body)
	body[0] ^= 1
	return assemble(0, head, body)
}

// flipHash returns an edit of the commit row that ends in a place: another hash
// with the right checksum.
func flipHash(last uint64, i int) func(v []byte) []byte {
	return func(v []byte) []byte {
		row, err := decodeCommit(last, v)
		if err != nil {
			panic(err)
		}
		row.hashes[i][0] ^= 1
		return row.encode()
	}
}

// TestCheckFindsDamageOutsideTheStore changes what lies beside it.
func TestCheckFindsDamageOutsideTheStore(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, c Config)
		kind   string
	}{
		"skeleton entry": {func(t *testing.T, c Config) {
			data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(c.skeletonPath())
			must1(t, err)
			data[skeletonHeader+3*boneLen+20] ^= 1
		}, FindingSkeleton},
		"skeleton entry of another record, sum right": {func(t *testing.T, c Config) {
			data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(c.skeletonPath())
			must1(t, err)
			copy(data[skeletonHeader+3*boneLen:], bone{seq: 4, storedAt: 7, id: wire.RecordID(digest("x"))}.append(nil))
		}, FindingSkeleton},
		"mark gone": {func(t *testing.T, c Config) { must1(t, c.FS.Remove(c.markPath())) }, FindingOpen},
		"mark flipped": {func(t *testing.T, c Config) {
			data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(c.markPath())
			must1(t, err)
			data[len(data)-5] ^= 1
		}, FindingOpen},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustDefaults(t, checked(t))
			tc.change(t, c)
			r := mustCheck(t, c)
			if len(r.Findings) != 1 || r.Findings[0].Kind != tc.kind || !r.Findings[0].Damage || r.Records != 7 {
				t.Errorf("%d records\n%s", r.Records, listed(r))
			}
		})
	}
}

// TestCheckReadsTheDisk flips bytes of every table, in the closed archive and in
// one whose cache still has the right blocks.
func TestCheckReadsTheDisk(t *testing.T) {
	for _, open := range []bool{false, true} {
		c := mustDefaults(t, checked(t))
		change(t, c, func(db *pebble.DB) {
			must1(t, db.Flush())
			must1(t, db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
		})
		check := func() CheckReport { return mustCheck(t, c) }
		if open {
			n := mustOpen(t, c)
			defer mustClose(t, n)
			check = func() CheckReport {
				r, err := n.Check(t.Context())
				if !fault.Is(err, fault.Corrupt) || n.Hello().State != wire.StateReadonly {
					t.Errorf("check: %v in state %s", err, n.Hello().State)
				}
				return r
			}
			if _, err := n.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range tablesOf(t, c) {
			data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(path)
			must1(t, err)
			data[len(data)/8] ^= 1
			r := check()
			data[len(data)/8] ^= 1
			if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == FindingStoreFile && f.Path == path && f.Damage }) {
				t.Errorf("open: %v\n%s", open, listed(r))
			}
		}
	}
}

func tablesOf(t *testing.T, c Config) (paths []string) {
	t.Helper()
	names, err := c.FS.List(c.storeDir())
	must1(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			paths = append(paths, c.FS.PathJoin(c.storeDir(), name))
		}
	}
	if len(paths) == 0 {
		t.Fatal("no tables")
	}
	return paths
}

// TestCheckGoesOnBehindAnUnreadableBlock: the neighbours of a damaged record are
// lost with it, all others are checked.
func TestCheckGoesOnBehindAnUnreadableBlock(t *testing.T) {
	c := mustDefaults(t, testConfig(vfs.NewMem(), "archive-a"))
	mustInit(t, c)
	n := mustOpen(t, c)
	const records = 300
	for i := range records {
		mustPut(t, n, metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d,"x":%q}`, i, bytes.Repeat([]byte("ab"), 200))))
	}
	mustClose(t, n)
	change(t, c, func(db *pebble.DB) { must1(t, db.Compact(t.Context(), []byte{0}, []byte{0xff}, false)) })
	paths := tablesOf(t, c)
	data, err := c.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(paths[len(paths)-1])
	must1(t, err)
	at := bytes.Index(data, logKey(150)[:8])
	if at < 0 {
		at = len(data) / 2
	}
	data[at] ^= 1
	r := mustCheck(t, c)
	if r.Records < records/2 || r.Records == records && r.IndexRows == 2*records || r.Damages == 0 {
		t.Errorf("%d records and %d rows were looked at\n%s", r.Records, r.IndexRows, listed(r))
	}
}

// TestCheckInStepsOfAnySize: a step may end in the middle of a commit, and the
// next one goes on there, also from a position that was stored.
func TestCheckInStepsOfAnySize(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	for w := range 40 {
		wg.Go(func() {
			for i := range 5 {
				if _, err := n.Put(t.Context(), numbered(w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 16 {
		rows, side := []int{1, 2, 3, 7, 64, 199, 200, 201}[i/2], i%2*3+1
		p, err := n.newPosition()
		must1(t, err)
		c := newChecker(n, CheckOptions{}, p)
		c.rows, c.side = rows, side
		c.saved = func() error {
			data, err := wire.Encode(c.pos.stored())
			if err != nil {
				return err
			}
			again, err := wire.Decode[position](data)
			if err == nil {
				c.pos, err = again.ready()
			}
			return err
		}
		must1(t, c.run(t.Context()))
		if r := c.pos.Report; r.Found > 0 || r.Records != 200 || r.Leaves != 200 || r.IndexRows != 400 {
			t.Errorf("in steps of %d on %d: %+v", rows, side, r)
		}
	}
}

// TestScansReadEachRowOnce: the parts that the rows of a kind are cut into are all
// there is, and none overlap, whatever the keys.
func TestScansReadEachRowOnce(t *testing.T) {
	c := mustDefaults(t, testConfig(vfs.NewMem(), "archive-a"))
	mustInit(t, c)
	keys := map[string]int{}
	change(t, c, func(db *pebble.DB) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			key := []byte{prefixTenant}
			for range random.IntN(20) { // few bytes, so that many keys begin with the same
				key = append(key, byte(random.IntN(3))*127)
			}
			keys[string(key)] = 0
			must1(t, db.Set(key, nil, pebble.NoSync))
		}
	})
	n := mustOpen(t, c)
	defer mustClose(t, n)
	p, err := n.newPosition()
	must1(t, err)
	scans, err := newChecker(n, CheckOptions{}, p).cutRows(prefixTenant)
	must1(t, err)
	for _, s := range scans {
		it, err := n.iterate(s.from, s.to)
		must1(t, err)
		for valid := it.First(); valid; valid = it.Next() {
			keys[string(it.Key())]++
		}
		must1(t, it.Close())
	}
	for key, times := range keys {
		if times != 1 {
			t.Errorf("key %x is read %d times by %d scans", key, times, len(scans))
		}
	}
	if len(scans) < 1<<cutDepth/2 {
		t.Errorf("only %d scans", len(scans))
	}
}

// TestCheckWhilePutsGoOn: what is stored during a check is no finding.
func TestCheckWhilePutsGoOn(t *testing.T) {
	n := newNode(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := n.Put(t.Context(), numbered(w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range need.Rounds(5, 100) {
		if r, err := n.Check(t.Context()); err != nil || r.Found > 0 {
			t.Errorf("%v\n%s", err, listed(r))
		}
	}
	close(stop)
	wg.Wait()
}

func TestCheckEndsWithItsContextAndItsHook(t *testing.T) {
	n := newNode(t)
	mustPut(t, n, metadata(alice, digest("1"), `{}`))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := n.Check(ctx); !errors.Is(err, context.Canceled) || fault.Is(err, fault.Corrupt) || r.Found > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	enough := errors.New("enough")
	o := CheckOptions{Read: func(context.Context, int) error { return enough }}
	if r, err := n.CheckWith(t.Context(), o); !errors.Is(err, enough) || r.Found > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCheckStoppedLeavesAStrangerAlone(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	if _, err := CheckStopped(t.Context(), c, CheckOptions{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("nothing there: %v", err)
	}
	mustInit(t, c)
	n := mustOpen(t, c)
	if _, err := CheckStopped(t.Context(), c, CheckOptions{}); fault.CodeOf(err) != "IN_USE" {
		t.Errorf("in use: %v", err)
	}
	mustClose(t, n)
	other := c
	other.ID = "archive-b"
	if _, err := CheckStopped(t.Context(), other, CheckOptions{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("another archive: %v", err)
	}
}

// TestReportKeepsDamages: the list is bounded, and what is no damage makes room
// for what is.
func TestReportKeepsDamages(t *testing.T) {
	var r CheckReport
	for range maxFindings {
		r.Add(Finding{Kind: FindingUnreferenced})
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
	for i := range 10 {
		r.Add(Finding{Kind: FindingRecord, Damage: true, Seq: uint64(i), What: "w" + fmt.Sprint(i)})
	}
	damages := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Damage })
	if len(r.Findings) != maxFindings || len(damages) != 10 || r.Found != maxFindings+10 || r.Damages != 10 {
		t.Errorf("%d listed, %d damages of %d", len(r.Findings), len(damages), r.Damages)
	}
	if err := r.Err(); !fault.Is(err, fault.Corrupt) {
		t.Error(err)
	}
}

// What goroutines find side by side is listed in one order, whoever comes first:
// also what of more than is listed, and then damages before others.
func TestFindingsHaveOneOrder(t *testing.T) {
	all := make([]Finding, 3*maxFindings)
	for i := range all {
		all[i] = Finding{Kind: FindingIndex, Seq: uint64(i/3) + 1, What: fmt.Sprint("w", i%3), Damage: i%3 < 2}
	}
	first := ""
	for _, seed := range []uint64{1, 2, 3} {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var u unordered
		for _, f := range all {
			u.add(f)
		}
		var r CheckReport
		r.Add(Finding{Kind: FindingOpen, Damage: true})
		u.addTo(&r)
		if r.Found != 3*maxFindings+1 || r.Damages != 2*maxFindings+1 || len(r.Findings) != maxFindings {
			t.Errorf("found %d, damages %d, listed %d", r.Found, r.Damages, len(r.Findings))
		}
		if f := r.Findings; f[0].Kind != FindingOpen || f[1].Seq != 1 || f[1].What != "w0" || f[2].What != "w1" || f[3].Seq != 2 {
			t.Errorf("it begins with %+v", f[:4])
		}
		for _, f := range r.Findings {
			if !f.Damage || f.Seq > maxFindings/2 {
				t.Errorf("listed: %+v", f)
			}
		}
		if now := listed(r); first != "" && now != first {
			t.Error("it depends on who came first what is listed, and where")
		} else {
			first = now
		}
	}
	c := checked(t)
	change(t, c, func(db *pebble.DB) {
		for i := range 100 {
			value := row{roleSubject, false, 7, wire.RecordID{1}, wire.KindMetadata, alice}.encode()
			must1(t, db.Set(indexKey(digest(fmt.Sprint("stray ", i)), uint64(100-i)+10), value, pebble.Sync))
		}
	})
	n := mustOpen(t, c)
	defer mustClose(t, n)
	var before string
	for range 5 {
		p, err := n.newPosition()
		must1(t, err)
		k := newChecker(n, CheckOptions{}, p)
		k.side = 8
		must1(t, k.run(t.Context()))
		if now := fmt.Sprint(p.Report.Err()) + listed(p.Report); before != "" && now != before || p.Report.Damages != 100 || p.Report.Findings[0].Seq != 11 {
			t.Fatalf("another order, or number: %s", now)
		} else {
			before = now
		}
	}
}

// No key of no kind is passed over where a step ends.
func TestCheckFindsAKeyOfNoKindBetweenSteps(t *testing.T) {
	c := checked(t)
	change(t, c, func(db *pebble.DB) { must1(t, db.Set(append(logKey(4), 'x'), nil, pebble.Sync)) })
	n := mustOpen(t, c)
	defer mustClose(t, n)
	for rows := 1; rows <= 4; rows++ {
		p, err := n.newPosition()
		must1(t, err)
		k := newChecker(n, CheckOptions{Read: func(ctx context.Context, _ int) error { return ctx.Err() }}, p)
		k.rows = rows
		must1(t, k.run(t.Context()))
		if p.Report.Damages != 1 || p.Report.Records != 7 {
			t.Errorf("%d rows a step: %s", rows, listed(p.Report))
		}
	}
}

// A step takes a record, whatever else is in the log: else a check would never
// come behind keys of no kind that are larger than what is checked at a time.
func TestCheckComesBehindKeysOfNoKind(t *testing.T) {
	c := checked(t)
	change(t, c, func(db *pebble.DB) {
		must1(t, db.Delete(logKey(4), pebble.Sync))
		for _, end := range "xyz" {
			must1(t, db.Set(append(logKey(4), byte(end)), make([]byte, checkBytes), pebble.Sync))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := 0
	r, err := CheckStopped(ctx, c, CheckOptions{Read: func(ctx context.Context, _ int) error {
		if steps++; steps == 1000 {
			cancel()
		}
		return ctx.Err()
	}})
	if !fault.Is(err, fault.Corrupt) || r.Stopped != "" || r.Records != 6 || r.Leaves != 5+3 {
		t.Errorf("%d records, %d leaves: %v\n%s", r.Records, r.Leaves, err, listed(r))
	}
}

// The comparison of rows, which may take long, ends with its context.
func TestComparisonEndsWithItsContext(t *testing.T) {
	c := checked(t)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := n.newPosition()
	must1(t, err)
	k := newChecker(n, CheckOptions{}, p)
	must1(t, k.begin())
	cancel()
	p.sum(1).Want.add(lanes{1, 1})
	p.Key = []byte{compared}
	if err := k.compare(ctx); !errors.Is(err, context.Canceled) || p.Report.Found > 0 {
		t.Errorf("%v, %+v", err, p.Report)
	}
}
