package wire

import "strings"

// Operations of mirrors on an archive's ctl subject, in HeaderOp. An aggregator
// copies the filter of an archive with them, is told what is added to it (Delta,
// on SubjectFilterPrefix), and is waited for by the archive while it has a lease.
const (
	OpLease    = "lease"    // LeaseRequest -> LeaseGrant
	OpSnapshot = "snapshot" // SnapshotRequest -> SnapshotHead, or bytes with HeaderOffset and HeaderSize
	OpDeltas   = "deltas"   // DeltasRequest -> Delta
	OpAck      = "ack"      // DeltaAck, no reply
	OpDirect   = "query"    // Query, answered on SubjectReplyPrefix as one that names this archive
)

// Limits of what is said about mirrors.
const (
	MaxDeltaHashes = 8192    // of one Delta
	HashSize       = 16      // bytes of one of them
	MaxFeed        = 128     // bytes of a feed, a holder or a session
	MaxLeaseMs     = 3600000 // of one LeaseGrant
)

// Delta is a part of what an archive's process added to its filter: the hashes at
// the positions from From up to, and without, To. Positions count the hashes of a
// feed, and nothing is left out of it. Every record up to Seq is in what was added
// up to To.
type Delta struct {
	ArchiveID ArchiveID `json:"archiveId"`
	Feed      string    `json:"feed"`
	KeyID     string    `json:"keyId"` // of the filter key, 8 hex digits
	From      uint64    `json:"from"`
	To        uint64    `json:"to"`
	Seq       uint64    `json:"seq"`
	Hashes    []byte    `json:"hashes"` // HashSize bytes each: A and B, little-endian
}

// LeaseRequest asks that the archive wait for this holder, which has applied all
// deltas of the feed up to At; or, with Release, that it wait no longer.
type LeaseRequest struct {
	Holder  string `json:"holder"`
	Feed    string `json:"feed"`
	At      uint64 `json:"at"`
	Release bool   `json:"release,omitzero"`
}

// LeaseGrant answers LeaseRequest. For LeaseMs milliseconds from the moment at
// which the holder asked, no put is acknowledged before he has its delta. What he
// has may be relied upon once it reaches Need; the archive is at At.
type LeaseGrant struct {
	ArchiveID ArchiveID `json:"archiveId"`
	Feed      string    `json:"feed"`
	LeaseMs   int64     `json:"leaseMs"` // 0 answers a release
	Need      uint64    `json:"need"`
	At        uint64    `json:"at"`
}

// DeltaAck says that a holder has applied all deltas of the feed up to At.
type DeltaAck struct {
	Holder string `json:"holder"`
	Feed   string `json:"feed"`
	At     uint64 `json:"at"`
}

// DeltasRequest asks for what came after a position of the feed, as much as fits
// into one Delta.
type DeltasRequest struct {
	Feed  string `json:"feed"`
	After uint64 `json:"after"`
}

// SnapshotRequest begins to copy the filter, or asks for a fragment of the copy
// that Session names, at most FragmentSize bytes. Fragments are asked for in their
// order, the last one as often as it takes.
type SnapshotRequest struct {
	Session string `json:"session,omitzero"`
	Offset  uint64 `json:"offset,omitzero"`
}

// SnapshotHead answers the begin of a copy, which has Size bytes. All that was
// added up to the position At of the feed is in it, and with that every record up
// to Seq.
type SnapshotHead struct {
	ArchiveID ArchiveID `json:"archiveId"`
	Feed      string    `json:"feed"`
	KeyID     string    `json:"keyId"` // as in Delta
	Session   string    `json:"session"`
	At        uint64    `json:"at"`
	Seq       uint64    `json:"seq"`
	Size      uint64    `json:"size"`
}

// nameGrammar is that of feeds, holders and sessions: what their makers give.
var nameGrammar = grammar{"a name", MaxFeed,
	chars("AZ", "az", "09"), chars("AZ", "az", "09", ".", "_", "-"), "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"}

// Check reports the first rule that d breaks, as an *Error.
func (d Delta) Check() error {
	if err := checkFeed(d.ArchiveID, d.Feed, d.KeyID); err != nil {
		return err
	}
	switch {
	case d.To < d.From || d.To-d.From > MaxDeltaHashes:
		return refuse("to", "%d after from %d; a delta has from 0 to %d hashes", d.To, d.From, MaxDeltaHashes)
	case uint64(len(d.Hashes)) != HashSize*(d.To-d.From):
		return refuse("hashes", "%d bytes; %d hashes of %d bytes are from %d to %d", len(d.Hashes), d.To-d.From, HashSize, d.From, d.To)
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error.
func (r LeaseRequest) Check() error { return checkHolder(r.Holder, r.Feed) }

// Check reports the first rule that g breaks, as an *Error.
func (g LeaseGrant) Check() error {
	if err := archiveGrammar.check(string(g.ArchiveID)); err != nil {
		return err.in("archiveId")
	}
	if err := nameGrammar.check(g.Feed); err != nil {
		return err.in("feed")
	}
	if g.LeaseMs < 0 || g.LeaseMs > MaxLeaseMs {
		return refuse("leaseMs", "%d; a lease is from 0 to %d ms", g.LeaseMs, MaxLeaseMs)
	}
	return nil
}

// Check reports the first rule that a breaks, as an *Error.
func (a DeltaAck) Check() error { return checkHolder(a.Holder, a.Feed) }

// Check reports the first rule that r breaks, as an *Error.
func (r DeltasRequest) Check() error {
	if err := nameGrammar.check(r.Feed); err != nil {
		return err.in("feed")
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error.
func (r SnapshotRequest) Check() error {
	if r.Session == "" {
		if r.Offset != 0 {
			return refuse("session", "missing; only a copy that was begun has an offset")
		}
		return nil
	}
	if err := nameGrammar.check(r.Session); err != nil {
		return err.in("session")
	}
	return nil
}

// Check reports the first rule that h breaks, as an *Error.
func (h SnapshotHead) Check() error {
	if err := checkFeed(h.ArchiveID, h.Feed, h.KeyID); err != nil {
		return err
	}
	if err := nameGrammar.check(h.Session); err != nil {
		return err.in("session")
	}
	return nil
}

// checkFeed is the rule for what an archive says of its filter.
func checkFeed(id ArchiveID, feed, keyID string) error {
	if err := archiveGrammar.check(string(id)); err != nil {
		return err.in("archiveId")
	}
	if err := nameGrammar.check(feed); err != nil {
		return err.in("feed")
	}
	if len(keyID) != 8 || strings.Trim(keyID, "0123456789abcdef") != "" {
		return refuse("keyId", "%s; the id of a filter key is 8 hex digits in lower case", show(keyID))
	}
	return nil
}

// checkHolder is the rule for what a holder says of himself.
func checkHolder(holder, feed string) error {
	if err := nameGrammar.check(holder); err != nil {
		return err.in("holder")
	}
	if err := nameGrammar.check(feed); err != nil {
		return err.in("feed")
	}
	return nil
}
