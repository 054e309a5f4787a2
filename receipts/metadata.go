package receipts

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// sisters says which public and private metadata records are one receipt.
type sisters struct {
	private map[int]*Held // by the index of the public record
	taken   map[int]bool  // private records that stand with a public one
}

// family is what the records of one receipt have in common.
type family struct {
	submission wire.SubmissionID
	tenant     wire.TenantID
}

// pair finds the sisters among records. A submission of ours has at most one of
// each; should a peer's have more, they pair up in the order of their parts, those
// that are vouched for before others. A record without a submission stands alone.
func pair(records []Held, vouched func(*Held) bool) sisters {
	var public, private []int
	for i := range records {
		switch r := &records[i].Record; {
		case r.SubmissionID == "":
		case r.Kind == wire.KindMetadata:
			public = append(public, i)
		case r.Kind == wire.KindPrivateMetadata:
			private = append(private, i)
		}
	}
	behind := func(i int) int {
		if vouched(&records[i]) {
			return 0
		}
		return 1
	}
	byPart := func(a, b int) int {
		r, s := &records[a].Record, &records[b].Record
		return cmp.Or(behind(a)-behind(b), cmp.Compare(r.Part, s.Part), bytes.Compare(r.ID[:], s.ID[:]))
	}
	slices.SortFunc(public, byPart)
	slices.SortFunc(private, byPart)
	waiting := map[family][]int{}
	for _, i := range private {
		f := familyOf(&records[i].Record)
		waiting[f] = append(waiting[f], i)
	}
	out := sisters{map[int]*Held{}, map[int]bool{}}
	for _, i := range public {
		f := familyOf(&records[i].Record)
		if queue := waiting[f]; len(queue) > 0 {
			out.private[i], out.taken[queue[0]] = &records[queue[0]], true
			waiting[f] = queue[1:]
		}
	}
	return out
}

func familyOf(r *wire.Record) family { return family{r.SubmissionID, r.TenantID} }

// metadata is the receipt of a public record, a private one, or both; the one
// that is missing is nil. It stands where the public record does, and names the
// archives that hold any of it.
func (v *View) metadata(public, private *Held) (out wire.Receipt, err error) {
	first := cmp.Or(public, private)
	out = wire.Receipt{
		Kind:         wire.ReceiptMetadataAttach,
		AttachedAt:   ShownAt(&first.Record),
		RecordID:     first.Record.ID,
		SubmissionID: first.Record.SubmissionID,
		ArchiveIDs:   first.ArchiveIDs,
		Retention:    v.retention(&first.Record),
	}
	if public != nil {
		v.addPublic(&out, &public.Record)
	}
	if private != nil && v.shows(&private.Record) {
		out.ArchiveIDs = union(out.ArchiveIDs, private.ArchiveIDs)
		if public != nil {
			out.PrivateRetention = v.retention(&private.Record)
		}
		err = v.addPrivate(&out, private.Record)
	}
	return out, err
}

// addPublic adds public metadata. Bytes that are no JSON object can not be shown
// as one: their digest and the record's id stay, by which the exact bytes can be
// fetched. A viewer who sees proofs only has no body here.
func (v *View) addPublic(out *wire.Receipt, r *wire.Record) {
	out.PublicMetadataSHA256 = r.BodySHA256
	if showable(r.Body) {
		out.PublicMetadata = r.Body
	}
	if seal, ok := v.SideSeals[r.BodySHA256]; ok {
		out.PublicMetadataSeal = &seal
	}
}

// addPrivate adds private metadata, opened if the view can open it.
func (v *View) addPrivate(out *wire.Receipt, r wire.Record) error {
	out.PrivateRecordID = r.ID
	if v.OpenPrivate == nil {
		return nil
	}
	plaintext, err := v.OpenPrivate(r)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // the key was forgotten: closed for ever, and rightly so
	case err != nil:
		return fmt.Errorf("receipts: private metadata of record %s: %w", r.ID, err)
	case showable(plaintext):
		out.PrivateMetadata = plaintext
	}
	return nil
}

// showable reports whether the bytes are an object that can stand in the JSON
// of a job and be read by strict readers.
func showable(data []byte) bool { return wire.CheckObject(data) == nil }
