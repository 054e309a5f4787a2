package wire

import (
	"strings"
	"testing"
)

func validDelta() Delta {
	return Delta{ArchiveID: "archive-a", Feed: "5RMC7Q4K2T.1", KeyID: "5eed0001", From: 7, To: 9, Seq: 4, Hashes: make([]byte, 2*HashSize)}
}

func TestDeltaCheck(t *testing.T) {
	for _, tt := range []struct {
		name, field, says string
		change            func(*Delta)
	}{
		{"valid", "", "", func(*Delta) {}},
		{"nothing", "", "", func(d *Delta) { d.To, d.Hashes = d.From, nil }},
		{"the most", "", "", func(d *Delta) { d.To, d.Hashes = d.From+MaxDeltaHashes, make([]byte, HashSize*MaxDeltaHashes) }},
		{"more than the most", "to", "8192 hashes", func(d *Delta) {
			d.To, d.Hashes = d.From+MaxDeltaHashes+1, make([]byte, HashSize*(MaxDeltaHashes+1))
		}},
		{"backwards", "to", "after from 7", func(d *Delta) { d.To = 6 }},
		{"a hash too few", "hashes", "16 bytes", func(d *Delta) { d.Hashes = d.Hashes[HashSize:] }},
		{"half a hash", "hashes", "31 bytes", func(d *Delta) { d.Hashes = d.Hashes[1:] }},
		{"no archive", "archiveId", "missing", func(d *Delta) { d.ArchiveID = "" }},
		{"no feed", "feed", "missing", func(d *Delta) { d.Feed = "" }},
		{"an odd feed", "feed", "'*'", func(d *Delta) { d.Feed = "a*" }},
		{"a long feed", "feed", "at most 128", func(d *Delta) { d.Feed = strings.Repeat("a", MaxFeed+1) }},
		{"a short key id", "keyId", "8 hex digits", func(d *Delta) { d.KeyID = "5eed" }},
		{"a key id in upper case", "keyId", "lower case", func(d *Delta) { d.KeyID = "5EED0001" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := validDelta()
			tt.change(&d)
			requireVerdict(t, d.Check(), tt.field, tt.says)
		})
	}
}

func TestPayloadsOfMirrorsCheck(t *testing.T) {
	head := SnapshotHead{ArchiveID: "archive-a", Feed: "b.1", KeyID: "5eed0001", Session: "s", At: 1, Seq: 1, Size: 1}
	grant := LeaseGrant{ArchiveID: "archive-a", Feed: "b.1", LeaseMs: MaxLeaseMs}
	for _, tt := range []struct {
		name, field, says string
		err               error
	}{
		{"lease", "", "", LeaseRequest{Holder: "aggregator.x", Feed: "b.1"}.Check()},
		{"lease of nobody", "holder", "missing", LeaseRequest{Feed: "b.1"}.Check()},
		{"lease of an odd name", "holder", "' '", LeaseRequest{Holder: "a b", Feed: "b.1"}.Check()},
		{"lease without a feed", "feed", "missing", LeaseRequest{Holder: "a"}.Check()},
		{"acknowledgement", "", "", DeltaAck{Holder: "a", Feed: "b.1"}.Check()},
		{"acknowledgement of nobody", "holder", "missing", DeltaAck{Feed: "b.1"}.Check()},
		{"grant", "", "", grant.Check()},
		{"grant without an archive", "archiveId", "missing", LeaseGrant{Feed: "b.1"}.Check()},
		{"grant without a feed", "feed", "missing", LeaseGrant{ArchiveID: "a"}.Check()},
		{"grant of the past", "leaseMs", "-1", LeaseGrant{ArchiveID: "a", Feed: "b.1", LeaseMs: -1}.Check()},
		{"grant for ever", "leaseMs", "3600001", LeaseGrant{ArchiveID: "a", Feed: "b.1", LeaseMs: MaxLeaseMs + 1}.Check()},
		{"range", "", "", DeltasRequest{Feed: "b.1", After: 7}.Check()},
		{"range of no feed", "feed", "missing", DeltasRequest{}.Check()},
		{"copy", "", "", SnapshotRequest{}.Check()},
		{"fragment", "", "", SnapshotRequest{Session: "s", Offset: 7}.Check()},
		{"fragment of no copy", "session", "missing", SnapshotRequest{Offset: 7}.Check()},
		{"fragment of an odd copy", "session", "'/'", SnapshotRequest{Session: "a/b"}.Check()},
		{"head", "", "", head.Check()},
		{"head without a copy", "session", "missing", SnapshotHead{ArchiveID: "a", Feed: "b.1", KeyID: "5eed0001"}.Check()},
		{"head without a key", "keyId", "8 hex digits", SnapshotHead{ArchiveID: "a", Feed: "b.1", Session: "s"}.Check()},
	} {
		t.Run(tt.name, func(t *testing.T) { requireVerdict(t, tt.err, tt.field, tt.says) })
	}
}

// The largest delta fits into a message of the smallest server that is admitted.
func TestTheLargestDeltaFitsIntoAMessage(t *testing.T) {
	d := validDelta()
	d.Feed, d.ArchiveID = strings.Repeat("f", MaxFeed), ArchiveID(strings.Repeat("a", MaxArchiveID))
	d.From, d.To, d.Seq = MaxInteger-MaxDeltaHashes, MaxInteger, MaxInteger
	d.Hashes = make([]byte, HashSize*MaxDeltaHashes)
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	data, err := Encode(d)
	if err != nil || len(data) > 256<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
