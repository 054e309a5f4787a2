package archive

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// sampleGenerations are a first generation and one that continues it.
func sampleGenerations() map[string]generation {
	return map[string]generation{
		"first": {
			Version: 1, ArchiveID: "archive-a", Generation: 1, PublicKey: bytes.Repeat([]byte{7}, 32), FirstSeq: 1, CreatedAt: 1747656000123456789,
		},
		"second": {
			Version: 1, ArchiveID: "archive-a", Generation: 2, PublicKey: bytes.Repeat([]byte{8}, 32), FirstSeq: 1050, CreatedAt: 1747656100123456789,
			PrevSize: 1041, PrevRoot: bytes.Repeat([]byte{9}, 32), Remembered: "archive-a/g1\n1048\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n", RememberedSeq: 1048,
		},
	}
}

// sampleCommit is the commit of leaves 3 to 5 of a log, in the places 3 to 5.
func sampleCommit() commitRow {
	c := commitRow{first: 3, last: 5}
	edge := new(tlogx.Edge)
	for i := range 5 {
		edge.Append(tlog.RecordHash([]byte{byte(i)}), func(_ int64, h tlog.Hash) {
			if i >= 2 {
				c.hashes = append(c.hashes, h)
			}
		})
	}
	return c
}

func mustRow(t testing.TB, g generation) []byte {
	t.Helper()
	b, err := g.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLayoutIsFrozen compares the rows that are not of one kind of record, and
// the skeleton, with a file that never changes.
func TestLayoutIsFrozen(t *testing.T) {
	var out strings.Builder
	line := func(what string, b []byte) { fmt.Fprintf(&out, "%s %s\n", what, hex.EncodeToString(b)) }
	for _, name := range slices.Sorted(maps.Keys(sampleGenerations())) {
		g := sampleGenerations()[name]
		line("generationKey", generationKey(g.Generation))
		line("generation", mustRow(t, g))
	}
	genesis, err := sampleGenerations()["second"].genesis()
	if err != nil {
		t.Fatal(err)
	}
	line("genesis", genesis)
	line("commitKey", commitKey(sampleCommit().last))
	line("commit", sampleCommit().encode())
	line("tenantKey", tenantKey(tagOf(alice), 1747656000123456789, 42))
	line("lostKey", lostKey(42))
	full, bare := sampleEnvelope(metadata(alice, digest("subject"), `{}`)), sampleEnvelope(wire.PutRecord{})
	line("stub", mustStub(t, full, wire.RecordID(digest("record"))))
	line("stub", mustStub(t, bare, wire.RecordID(digest("record"))))
	line("skeletonHeader", skeletonHead())
	file, err := lineage{sampleGenerations()["first"], sampleGenerations()["second"]}.encode()
	if err != nil {
		t.Fatal(err)
	}
	line("generations", file)
	line("bone", bone{seq: 42, storedAt: 1747656000123456789, id: wire.RecordID(digest("record")), putID: putKey{1, 2, 15: 16}}.append(nil))
	golden(t, "layout.v2.txt", out.String())
}

// A stub has the leaf of the record that it stands for.
func TestStubProvesTheLeaf(t *testing.T) {
	for name, r := range samples() {
		e := sampleEnvelope(r)
		want, err := leafBytes(mustDecode(t, mustEncode(t, e, r)))
		if err != nil {
			t.Fatal(err)
		}
		stub := mustDecode(t, mustStub(t, e, r.ID()))
		got, err := leafBytes(stub)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: leaf %x, of the stub %x, %v", name, want, got, err)
		}
		if rec := stub.record(); rec.ID != r.ID() || rec.Seq != e.seq || stub.verify(&rec) == nil {
			t.Errorf("%s: the stub is taken for a record: %+v", name, rec)
		}
	}
}

