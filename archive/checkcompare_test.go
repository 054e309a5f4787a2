package archive

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// bereaved is an archive that knows one of its files as lost, so that the sums of
// its rows can never be told.
func bereaved(t *testing.T, records int) *shelf {
	t.Helper()
	s := newShelf(t, "archive-a")
	for i := range records {
		mustPut(t, s.Node, metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i)))
	}
	s.scan(t, 1, 3000)
	s.repaired(t, func() { lostBytes["the bytes and their rows"](t, s) })
	<-s.looked
	return s
}

// comparing returns a check on one processor that looks at four rows at a time, and
// calls between whenever it waits in the comparison.
func comparing(t *testing.T, n *Node, between func(c *checker, bytes int)) *checker {
	t.Helper()
	p, err := n.newPosition()
	must1(t, err)
	c := newChecker(n, CheckOptions{}, p)
	c.side, c.rows = 1, 4
	c.o.Read = func(ctx context.Context, bytes int) error {
		if p := c.pos; p.Phase == phaseIndex && len(p.Key) > 1 && p.Key[0] == compared {
			between(c, bytes)
		}
		return ctx.Err()
	}
	return c
}

// Rows are compared in parts, each of which waits for its turn: as many as there
// are, since what is known to be lost makes every pass compare. A place in the
// middle can be stored, and gone on from; nothing is told twice.
func TestComparisonIsMadeInParts(t *testing.T) {
	s := bereaved(t, 40)
	stray := indexKey(digest("elsewhere"), 4)
	s.reopenAfter(t, func() {
		change(t, s.cfg, func(db *pebble.DB) {
			value := row{roleSubject, false, 7, wire.RecordID{1}, wire.KindMetadata, alice}.encode()
			must1(t, db.Set(stray, value, pebble.Sync))
			must1(t, db.Delete(indexKey(digest("7"), 8), pebble.Sync))
		})
	})
	parts, read := 0, 0
	c := comparing(t, s.Node, func(c *checker, bytes int) {
		if parts, read = parts+1, read+bytes; c.inside || bytes > 20<<10 {
			t.Errorf("%d bytes at once, the store can be closed: %v", bytes, !c.inside)
		}
	})
	c.saved = func() error {
		data, err := wire.Encode(c.pos.stored())
		must1(t, err)
		again, err := wire.Decode[position](data)
		must1(t, err)
		c.pos, err = again.ready()
		return err
	}
	must1(t, c.run(t.Context()))
	r := c.pos.Report
	if rows := int(r.IndexRows + r.TenantRows + r.PutIDs); parts < (41+rows)/4 || read < 41*100 {
		t.Errorf("%d rows and 41 records in %d parts, %d bytes", rows, parts, read)
	}
	missing, extra := 0, 0
	for _, f := range r.Findings {
		switch {
		case f.Damage && f.Seq == 8:
			missing++
		case f.Damage && f.Seq == 4:
			extra++
		case f.Damage:
			t.Errorf("damage: %+v", f)
		}
	}
	if missing != 1 || extra != 1 {
		t.Errorf("found: %s", listed(r))
	}
}

// A lost file alone is no damage, however often rows are compared.
func TestComparisonFindsNothingInALostFile(t *testing.T) {
	s := bereaved(t, 10)
	parts := 0
	c := comparing(t, s.Node, func(*checker, int) { parts++ })
	must1(t, c.run(t.Context()))
	if r := c.pos.Report; parts == 0 || r.Damages > 0 || r.Found == 0 {
		t.Errorf("%d parts: %s", parts, listed(r))
	}
}

// An archive can be closed in the middle of a comparison.
func TestComparisonLetsTheArchiveClose(t *testing.T) {
	s := bereaved(t, 40)
	closed := false
	c := comparing(t, s.Node, func(c *checker, _ int) {
		if !closed {
			closed = true
			mustClose(t, s.Node)
		}
	})
	if err := c.run(t.Context()); !closed || fault.CodeOf(err) != "CLOSED" {
		t.Errorf("closed %v: %v", closed, err)
	}
	s.reopenAfter(t, func() {})
}
