package receipts_test

import (
	"context"
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// instant is an asker whose archives answer at once.
type instant []wire.Reply

func (s instant) Ask(context.Context, wire.Query, []wire.ArchiveID, bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	left := s
	return func(context.Context) (r wire.Reply, _ wire.ArchiveID, ok bool) {
		if ok = len(left) > 0; ok {
			r, left = left[0], left[1:]
		}
		return r, "", ok
	}, func() {}, nil
}

// BenchmarkGather shows what Gather adds to an asker that costs nothing. The
// limit is the asker alone, read to the end.
func BenchmarkGather(b *testing.B) {
	m, p := record(wire.KindMetadata, `{"title":"Agreement","pages":12}`), record(wire.KindPrivateMetadata, "sealed", part(1))
	silent := instant{reply("archive-a"), reply("archive-b"), reply("archive-c")}
	holding := instant{reply("archive-a", m, p), reply("archive-b", m, p), reply("archive-c")}
	limit := bare(b, silent)
	for _, c := range []struct {
		name    string
		asker   instant
		mirrors receipts.Mirrors
	}{
		{"nobody holds it", silent, nil}, {"nobody holds it, by the mirrors", silent, denying(three)},
		{"two of three hold two records", holding, nil}, {"two of three hold two records, the other by its mirror", holding[:2], denying(three[2:])},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := &receipts.Gatherer{Asker: c.asker, Roster: three, Mirrors: c.mirrors, SampleEvery: 1 << 62, Wait: wait}
			for b.Loop() {
				out, err := g.Gather(b.Context(), subject, acme, nil)
				if err != nil || !out.Complete {
					b.Fatal(out, err)
				}
			}
			report(b, limit)
		})
	}
}

// denying are mirrors that always deny what these archives have.
type denying []wire.ArchiveID

func (k denying) Silent(wire.TenantID, wire.Digest, []wire.ArchiveID) []receipts.Silence {
	silent := make([]receipts.Silence, len(k))
	for i, id := range k {
		silent[i] = receipts.Silence{ID: id, Seq: 9}
	}
	return silent
}

func (denying) Contradicted(receipts.Silence, wire.RecordID) {}

// bare measures the asker without Gather, in nanoseconds.
func bare(b *testing.B, a instant) float64 {
	const rounds = 10_000
	start := time.Now()
	for range rounds {
		next, stop, err := a.Ask(b.Context(), wire.Query{}, three, false)
		if err != nil {
			b.Fatal(err)
		}
		for range len(a) {
			next(b.Context())
		}
		stop()
	}
	return float64(time.Since(start).Nanoseconds()) / rounds
}

// report adds the limit and the ratio to it.
func report(b *testing.B, limit float64) {
	b.ReportMetric(limit, "limit-ns")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/limit, "ratio")
	b.ReportAllocs()
}

// BenchmarkAssemble puts two receipts and two files in order. The limit is the
// encoding of the job it makes.
func BenchmarkAssemble(b *testing.B) {
	v := viewOf(on(record(wire.KindMetadata, `{"title":"Agreement","pages":12}`)), on(record("note", "hello")),
		on(record(wire.KindFile, "a.pdf")), on(record(wire.KindFile, "bb.pdf")))
	job, err := receipts.Assemble(v)
	if err != nil {
		b.Fatal(err)
	}
	const rounds = 2_000
	start := time.Now()
	for range rounds {
		if _, err := wire.Encode(job); err != nil {
			b.Fatal(err)
		}
	}
	limit := float64(time.Since(start).Nanoseconds()) / rounds
	for b.Loop() {
		if _, err := receipts.Assemble(v); err != nil {
			b.Fatal(err)
		}
	}
	report(b, limit)
}
