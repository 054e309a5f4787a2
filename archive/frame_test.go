package archive

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/verae/archive/wire"
)

var writeGolden = flag.Bool("golden", false, "write golden files that are missing; those that exist never change")

// samples has a record of every kind, with and without each optional field.
func samples() map[string]wire.PutRecord {
	full := metadata(alice, digest("subject"), `{"title":"é"}`)
	full.Part = 3
	full.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeProofs}, {TenantID: wire.Public, Mode: wire.ModeMetadata}}
	m := map[string]wire.PutRecord{
		"metadata":         full,
		"metadata-minimal": {Kind: wire.KindMetadata, SHA256: digest("subject"), TenantID: alice, Body: []byte(`{}`)},
		"file":             fileRecord(alice, digest("subject")),
		"file-minimal": {
			Kind: wire.KindFile, SHA256: digest("subject"), TenantID: alice,
			File: &wire.File{SHA256: digest("subject"), CID: otherCID},
		},
		"attachment": {
			Kind: "ocr", SHA256: digest("subject"), TenantID: "t:1", ContentType: "text/plain", Body: []byte("\x00\xff"),
			AttachedAt: "2025-05-19T14:00:00+02:00", Part: wire.MaxPart,
		},
	}
	for _, kind := range []wire.Kind{wire.KindPrivateMetadata, wire.KindShare, wire.KindRetain, wire.KindHold, wire.KindRelease} {
		r := metadata(alice, digest("subject"), `{"k":1}`)
		r.Kind = kind
		switch kind {
		case wire.KindShare:
			r.ShareWith = []wire.Share{{TenantID: bob, Mode: wire.ModeNone}}
		case wire.KindRetain:
			r.Body = []byte(`{"retainUntil":"2036-11-30T00:00:00.000000000Z"}`)
		}
		m[string(kind)] = r
	}
	return m
}

// sampleEnvelope is fixed, with a put id for records that have a submission.
func sampleEnvelope(r wire.PutRecord) envelope {
	return envelope{
		archive: "archive-a", generation: 1, seq: 42, storedAt: 1747656000123456789,
		putID: putKey{1, 2, 3, 4, 5, 6, 0x77, 8, 0x89, 10, 11, 12, 13, 14, 15, 16}, hasPutID: r.SubmissionID != "",
	}
}