func TestDamagedStubsAreRefused(t *testing.T) {
	good := mustStub(t, sampleEnvelope(metadata(alice, digest("subject"), `{}`)), wire.RecordID{1})
	head, _, err := splitFrame(good)
	if err != nil {
		t.Fatal(err)
	}
	r := metadata(alice, digest("subject"), `{}`)
	recordHead, _, err := splitFrame(mustEncode(t, sampleEnvelope(r), r))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"with a body":           assemble(frameStub, head, []byte("x")),
		"with a record's field": assemble(frameStub, recordHead, nil),
		"as a record":           assemble(0, head, nil),
		"with a short id":       assemble(frameStub, bytes.Replace(head, []byte("\x58\x20\x01"), []byte("\x58\x1f"), 1), nil),
	} {
		if f, err := decodeFrame(b); !errors.Is(err, errFrame) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestGenerationsAreWellFormed(t *testing.T) {
	first, second := sampleGenerations()["first"], sampleGenerations()["second"]
	if first.base() != 1 || second.base() != 1049 || first.origin() != "archive-a/g1" || second.origin() != "archive-a/g2" {
		t.Errorf("%d %d %s %s", first.base(), second.base(), first.origin(), second.origin())
	}
	for name, change := range map[string]func(g *generation){
		"version":                     func(g *generation) { g.Version = 2 },
		"no archive":                  func(g *generation) { g.ArchiveID = "" },
		"no key":                      func(g *generation) { g.PublicKey = nil },
		"no root before":              func(g *generation) { g.PrevRoot = nil },
		"no place for the genesis":    func(g *generation) { g.FirstSeq = g.RememberedSeq + 1 },
		"sequences used again":        func(g *generation) { g.PrevSize = g.FirstSeq },
		"another number than the key": func(g *generation) { g.Generation = 3 },
		"a first one with a past":     func(g *generation) { g.Generation, g.FirstSeq = 1, 1 },
		"generation 0":                func(g *generation) { g.Generation = 0 },
	} {
		g := second
		change(&g)
		number := g.Generation
		if number == 3 {
			number = 2
		}
		b := mustRow(t, g)
		if got, err := decodeGeneration(number, b); !errors.Is(err, errGeneration) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := decodeGeneration(2, mustRow(t, first)); !errors.Is(err, errGeneration) {
		t.Errorf("a row under another key: %v", err)
	}
}

func TestDamagedCommitsAreRefused(t *testing.T) {
	good := sampleCommit()
	if _, err := decodeCommit(good.last+1, good.encode()); !errors.Is(err, errCommit) {
		t.Errorf("under another key: %v", err)
	}
	for name, c := range map[string]commitRow{
		"from 0":         {first: 0, last: 5, hashes: good.hashes},
		"from beyond":    {first: 6, last: 5, hashes: good.hashes},
		"too few hashes": {first: 3, last: 5, hashes: good.hashes[:2]},
	} {
		if got, err := decodeCommit(c.last, c.encode()); !errors.Is(err, errCommit) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestEveryFlippedBitOfARowIsFound flips each bit of the rows that have a
// checksum of their own.
func TestEveryFlippedBitOfARowIsFound(t *testing.T) {
	second, commit := sampleGenerations()["second"], sampleCommit()
	for name, tc := range map[string]struct {
		data   []byte
		decode func([]byte) error
	}{
		"generation": {mustRow(t, second), func(b []byte) error { _, err := decodeGeneration(2, b); return err }},
		"commit":     {commit.encode(), func(b []byte) error { _, err := decodeCommit(commit.last, b); return err }},
		"bone":       {bone{seq: 1, id: wire.RecordID{1}}.append(nil), func(b []byte) error { _, err := decodeBone(b); return err }},
		"skeleton":   {skeletonHead(), checkSkeletonHead},
		"stub":       {mustStub(t, sampleEnvelope(wire.PutRecord{}), wire.RecordID{1}), func(b []byte) error { _, err := decodeFrame(b); return err }},
	} {
		if err := tc.decode(tc.data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for bit := range 8 * len(tc.data) {
			tc.data[bit/8] ^= 1 << (bit % 8)
			if tc.decode(tc.data) == nil {
				t.Errorf("%s: bit %d flipped: decoded", name, bit)
			}
			tc.data[bit/8] ^= 1 << (bit % 8)
		}
		if tc.decode(tc.data[:len(tc.data)-1]) == nil || tc.decode(append(bytes.Clone(tc.data), 0)) == nil || tc.decode(nil) == nil {
			t.Errorf("%s: decoded with another length", name)
		}
	}
}

// sumKeyed gives a row a right checksum for its key, so that the fuzzer gets
// past it.
func sumKeyed(key, data []byte) []byte {
	if len(data) < frameSum {
		return data
	}
	text := data[:len(data)-frameSum]
	sum := keyedSum(key, text)
	return append(bytes.Clone(text), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

// FuzzGeneration: a row that is accepted is what the encoder writes.
func FuzzGeneration(f *testing.F) {
	for _, g := range sampleGenerations() {
		f.Add(g.Generation, mustRow(f, g))
	}
	f.Fuzz(func(t *testing.T, number int, data []byte) {
		b := sumKeyed(generationKey(number), data)
		g, err := decodeGeneration(number, b)
		if err == nil && !bytes.Equal(mustRow(t, g), b) {
			t.Errorf("%x decodes and encodes to %x", b, mustRow(t, g))
		}
	})
}

// FuzzCommit: a row that is accepted is what the encoder writes.
func FuzzCommit(f *testing.F) {
	f.Add(sampleCommit().last, sampleCommit().encode())
	f.Fuzz(func(t *testing.T, last uint64, data []byte) {
		b := sumKeyed(commitKey(last), data)
		c, err := decodeCommit(last, b)
		if err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x decodes and encodes to %x", b, c.encode())
		}
	})
}

// FuzzBone: an entry that is accepted is what the encoder writes.
func FuzzBone(f *testing.F) {
	f.Add(bone{seq: 42, storedAt: 7, id: wire.RecordID{1}}.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, sumKeyed(nil, data)} {
			e, err := decodeBone(b)
			if err == nil && !bytes.Equal(e.append(nil), b) {
				t.Errorf("%x decodes and encodes to %x", b, e.append(nil))
			}
		}
	})
}

// FuzzKeys: a key that is taken apart is what its parts make.
func FuzzKeys(f *testing.F) {
	f.Add(logKey(1))
	f.Add(commitKey(1))
	f.Add(lostKey(1))
	f.Add(indexKey(digest("x"), 1))
	f.Add(tenantKey(tagOf(alice), 7, 1))
	f.Fuzz(func(t *testing.T, key []byte) {
		var again []byte
		for _, prefix := range []byte{prefixLog, prefixCommit, prefixLost} {
			if seq, ok := keySeq(prefix, key); ok {
				again = seqKey(prefix, seq)
			}
		}
		if d, seq, ok := indexKeyParts(key); ok {
			again = indexKey(d, seq)
		}
		if tag, at, seq, ok := tenantKeyParts(key); ok {
			again = tenantKey(tag, at, seq)
		}
		if again != nil && !bytes.Equal(again, key) {
			t.Errorf("%x is taken apart and makes %x", key, again)
		}
	})
}
