package archive

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// What a peer gets is what was put, byte for byte and with its id.
func TestPortableIsWhatWasPut(t *testing.T) {
	n := newNode(t)
	file := fileRecord(alice, digest("subject"))
	n.cfg.Files.(*files).add(file.File.SHA256, digest("root"))
	private := metadata(alice, digest("subject"), "sealed bytes, not JSON \x00\xff")
	private.Kind = wire.KindPrivateMetadata
	control := wire.PutRecord{Kind: wire.KindShare, SHA256: digest("shared"), TenantID: bob, AttachedAt: "2025-05-19T12:00:00.000000001Z", ShareWith: []wire.Share{{TenantID: carol, Mode: wire.ModeFiles}}}
	for _, r := range []wire.PutRecord{metadata(alice, digest("subject"), `{"a": 1 }`), private, file, control} {
		ack := mustPut(t, n, r)
		got, err := n.Portable(t.Context(), ack.RecordID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got); diff != "" || got.ID() != ack.RecordID {
			t.Errorf("%s (-put +portable):\n%s", r.Kind, diff)
		}
	}
	if _, err := n.Portable(t.Context(), wire.RecordID(digest("subject"))); fault.CodeOf(err) != CodeNoRecord {
		t.Errorf("a subject is not a record: %v", err)
	}
}

func TestHasIsTrueOnlyOfWhatCanBeRead(t *testing.T) {
	n := newNode(t)
	file := fileRecord(alice, digest("subject"))
	n.cfg.Files.(*files).add(file.File.SHA256, digest("root"))
	note := mustPut(t, n, metadata(alice, digest("subject"), `{}`)).RecordID
	scan := mustPut(t, n, file).RecordID
	absent := wire.RecordID(digest("nothing"))
	requireHas(t, n, []wire.RecordID{absent, scan, note, absent, note}, false, true, true, false, true)

	whole := n.cfg.Files
	defer func() { n.cfg.Files = whole }()
	n.cfg.Files = shortFiles{whole}
	requireHas(t, n, []wire.RecordID{scan, note}, false, true)
	n.cfg.Files = brokenFiles{fault.New(fault.Corrupt, "CORRUPT", "blob: rotten")}
	requireHas(t, n, []wire.RecordID{scan, note}, false, true)
	n.cfg.Files = brokenFiles{fault.New(fault.Transient, "CLOSED", "blob: closed")}
	if _, err := n.HasRecords(t.Context(), []wire.RecordID{scan}); !fault.Is(err, fault.Transient) {
		t.Errorf("a store that can not say: %v", err)
	}
	n.cfg.Files = nil
	requireHas(t, n, []wire.RecordID{scan, note}, false, true)
}

// shortFiles has files that are cut.
type shortFiles struct{ Files }

func (shortFiles) Size(context.Context, [32]byte, string) (int64, error) { return fileSize - 1, nil }

func requireHas(t *testing.T, n *Node, ids []wire.RecordID, want ...bool) {
	t.Helper()
	got, err := n.HasRecords(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("has (-want +got):\n%s", diff)
	}
}

// A frame that rotted is not had, is not sent, is not listed, and puts the
// archive in quarantine.
func TestADamagedRecordIsNotHad(t *testing.T) {
	n := newNode(t)
	whole := mustPut(t, n, metadata(alice, digest("a"), `{"n":1}`)).RecordID
	rotten := mustPut(t, n, metadata(alice, digest("b"), `{"n":2}`))
	spoil(t, n, rotten.Seq)
	requireHas(t, n, []wire.RecordID{rotten.RecordID, whole}, false, true)
	if _, err := n.Portable(t.Context(), rotten.RecordID); fault.CodeOf(err) != CodeNoRecord {
		t.Errorf("portable: %v", err)
	}
	page, err := n.RecordIDs(t.Context(), 0, 0)
	want := wire.SyncPage{Records: []wire.SyncEntry{{Seq: 1, RecordID: whole, Kind: wire.KindMetadata}}, Next: 2, End: 2}
	if diff := cmp.Diff(want, page); diff != "" || err != nil {
		t.Errorf("%v; page (-want +got):\n%s", err, diff)
	}
	if n.health.damage() == "" {
		t.Error("the archive thinks that it is well")
	}
}

// spoil flips a bit of a stored frame, behind the back of the node.
func spoil(t *testing.T, n *Node, seq uint64) {
	t.Helper()
	data, closer, err := n.db.Get(logKey(seq))
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), data...)
	bad[len(bad)/2] ^= 1
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.db.Set(logKey(seq), bad, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// Pages follow one another without a gap or a repetition, whatever their size.
func TestPagesListEveryRecordOnce(t *testing.T) {
	n := newNode(t)
	var want []wire.SyncEntry
	for i := range 10 {
		ack := mustPut(t, n, metadata(alice, digest("s"), `{"n":`+string(rune('0'+i))+`}`))
		want = append(want, wire.SyncEntry{Seq: ack.Seq, RecordID: ack.RecordID, Kind: wire.KindMetadata})
	}
	for limit := range 12 {
		var got []wire.SyncEntry
		for after, pages := uint64(0), 0; ; pages++ {
			page, err := n.RecordIDs(t.Context(), after, limit)
			if err != nil || pages > 11 {
				t.Fatal(err, pages)
			}
			if got = append(got, page.Records...); page.Next >= page.End {
				break
			}
			after = page.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	if page, err := n.RecordIDs(t.Context(), 99, 5); err != nil || len(page.Records) != 0 || page.Next != 10 {
		t.Errorf("beyond the end: %+v, %v", page, err)
	}
}
