package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// image is an archive's directory, file by file.
type image map[string][]byte

// disk returns a new disk with the image, one of its files replaced; a nil
// content leaves the file out.
func (m image) disk(t testing.TB, changed string, content []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	for path, data := range m {
		if path == changed {
			if data = content; data == nil {
				continue
			}
		}
		must1(t, errors.Join(fs.MkdirAll(fs.PathDir(path), 0o755), pebblex.WriteFile(fs, path, data, 0o600)))
	}
	return fs
}

// victim is a small archive as it rests on a disk, with what its clients know.
type victim struct {
	image
	acked []acked
	mark  uint64 // the last record that the mark covers
}

// newVictim returns an archive that was killed, with tables, a log that holds
// records, and a mark that covers all but the last tail ones.
func newVictim(t testing.TB, tail int) victim {
	t.Helper()
	disk := vfs.NewCrashableMem()
	c := testConfig(disk, "archive-a")
	mustInit(t, c)
	var v victim
	put := func(n *Node, count int, ask bool) {
		for range count {
			p := wire.Put{PutID: wire.NewPutID(), Checkpoint: ask, Record: metadata(alice, digest(fmt.Sprint(len(v.acked)%5)), fmt.Sprintf(`{"n":%d}`, len(v.acked)))}
			ack, err := n.Put(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			v.acked = append(v.acked, acked{p, ack.Seq})
		}
	}
	for range 2 {
		n := mustOpen(t, c)
		put(n, 4, true)
		must1(t, n.db.Flush())
		mustClose(t, n)
	}
	n := mustOpen(t, c)
	put(n, 6, true)
	v.mark = uint64(len(v.acked))
	v.image = readTree(t, disk.CrashClone(vfs.CrashCloneCfg{}), c.Dir)
	if tail > 0 {
		old := v.image
		put(n, tail, false)
		v.image = readTree(t, disk.CrashClone(vfs.CrashCloneCfg{}), c.Dir)
		v.image[c.markPath()], v.image[c.skeletonPath()] = old[c.markPath()], old[c.skeletonPath()]
	}
	mustClose(t, n)
	return v
}

// outcome opens the archive on a disk and says what became of it: "refused",
// "behind" if what was lost is only what the mark does not cover and the hello
// shows it to whoever remembers more, "damaged" if it says so and answers no
// lost record with silence, or "whole". All else fails the test.
func (v victim) outcome(t testing.TB, fs vfs.FS, what string) string {
	t.Helper()
	n, err := Open(testConfig(fs, "archive-a"))
	if err != nil {
		if fault.KindOf(err) == fault.Internal && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: refused without a reason that anybody can act on: %v", what, err)
		}
		return "refused"
	}
	defer n.Close() // a damaged store may have reasons not to
	<-n.Loaded()
	seq := n.Hello().Seq
	if seq < v.mark {
		t.Errorf("%s: open with %d records, the mark covers %d", what, seq, v.mark)
	}
	lost := ""
	for _, a := range v.acked[:min(seq, uint64(len(v.acked)))] {
		if !answers(t, n, a) {
			lost = fmt.Sprintf("record %d is not answered as it was put", a.seq)
		}
	}
	_, checked := n.Check(t.Context())
	damaged := n.Hello().State == wire.StateReadonly
	switch {
	case lost != "" && !damaged:
		t.Errorf("%s: %s, and the archive calls itself %s", what, lost, n.Hello().State)
	case checked != nil && !damaged:
		t.Errorf("%s: the check found %v, and the archive calls itself %s", what, checked, n.Hello().State)
	case damaged:
		return "damaged"
	case seq < uint64(len(v.acked)):
		return "behind"
	}
	return "whole"
}

// answers reports whether a record is answered exactly. A silence about it is
// never allowed; an error is.
func answers(t testing.TB, n *Node, a acked) bool {
	t.Helper()
	reply, _, err := n.Answer(t.Context(), query(alice, a.put.Record.SHA256))
	if err != nil {
		return false
	}
	id := a.put.Record.ID()
	return slices.ContainsFunc(reply.Records, func(r wire.Record) bool {
		return r.ID == id && r.Seq == a.seq && bytes.Equal(r.Body, a.put.Record.Body)
	})
}

// TestLaw8EveryByte flips, zeroes and cuts at every byte of every file of a
// small archive, or in the suite at some of them, evenly spread. Whatever it is,
// the archive refuses to open, or says that it is damaged, or nothing is missing;
// and what is lost beyond the mark is told to whoever remembers more.
func TestLaw8EveryByte(t *testing.T) {
	for _, tail := range []int{0, 3} {
		v := newVictim(t, tail)
		if got := v.outcome(t, v.disk(t, "", nil), "untouched"); got != "whole" {
			t.Fatalf("tail %d: the untouched archive is %s", tail, got)
		}
		total := map[string]int{}
		for path, data := range v.image {
			if strings.HasSuffix(path, "/LOCK") {
				continue
			}
			results := map[string]int{}
			try := func(what string, content []byte) {
				results[v.outcome(t, v.disk(t, path, content), fmt.Sprintf("tail %d, %s %s", tail, path, what))]++
			}
			try("removed", nil)
			places := 12
			if testing.Short() {
				places = 3
			}
			step := need.Rounds(max(len(data)/places, 1), 1)
			for i := 0; i < len(data); i += step {
				at := min(i+i%7, len(data)-1) // not always at the same place of a row
				flipped, zeroed := bytes.Clone(data), bytes.Clone(data)
				flipped[at] ^= 1 << (at % 8)
				zeroed[at] = 0
				try(fmt.Sprintf("flipped at byte %d", at), flipped)
				if data[at] != 0 {
					try(fmt.Sprintf("zeroed at byte %d", at), zeroed)
				}
				try(fmt.Sprintf("cut at byte %d", at), data[:at:at])
			}
			t.Logf("tail %d, %s, %d bytes: %v", tail, path, len(data), results)
			for k, n := range results {
				total[k] += n
			}
		}
		t.Logf("tail %d: %v", tail, total)
		if total["refused"] == 0 || total["whole"] == 0 || tail == 0 && total["behind"] > 0 {
			t.Errorf("tail %d: %v", tail, total)
		}
	}
}
