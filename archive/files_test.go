package archive

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

const (
	fileCID  = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
	otherCID = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
)

// fileRecord is a file record with every optional field.
func fileRecord(tenant wire.TenantID, subject wire.Digest) wire.PutRecord {
	return wire.PutRecord{
		Kind: wire.KindFile, SHA256: subject, TenantID: tenant, SubmissionID: "018fa2b4-5f03-7cc1-a1b2-0242ac120002", Part: 2,
		AttachedAt: "2025-05-19T12:00:00.000000001Z",
		File:       &wire.File{Name: "scan é.pdf", Size: fileSize, SHA256: digest("bytes of the file"), CID: fileCID, ContentType: "application/pdf"},
		ShareWith:  []wire.Share{{TenantID: bob, Mode: wire.ModeMetadata}, {TenantID: carol, Mode: wire.ModeFiles}},
	}
}

func TestFileRecordWaitsForItsBytes(t *testing.T) {
	n := newNode(t)
	r := fileRecord(alice, digest("subject"))
	put := wire.Put{PutID: wire.NewPutID(), Record: r}
	_, err := n.Put(t.Context(), put)
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "FILE_MISSING" {
		t.Fatalf("without the bytes: %v, want FILE_MISSING", err)
	}
	if got := ask(t, n, alice, r.SHA256); got != nil {
		t.Errorf("the refused record is answered: %v", got)
	}
	n.cfg.Files.(*files).add(r.File.SHA256, digest("root"))
	if ack, err := n.Put(t.Context(), put); err != nil || ack.Duplicate {
		t.Errorf("with the bytes: %+v, %v", ack, err)
	}
}

// A record that states another size than the file has is refused: its readers
// would get a file that never ends as it should.
func TestFileRecordStatesTheSize(t *testing.T) {
	n := newNode(t)
	r := fileRecord(alice, digest("subject"))
	n.cfg.Files.(*files).add(r.File.SHA256, digest("root"))
	n.cfg.Files.(*files).resize(r.File.SHA256, fileSize-1)
	_, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r})
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "FILE_SIZE" || fault.FieldOf(err) != "record.file.size" {
		t.Errorf("a record of another size: %v", err)
	}
	if n.Seq() != 0 {
		t.Errorf("%d records are stored", n.Seq())
	}
}

// brokenFiles answers everything with an error.
type brokenFiles struct{ err error }

func (b brokenFiles) Blocks(context.Context, [32]byte, string) ([][32]byte, error) { return nil, b.err }

func (b brokenFiles) Size(context.Context, [32]byte, string) (int64, error) { return 0, b.err }

func (b brokenFiles) Holds(context.Context, [32]byte) (bool, error) { return false, b.err }

func TestFileStoreErrorsPass(t *testing.T) {
	broken := errors.New("broken")
	n := newNode(t)
	n.cfg.Files = brokenFiles{fault.New(fault.Corrupt, "CORRUPT", "blob: %w", broken)}
	r := fileRecord(alice, digest("subject"))
	if _, err := n.Put(t.Context(), wire.Put{Record: r}); !fault.Is(err, fault.Corrupt) || !errors.Is(err, broken) {
		t.Errorf("got %v, want the store's own error", err)
	}
	n.cfg.Files = nil
	if _, err := n.Put(t.Context(), wire.Put{Record: r}); fault.CodeOf(err) != "FILE_MISSING" {
		t.Errorf("an archive without files: %v", err)
	}
}

