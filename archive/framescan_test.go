package archive

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// sameHeaders compares headers by what is in them.
var sameHeaders = cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(share{})}

// scans checks that a header which is scanned is the one form of what the library
// reads from it.
func scans(t interface{ Fatalf(string, ...any) }, head []byte, before header) bool {
	got := before
	if scanHeader(head, &got) == nil {
		return false
	}
	var want header
	if err := cborDec.Unmarshal(head, &want); err != nil {
		t.Fatalf("%x is scanned, and no header: %v", head, err)
	}
	if diff := cmp.Diff(want, got, sameHeaders); diff != "" {
		t.Fatalf("%x (-library +scan):\n%s", head, diff)
	}
	if again, err := cborEnc.Marshal(got); err != nil || !bytes.Equal(again, head) {
		t.Fatalf("%x is scanned, its one form is %x, %v", head, again, err)
	}
	return true
}

// TestScanReadsWhatIsWritten: the header of every record is scanned; changed
// somewhere it is not, or is another header in its one form.
func TestScanReadsWhatIsWritten(t *testing.T) {
	var before header
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		e := sampleEnvelope(r)
		e.seq = max(rapid.Uint64().Draw(t, "seq"), 1)
		e.storedAt = rapid.Int64Min(0).Draw(t, "storedAt")
		e.hasPutID = rapid.Bool().Draw(t, "hasPutID")
		data, err := encodeFrame(e, &r, r.ID(), r.BodySHA256())
		if err != nil {
			t.Fatal(err)
		}
		head, _, err := splitFrame(data)
		if err != nil || !scans(t, head, before) {
			t.Fatalf("%x is not scanned, %v", head, err)
		}
		scanHeader(head, &before)
		f, err := decodeFrame(data)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := leafBytes(f)
		if err != nil {
			t.Fatal(err)
		}
		var x examiner
		if got, err := x.leafHash(f); err != nil || got != tlog.RecordHash(leaf) {
			t.Fatalf("the hash of leaf %x is %x, %v", leaf, got, err)
		}
		for range 20 {
			changed := bytes.Clone(head)
			at := rapid.IntRange(0, len(head)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				changed[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				changed = changed[:at]
			case 2:
				changed = append(changed[:at], head[min(at+1, len(head)):]...)
			default:
				changed = append(append(changed[:at:at], rapid.Byte().Draw(t, "byte")), head[at:]...)
			}
			scans(t, changed, before)
		}
	})
}

// FuzzScan: whatever is scanned is what the library reads and writes.
func FuzzScan(f *testing.F) {
	for _, r := range samples() {
		head, _, err := splitFrame(mustEncode(f, sampleEnvelope(r), r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, head []byte) { scans(t, head, header{}) })
}