func mustEncode(t testing.TB, e envelope, r wire.PutRecord) []byte {
	t.Helper()
	b, err := encodeFrame(e, &r, r.ID(), r.BodySHA256())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustStub(t testing.TB, e envelope, id wire.RecordID) []byte {
	t.Helper()
	b, err := encodeStub(e, id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustDecode(t testing.TB, b []byte) *frame {
	t.Helper()
	f, err := decodeFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFormatsAreFrozen compares frame, leaf and index rows of every kind of
// record with files that never change.
func TestFormatsAreFrozen(t *testing.T) {
	for name, r := range samples() {
		t.Run(name, func(t *testing.T) {
			if err := r.Check(); err != nil {
				t.Fatalf("the sample is no valid record: %v", err)
			}
			data := mustEncode(t, sampleEnvelope(r), r)
			f := mustDecode(t, data)
			leaf, err := leafBytes(f)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			line := func(what string, b []byte) { fmt.Fprintf(&out, "%s %s\n", what, hex.EncodeToString(b)) }
			line("recordId", f.RecordID)
			line("frame", data)
			line("leaf", leaf)
			hash := leafHash(leaf)
			line("leafHash", hash[:])
			for _, at := range placesOf(&r, r.ID(), [][digestLen]byte{digest("root"), digest("subject")}) {
				v := row{at.roles, len(r.ShareWith) > 0, f.StoredAt, r.ID(), r.Kind, r.TenantID}
				line("rowKey", indexKey(at.digest, f.Seq))
				line("row", v.encode())
			}
			golden(t, name+".txt", out.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *writeGolden {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; stored bytes would become unreadable (-want +got)\n%s", path, diff)
	}
}

// TestGoldenFramesStayReadable decodes the bytes in the files, not ours.
func TestGoldenFramesStayReadable(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < len(samples()) {
		t.Fatalf("%d golden files, %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			what, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
			data, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			switch what {
			case "frame":
				f := mustDecode(t, data)
				rec := f.record()
				if err := f.verify(&rec); err != nil || !f.canonical(data) {
					t.Errorf("%s: %v", path, err)
				}
			case "stub":
				if f := mustDecode(t, data); !f.lost || !f.canonical(data) {
					t.Errorf("%s: %+v", path, f)
				}
			case "row":
				r, err := decodeRow(data)
				if err != nil || !bytes.Equal(r.encode(), data) {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
}

// TestFrameRoundTrip holds for whatever a record may contain.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		e := envelope{archive: "archive-a", generation: 1, seq: rapid.Uint64Min(1).Draw(t, "seq"), storedAt: rapid.Int64().Draw(t, "at")}
		b, err := encodeFrame(e, &r, r.ID(), r.BodySHA256())
		if err != nil {
			t.Fatal(err)
		}
		f, err := decodeFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		rec := f.record()
		if err := f.verify(&rec); err != nil || !f.canonical(b) {
			t.Fatalf("%v, canonical %v", err, f.canonical(b))
		}
		if rec.ID != r.ID() || rec.Seq != e.seq || f.StoredAt != e.storedAt {
			t.Fatalf("decoded %+v", rec)
		}
	})
}

// TestDraftTakesAnyPlace: each length that a number can have, and its neighbours.
func TestDraftTakesAnyPlace(t *testing.T) {
	r := samples()[string(wire.KindMetadata)]
	e := sampleEnvelope(r)
	for shift := range 64 {
		for _, v := range []uint64{1<<shift - 1, 1 << shift, 23, 24} {
			e.seq, e.storedAt = max(v, 1), int64(v)
			f, err := decodeFrame(mustEncode(t, e, r))
			if err != nil || f.Seq != e.seq || f.StoredAt != e.storedAt {
				t.Fatalf("place %d, %d: %v, %+v", e.seq, e.storedAt, err, f)
			}
		}
	}
}

// drawRecord draws a record that wire.PutRecord.Check takes.
func drawRecord(t *rapid.T) wire.PutRecord {
	r := wire.PutRecord{
		Kind:        wire.Kind(rapid.SampledFrom([]string{"metadata", "ocr", "file", "share", "a.b-c"}).Draw(t, "kind")),
		SHA256:      digest(rapid.String().Draw(t, "subject")),
		TenantID:    wire.TenantID(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`).Draw(t, "tenant")),
		Part:        rapid.IntRange(0, wire.MaxPart).Draw(t, "part"),
		AttachedAt:  wire.Time(rapid.StringMatching(`[ -~]{0,64}`).Draw(t, "attachedAt")),
		ContentType: rapid.StringMatching(`[ -~]{0,255}`).Draw(t, "contentType"),
	}
	for i := range rapid.IntRange(0, wire.MaxShares).Draw(t, "shares") {
		r.ShareWith = append(r.ShareWith, wire.Share{TenantID: wire.TenantID(fmt.Sprintf("%0128d", i)), Mode: wire.ModeFiles})
	}
	switch r.Kind {
	case wire.KindFile:
		r.File = &wire.File{Name: rapid.StringMatching(`[ -~é]{0,100}`).Draw(t, "name"), Size: rapid.Int64Range(0, wire.MaxInteger).Draw(t, "size"), SHA256: digest("f"), CID: fileCID}
	case wire.KindMetadata:
		r.Body = []byte(`{"a":1}`)
	default:
		r.Body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
	}
	if err := r.Check(); err != nil {
		t.Skip(err) // texts with control characters and the like
	}
	return r
}

// TestLargestHeaderDecodes: nothing that Check takes is too large to be read.
func TestLargestHeaderDecodes(t *testing.T) {
	r := fileRecord(wire.TenantID(strings.Repeat("t", 128)), digest("x"))
	r.Part, r.AttachedAt, r.ContentType = wire.MaxPart, wire.Time(strings.Repeat("9", wire.MaxTimeText)), strings.Repeat("c", wire.MaxContentType)
	r.File.Name, r.File.ContentType, r.File.Size = strings.Repeat("n", wire.MaxFileName), r.ContentType, wire.MaxInteger
	r.ShareWith = nil
	for i := range wire.MaxShares {
		r.ShareWith = append(r.ShareWith, wire.Share{TenantID: wire.TenantID(fmt.Sprintf("%0128d", i)), Mode: wire.ModeMetadata})
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	b := mustEncode(t, sampleEnvelope(r), r)
	f := mustDecode(t, b)
	if size := binary.BigEndian.Uint32(b[4:]); size > maxHeader/2 {
		t.Errorf("a header of %d bytes leaves no room below the bound %d", size, maxHeader)
	}
	if len(f.ShareWith) != wire.MaxShares {
		t.Errorf("%d shares", len(f.ShareWith))
	}
}

// TestEveryFlippedBitIsFound flips each bit of a frame.
func TestEveryFlippedBitIsFound(t *testing.T) {
	r := fileRecord(alice, digest("subject"))
	data := mustEncode(t, sampleEnvelope(r), r)
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeFrame(data); err == nil {
			t.Errorf("bit %d flipped: decoded", bit)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

// TestForgedFramesAreFound changes a frame and gives it a right checksum again.
func TestForgedFramesAreFound(t *testing.T) {
	r := metadata(alice, digest("subject"), `{"a":1}`)
	good := mustEncode(t, sampleEnvelope(r), r)
	head, body, err := splitFrame(good)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) []byte {
		return assemble(0, bytes.Replace(bytes.Clone(head), []byte(from), []byte(to), 1), body)
	}
	for name, b := range map[string][]byte{
		"another body":        assemble(0, head, []byte(`{"a":2}`)),
		"no body":             assemble(0, head, nil),
		"another tenant":      change("alice", "alicf"),
		"another kind":        change("metadata", "metadatb"),
		"another time":        change("2025-05-19", "2025-05-18"),
		"an unknown field":    assemble(0, append([]byte{head[0] + 1}, append(bytes.Clone(head[1:]), 0x18, 0x63, 0x01)...), body),
		"a longer integer":    assemble(0, append([]byte{head[0], 0x18, 0x01}, head[2:]...), body),
		"trailing bytes":      assemble(0, append(bytes.Clone(head), 0), body),
		"a duplicate key":     assemble(0, append([]byte{head[0] + 1, 0x01, 0x01}, head[1:]...), body),
		"a header that lies":  assemble(0, []byte{0xbf, 0xff}, body),
		"no header":           assemble(0, nil, body),
		"version 2":           resum(good, 2, 2),
		"flags":               resum(good, 3, 2),
		"a header too large":  assemble(0, make([]byte, maxHeader+1), body),
		"nothing":             nil,
		"only the magic":      []byte(frameMagic),
		"a million array":     assemble(0, []byte{0xa1, 0x13, 0x9a, 0, 0x10, 0, 0}, nil),
		"a short digest":      change("\x58\x20", "\x58\x1f"),
		"a hash without body": assemble(0, head, []byte{}),
	} {
		f, err := decodeFrame(b)
		if err != nil {
			continue
		}
		rec := f.record()
		if f.verify(&rec) == nil && f.canonical(b) {
			t.Errorf("%s passed", name)
		}
	}
	f := mustDecode(t, good)
	rec := f.record()
	if err := f.verify(&rec); err != nil || !f.canonical(good) {
		t.Errorf("the frame that all were made from: %v", err)
	}
}

func resum(b []byte, at int, v byte) []byte {
	b = bytes.Clone(b)
	b[at] = v
	sum := len(b) - frameSum
	binary.BigEndian.PutUint32(b[sum:], crc32.Checksum(b[:sum], castagnoli))
	return b
}

// FuzzFrame: no input panics or allocates beyond its size, and what is accepted
// is what the encoder writes, or is found by the content hashes.
func FuzzFrame(f *testing.F) {
	for _, r := range samples() {
		data := mustEncode(f, sampleEnvelope(r), r)
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Add([]byte(frameMagic))
	f.Add(mustStub(f, sampleEnvelope(wire.PutRecord{}), wire.RecordID{1}))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, withSum(data)} {
			fr, err := decodeFrame(b)
			if err != nil {
				continue
			}
			rec := fr.record()
			if fr.verify(&rec) != nil || !fr.canonical(b) {
				continue
			}
			if fr.lost {
				t.Errorf("the stub %x was verified", b)
			}
			p := rec.Portable()
			e := envelope{archive: wire.ArchiveID(fr.ArchiveID), generation: fr.Generation, seq: fr.Seq, storedAt: fr.StoredAt}
			if len(fr.PutID) > 0 {
				e.putID, e.hasPutID = putKey(fr.PutID), true
			}
			again, err := encodeFrame(e, &p, rec.ID, rec.BodySHA256)
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("%x decodes and encodes to %x, %v", b, again, err)
			}
		}
	})
}

// withSum gives data a right checksum, so that the fuzzer gets past it.
func withSum(data []byte) []byte {
	if len(data) < frameSum {
		return data
	}
	return resum(data, len(data)-1, 0)
}

// FuzzRow: a row that is accepted is what the encoder writes.
func FuzzRow(f *testing.F) {
	for _, r := range samples() {
		f.Add(row{roleSubject | roleFile, true, 7, r.ID(), r.Kind, r.TenantID}.encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRow(data)
		if err == nil && !bytes.Equal(r.encode(), data) {
			t.Errorf("%x decodes and encodes to %x", data, r.encode())
		}
	})
}

func TestDamagedRowsAreRefused(t *testing.T) {
	good := row{roleSubject, true, 7, wire.RecordID{1}, "metadata", alice}.encode()
	if _, err := decodeRow(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":        func([]byte) []byte { return nil },
		"cut":          func(b []byte) []byte { return b[:rowFixed-1] },
		"cut in kind":  func(b []byte) []byte { return b[:rowFixed+3] },
		"version":      func(b []byte) []byte { b[0] = 2; return b },
		"no role":      func(b []byte) []byte { b[1] = 0; return b },
		"unknown role": func(b []byte) []byte { b[1] = 16; return b },
		"flags":        func(b []byte) []byte { b[2] = 2; return b },
	} {
		if r, err := decodeRow(change(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestDecodedRecordSharesNoMemory(t *testing.T) {
	r := fileRecord(alice, digest("subject"))
	r.Kind, r.File, r.Body, r.ShareWith = "ocr", nil, []byte("body"), []wire.Share{{TenantID: bob, Mode: wire.ModeFiles}}
	data := mustEncode(t, sampleEnvelope(r), r)
	rec := mustDecode(t, data).record()
	clear(data)
	if rec.ComputeID() != r.ID() || rec.ID != r.ID() || string(rec.Body) != "body" {
		t.Errorf("after the frame was overwritten: %+v", rec)
	}
	rowData := row{roleSubject, true, 7, r.ID(), r.Kind, r.TenantID}.encode()
	got, err := decodeRow(rowData)
	if err != nil {
		t.Fatal(err)
	}
	clear(rowData)
	if got.id != r.ID() || got.kind != "ocr" || got.tenant != alice {
		t.Errorf("after the row was overwritten: %+v", got)
	}
}
