package receipts

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/verae/archive/wire"
)

// ShownAt returns the time at which a record counts as attached: attachedAt, or
// for records of peers that give none the time at which the first copy was
// stored.
func ShownAt(r *wire.Record) wire.Time {
	if r.AttachedAt != "" {
		return r.AttachedAt
	}
	return r.StoredAt
}

// place is where a record stands in law 7's order. Instants are read once a
// record, not once a comparison.
type place struct {
	at   time.Time
	ok   bool // the text names an instant
	text wire.Time
	id   wire.RecordID
}

func placeOf(r *wire.Record) place {
	p := place{text: ShownAt(r), id: r.ID}
	p.at, p.ok = p.text.Instant()
	return p
}

// compare orders by instant, then by record id. Texts that name no instant come
// last, ordered as texts, so that the order stays total whatever peers write.
func (p place) compare(q place) int {
	switch {
	case p.ok != q.ok && p.ok:
		return -1
	case p.ok != q.ok:
		return 1
	case p.ok:
		if c := p.at.Compare(q.at); c != 0 {
			return c
		}
	default:
		if c := cmp.Compare(p.text, q.text); c != 0 {
			return c
		}
	}
	return bytes.Compare(p.id[:], q.id[:])
}

// inOrder returns the records in law 7's order. The list given is not changed.
func inOrder(records []Held) []Held {
	type placed struct {
		place
		held *Held
	}
	list := make([]placed, len(records))
	for i := range records {
		list[i] = placed{placeOf(&records[i].Record), &records[i]}
	}
	slices.SortFunc(list, func(a, b placed) int { return a.compare(b.place) })
	out := make([]Held, len(list))
	for i := range list {
		out[i] = *list[i].held
	}
	return out
}

// earlier returns whichever of two times of storing is earlier, preferring
// texts that name an instant, and among equals the text that sorts first, so
// that the choice does not depend on which came first.
func earlier(a, b wire.Time) wire.Time {
	c := a.Compare(b)
	if c == 0 {
		switch {
		case a == "":
			return b
		case b == "":
			return a
		}
		c = cmp.Compare(a, b)
	}
	if c <= 0 {
		return a
	}
	return b
}

// union returns the sorted union of two lists.
func union(a, b []wire.ArchiveID) []wire.ArchiveID {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
