package bloom

import (
	"bytes"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzReadSnapshot: no panic, no memory that the bytes do not account for, and
// nothing denied by what the golden file's header stands before.
func FuzzReadSnapshot(f *testing.F) {
	golden, err := os.ReadFile("testdata/snapshot.v1.blm")
	if err != nil {
		f.Fatal(err)
	}
	front := golden[:headerBytes+2*generationBytes+sumBytes]
	f.Add(golden)
	f.Add(front)
	f.Add(append(append([]byte{}, front...), make([]byte, len(golden)-len(front))...))
	f.Add([]byte(snapshotMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, info, err := read(b, fleet)
		if err != nil {
			return
		}
		if s.Bytes() > len(b) || s.Generations() > maxGenerations {
			t.Errorf("%d bytes of memory, %d generations from %d bytes", s.Bytes(), s.Generations(), len(b))
		}
		again, later, err := read(snapshot(t, s, info.Mark), fleet)
		if err != nil || later.Mark != info.Mark || again.Bytes() != s.Bytes() || again.Fill() != s.Fill() {
			t.Errorf("written again: %+v, was %+v: %v", later, info, err)
		}
		if bytes.HasPrefix(b, front) {
			denied(t, s, 1500)
		}
	})
}

// FuzzLoad puts any bytes into the two files: Load finds a way, and after the
// replay nothing is denied.
func FuzzLoad(f *testing.F) {
	golden, err := os.ReadFile("testdata/snapshot.v1.blm")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden, golden, uint16(1500))
	f.Add(golden, []byte{}, uint16(1600))
	f.Add(golden, golden[:len(golden)-1], uint16(1400))
	f.Add(golden[:100], golden, uint16(0))
	f.Fuzz(func(t *testing.T, current, previous []byte, last uint16) {
		fs := vfs.NewMem()
		if err := fs.MkdirAll(snapshots, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, fileCurrent, current)
		writeFile(t, fs, filePrevious, previous)
		store := Store{Identity: [16]byte{1, 2, 3}, Last: uint64(last)}
		s, r, err := Load(disk{fs}, snapshots, fleet, store)
		if err != nil || r.Seq > store.Last {
			t.Fatalf("%+v, %v", r, err)
		}
		for i := r.Seq; i < store.Last; i++ { // record i+1 of the golden file has key i
			s.Add(key(i))
		}
		s.Complete()
		denied(t, s, store.Last)
		left := files(t, fs)
		if r.File == "" && len(left) != 0 || len(left) > 2 {
			t.Errorf("%+v, left behind: %v", r, left)
		}
	})
}