// TestFileIsKeyedUnderAllItsDigests: subject, record id, SHA-256 of the file and
// every block, each once although some are equal.
func TestFileIsKeyedUnderAllItsDigests(t *testing.T) {
	n := newNode(t)
	r := fileRecord(alice, digest("bytes of the file")) // the subject is the file
	root, leaf := digest("root"), digest("leaf")
	n.cfg.Files.(*files).add(r.File.SHA256, root, leaf, leaf, r.File.SHA256)
	id := mustPut(t, n, r).RecordID
	for name, d := range map[string]wire.Digest{
		"subject and file": r.SHA256, "record id": wire.Digest(id), "root": root, "leaf": leaf,
	} {
		if diff := cmp.Diff([]wire.RecordID{id}, ask(t, n, alice, d)); diff != "" {
			t.Errorf("under the %s: %s", name, diff)
		}
	}
	report, err := n.Check(t.Context())
	report.Tables, report.Bytes, report.Began, report.Ended = 0, 0, 0, 0
	if diff := cmp.Diff(CheckReport{Records: 1, Leaves: 1, IndexRows: 4, TenantRows: 1, PutIDs: 1}, report); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestFileOf(t *testing.T) {
	n := newNode(t)
	blocks, store := digest("block"), n.cfg.Files.(*files)
	r := fileRecord(alice, digest("subject"))
	store.add(r.File.SHA256, blocks, digest("root"))
	mustPut(t, n, r)

	// Another file of another tenant that shares the block, and has it for root.
	other := fileRecord(bob, digest("elsewhere"))
	other.File = &wire.File{Size: fileSize, SHA256: digest("other file"), CID: otherCID}
	other.ShareWith = nil
	store.add(other.File.SHA256, blocks)
	mustPut(t, n, other)

	// A file that somebody attached to the digest of the block: that gives no
	// right to the block.
	attached := fileRecord(carol, blocks)
	attached.File = &wire.File{Size: fileSize, SHA256: digest("attached"), CID: fileCID}
	store.add(attached.File.SHA256, digest("its only block"))
	mustPut(t, n, attached)

	for _, tc := range []struct {
		viewer wire.TenantID
		cid    string
		digest wire.Digest
		want   wire.Digest // SHA-256 of the file; zero for silence
	}{
		{alice, fileCID, blocks, r.File.SHA256},
		{alice, otherCID, blocks, r.File.SHA256}, // a block of his file, by its own CID
		{alice, fileCID, digest("root"), r.File.SHA256},
		{bob, otherCID, blocks, other.File.SHA256},
		{bob, fileCID, digest("root"), wire.Digest{}}, // shared in mode B only
		{carol, fileCID, blocks, r.File.SHA256},       // shared in mode C
		{carol, fileCID, digest("its only block"), attached.File.SHA256},
		{"dave", fileCID, blocks, wire.Digest{}},
		{alice, fileCID, digest("nothing"), wire.Digest{}},
		{alice, fileCID, r.SHA256, wire.Digest{}}, // the subject is no block
	} {
		got, ok, err := n.FileOf(t.Context(), tc.viewer, tc.cid, tc.digest)
		if err != nil {
			t.Fatal(err)
		}
		if got.SHA256 != tc.want || ok == tc.want.IsZero() {
			t.Errorf("%s asks for %s %s: %v %+v", tc.viewer, tc.cid, tc.digest, ok, got)
		}
	}
	// With two files that he may read, the one whose root he asks for.
	mine := other
	mine.TenantID = alice
	mustPut(t, n, mine)
	if got, _, err := n.FileOf(t.Context(), alice, otherCID, blocks); err != nil || got.SHA256 != other.File.SHA256 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Everybody sees what is shared with everybody in mode C, and nothing else.
func TestFileOfEverybody(t *testing.T) {
	n := newNode(t)
	store := n.cfg.Files.(*files)
	for i, share := range []wire.Share{{TenantID: carol, Mode: wire.ModeFiles}, {TenantID: wire.Public, Mode: wire.ModeMetadata}, {TenantID: wire.Public, Mode: wire.ModeFiles}} {
		name := string(rune('a' + i))
		r := fileRecord(alice, digest("subject "+name))
		r.File.SHA256, r.ShareWith = digest("file "+name), []wire.Share{share}
		store.add(r.File.SHA256, digest("block "+name))
		mustPut(t, n, r)
		for _, cid := range []string{"", fileCID} {
			got, ok, err := n.FileOf(t.Context(), wire.Public, cid, digest("block "+name))
			if public := i == 2; err != nil || ok != public || public && got.SHA256 != r.File.SHA256 {
				t.Errorf("shared with %s: %v %+v, %v", share, ok, got, err)
			}
		}
		if _, ok, err := n.FileOf(t.Context(), alice, "", digest("block "+name)); err != nil || !ok {
			t.Errorf("its owner: %v, %v", ok, err)
		}
	}
	q := query(wire.Public, digest("subject c"))
	if reply, ok, err := n.Answer(t.Context(), q); err != nil || !ok || len(reply.Records) != 1 {
		t.Errorf("a query without a key: %v, %v", ok, err)
	}
	q.SHA256 = digest("subject a")
	if _, ok, err := n.Answer(t.Context(), q); err != nil || ok {
		t.Errorf("a query without a key about what is not everybody's: %v, %v", ok, err)
	}
}

// A file that was recorded many times is found by its first record.
func TestFileOfReadsNoMoreThanItNeeds(t *testing.T) {
	n := newNode(t)
	r := fileRecord(alice, digest("subject"))
	n.cfg.Files.(*files).add(r.File.SHA256, digest("root"))
	mustPut(t, n, r)
	const more = 50
	for i := range more {
		r.Part = i + 3
		mustPut(t, n, r)
	}
	var s sight
	hits, rows, err := n.blockHits(t.Context(), digest("root"), alice, &s)
	if err != nil || len(hits) != more+1 || rows != more+1 {
		t.Fatalf("%d hits of %d rows, %v", len(hits), rows, err)
	}
	hits[1].id = wire.RecordID{} // would be damage
	for _, cid := range []string{"", fileCID} {
		if f, ok, err := n.firstFile(t.Context(), hits, alice, cid, &s); !ok || err != nil || f.CID != fileCID {
			t.Errorf("%q: %v, %v", cid, ok, err)
		}
	}
	if _, _, err := n.firstFile(t.Context(), hits, alice, otherCID, &s); !fault.Is(err, fault.Corrupt) {
		t.Errorf("another root: %v", err)
	}
}

func TestCheckMissesTheBytesOfAFile(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	r := fileRecord(alice, digest("subject"))
	c.Files.(*files).add(r.File.SHA256, digest("root"))
	mustPut(t, n, r)
	clear(c.Files.(*files).blocks)
	if _, err := n.Check(t.Context()); !fault.Is(err, fault.Corrupt) || n.Hello().State != wire.StateReadonly {
		t.Errorf("got %v in state %s", err, n.Hello().State)
	}
}
