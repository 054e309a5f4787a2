package receipts

import (
	"bytes"
	"container/heap"
	"slices"

	"github.com/verae/archive/wire"
)

// Caps of one gathering. What is beyond them is not shown, and the answer is
// not complete.
const (
	// MaxRecords is how many different records are held.
	MaxRecords = 10_000

	// MaxBytes bounds the memory the held records take, in bytes.
	MaxBytes = 64 << 20
)

// recordOverhead is what a record costs beyond its texts and its body, in bytes.
const recordOverhead = 512

// holdings are the records gathered so far. When they exceed a cap, those with
// the highest ids go, and everything above the lowest that went is refused from
// then on: what remains is the longest run of lowest ids that fits, whatever
// the order of arrival.
type holdings struct {
	maxRecords int
	maxBytes   int

	byID  map[wire.RecordID]*Held
	ids   idHeap // the keys of byID, highest first
	bytes int
	cut   *wire.RecordID // nothing from here on is held; nil while all fits
}

func newHoldings(maxRecords, maxBytes int) holdings {
	return holdings{maxRecords: maxRecords, maxBytes: maxBytes}
}

// add merges a verified record that archive holds. It returns the archives
// whose answers have a hole now because the caps are reached.
func (h *holdings) add(archive wire.ArchiveID, r wire.Record) (short []wire.ArchiveID) {
	from := []wire.ArchiveID{archive}
	if h.cut != nil && bytes.Compare(r.ID[:], h.cut[:]) >= 0 {
		return from
	}
	if held, ok := h.byID[r.ID]; ok {
		held.merge(r, from)
		return nil
	}
	if h.byID == nil {
		h.byID = map[wire.RecordID]*Held{}
	}
	h.byID[r.ID] = &Held{Record: r, ArchiveIDs: from}
	heap.Push(&h.ids, r.ID)
	h.bytes += cost(&r)
	for len(h.ids) > h.maxRecords || h.bytes > h.maxBytes {
		short = union(short, h.evict().ArchiveIDs)
	}
	return short
}

func (h *holdings) evict() *Held {
	id := heap.Pop(&h.ids).(wire.RecordID)
	held := h.byID[id]
	delete(h.byID, id)
	h.bytes -= cost(&held.Record)
	h.cut = &id
	return held
}

// merge adds another copy of the same record. All that the id covers is equal;
// the rest is chosen so that the order of arrival does not matter.
func (h *Held) merge(r wire.Record, from []wire.ArchiveID) {
	h.ArchiveIDs = union(h.ArchiveIDs, from)
	h.Record.StoredAt = earlier(h.Record.StoredAt, r.StoredAt)
	h.Record.Retention = h.Record.Retention.Merge(r.Retention)
}

// same reports whether r, as an archive answered it, is the record that is held but for
// what is local to an archive. Then it was judged already. What rests on a state of
// retention is judged each time.
func (h *Held) same(r *wire.Record) bool {
	k := &h.Record
	return r.ID == k.ID && r.Kind == k.Kind && r.SHA256 == k.SHA256 && r.TenantID == k.TenantID &&
		r.SubmissionID == k.SubmissionID && r.Part == k.Part && r.AttachedAt == k.AttachedAt && r.ContentType == k.ContentType &&
		bytes.Equal(r.Body, k.Body) && r.BodySHA256 == k.BodySHA256 && slices.Equal(r.ShareWith, k.ShareWith) &&
		(r.File == k.File || r.File != nil && k.File != nil && *r.File == *k.File) && r.Retention == nil
}

func (h *holdings) list() []Held {
	out := make([]Held, 0, len(h.byID))
	for _, held := range h.byID {
		out = append(out, *held)
	}
	if len(out) < 2 {
		return out
	}
	return inOrder(out)
}

// cost depends only on what the id covers: copies of a record cost the same.
func cost(r *wire.Record) int {
	n := recordOverhead + len(r.Body) + len(r.Kind) + len(r.TenantID) + len(r.AttachedAt) + len(r.ContentType)
	for _, s := range r.ShareWith {
		n += len(s.TenantID) + len(s.Mode) + 32
	}
	if r.File != nil {
		n += len(r.File.Name) + len(r.File.CID) + len(r.File.ContentType)
	}
	return n
}

// idHeap is a heap with the highest id on top.
type idHeap []wire.RecordID

func (h idHeap) Len() int           { return len(h) }
func (h idHeap) Less(i, j int) bool { return bytes.Compare(h[i][:], h[j][:]) > 0 }
func (h idHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *idHeap) Push(x any)        { *h = append(*h, x.(wire.RecordID)) }
func (h *idHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
