package archive

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// Whatever becomes of the rows of the generations, or of the file that has them
// once more, the other brings them back.
func TestGenerationsOutliveTheirRows(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	c, _, err := restore(b.c, "backup", "again", func(rc *RestoreConfig) { rc.Remembered = []wire.Remembered{hears(b.n)} })
	must1(t, err)
	good, err := pebblex.ReadFile(c.FS, c.lineagePath(), maxLineageFile)
	must1(t, err)
	log, err := decodeLineage(good)
	if err != nil || len(log) != 2 || log.current().Generation != 2 {
		t.Fatalf("%+v, %v", log, err)
	}
	for name, bad := range map[string][]byte{"missing": nil, "empty": {}, "cut": good[:len(good)-1], "flipped": flipped(good, 40), "older": good[:lineageHeader+8+int(good[23])]} {
		if bad == nil {
			must1(t, c.FS.Remove(c.lineagePath()))
		} else {
			must1(t, pebblex.WriteFile(c.FS, c.lineagePath(), bad, markPerm))
		}
		mustClose(t, mustOpen(t, c))
		if got, err := readLineageFile(c); err != nil || !reflect.DeepEqual(got, log) {
			t.Errorf("%s: written anew: %+v, %v", name, got, err)
		}
	}

	// Of the store nothing is left but what stands beside it.
	names, err := c.FS.List(c.storeDir())
	must1(t, err)
	for _, name := range names {
		must1(t, c.FS.Remove(c.FS.PathJoin(c.storeDir(), name)))
	}
	peers := &elsewhere{records: map[wire.RecordID]wire.PutRecord{}}
	for _, p := range b.puts {
		peers.records[p.Record.ID()] = p.Record
	}
	report, err := Repair(t.Context(), RepairConfig{Config: c, Peers: peers})
	if err != nil || !report.Clean() || report.Generation != 2 {
		t.Fatalf("repair: %+v, %v", report, err)
	}
	n := mustOpen(t, c)
	defer mustClose(t, n)
	holds(t, n, b.puts)
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// FuzzLineage: generations that are accepted are what the encoder writes.
func FuzzLineage(f *testing.F) {
	for _, log := range []lineage{{}, {sampleGenerations()["first"]}, {sampleGenerations()["first"], sampleGenerations()["second"]}} {
		b, err := log.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := decodeLineage(data)
		if err != nil {
			return
		}
		if again, err := log.encode(); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%x decodes and encodes to %x, %v", data, again, err)
		}
	})
}
