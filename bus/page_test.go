package bus

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/wire"
)

// unpage decodes pages and puts them together, checking their numbers.
func unpage(t testing.TB, messages [][]byte, limit int64) wire.Reply {
	t.Helper()
	var whole wire.Reply
	for i, data := range messages {
		if int64(len(data)) > limit {
			t.Errorf("page %d has %d bytes, limit %d", i+1, len(data), limit)
		}
		r, err := wire.Decode[wire.Reply](data)
		if err != nil {
			t.Fatal(err)
		}
		if r.Page != i+1 || r.Pages != len(messages) {
			t.Errorf("page %d of %d is numbered %d of %d", i+1, len(messages), r.Page, r.Pages)
		}
		if i == 0 {
			whole = r
			continue
		}
		if r.ArchiveID != whole.ArchiveID || r.SHA256 != whole.SHA256 || r.Answer != whole.Answer || r.Lost != 0 || r.Checkpoint != "" {
			t.Errorf("page %d belongs elsewhere, or says again what page 1 says: %+v", i+1, r)
		}
		whole.Records = append(whole.Records, r.Records...)
	}
	if (whole.Answer != "") != (len(messages) > 1) {
		t.Errorf("%d pages are of answer %q", len(messages), whole.Answer)
	}
	whole.Page, whole.Pages, whole.Answer = 0, 0, ""
	return whole
}

func replyOf(bodies ...int) wire.Reply {
	r := wire.Reply{ArchiveID: "archive-a", SHA256: digestOf("s"), Records: []wire.Record{}}
	for i, n := range bodies {
		p := wire.PutRecord{Kind: "note", SHA256: r.SHA256, TenantID: tenantA, Part: i, Body: bytes.Repeat([]byte{byte(i)}, n)}
		r.Records = append(r.Records, wire.Record{ID: p.ID(), Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID, Part: i, Body: p.Body})
	}
	return r
}

func TestPagesHoldEveryRecordOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := replyOf(rapid.SliceOfN(rapid.IntRange(1, 3000), 0, 40).Draw(rt, "bodies")...)
		r.Lost, r.Checkpoint = rapid.Uint64Range(0, 99).Draw(rt, "lost"), rapid.SampledFrom([]string{"", "archive-a/g1\n1048\n"}).Draw(rt, "checkpoint")
		limit := rapid.Int64Range(5000, 20_000).Draw(rt, "limit")
		messages, err := pages(r, limit)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(r, unpage(t, messages, limit)); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// At the exact size one page is enough; one byte less takes two.
func TestPageLimitAtItsEdge(t *testing.T) {
	r := replyOf(1000, 1000, 1000)
	whole, err := pages(r, 1<<30)
	if err != nil || len(whole) != 1 {
		t.Fatal(len(whole), err)
	}
	size := int64(len(whole[0]))
	for limit, want := range map[int64]int{size: 1, size - 1: 2} {
		messages, err := pages(r, limit)
		if err != nil || len(messages) != want {
			t.Errorf("limit %d: %d pages, %v; want %d", limit, len(messages), err, want)
		}
		unpage(t, messages, limit)
	}
	single := replyOf(1000)
	whole, err = pages(single, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pages(single, int64(len(whole[0]))-1); err == nil {
		t.Error("a record larger than a page was split")
	} else {
		wantText(t, err, single.Records[0].ID.String(), "max_payload")
	}
}

func TestEmptyReplyIsOnePage(t *testing.T) {
	messages, err := pages(wire.Reply{ArchiveID: "archive-a", SHA256: digestOf("s")}, 1000)
	want := fmt.Sprintf(`{"archiveId":"archive-a","sha256":"%s","records":[],"page":1,"pages":1}`, digestOf("s"))
	if err != nil || len(messages) != 1 || string(messages[0]) != want {
		t.Errorf("got %s, %v", messages, err)
	}
}

// The largest record that wire admits fits into the smallest server's message.
func TestLargestRecordFitsMinPayload(t *testing.T) {
	p := wire.PutRecord{
		Kind: wire.KindPrivateMetadata, SHA256: digestOf("s"), SubmissionID: wire.NewSubmissionID(), Part: wire.MaxPart,
		TenantID:    wire.TenantID(strings.Repeat("t", wire.MaxTenantID)),
		AttachedAt:  wire.Time(strings.Repeat("9", wire.MaxTimeText)),
		ContentType: strings.Repeat("\"", wire.MaxContentType),
		Body:        bytes.Repeat([]byte{0xff}, wire.MaxSealedBody),
	}
	for i := range wire.MaxShares {
		p.ShareWith = append(p.ShareWith, wire.Share{TenantID: wire.TenantID(fmt.Sprintf("%s%03d", strings.Repeat("t", wire.MaxTenantID-3), i)), Mode: wire.ModeFiles})
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	r := wire.Reply{ArchiveID: wire.ArchiveID(strings.Repeat("a", wire.MaxArchiveID)), SHA256: p.SHA256, Records: []wire.Record{{
		ID: p.ID(), Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID, SubmissionID: p.SubmissionID, Part: p.Part,
		AttachedAt: p.AttachedAt, StoredAt: p.AttachedAt, Seq: wire.MaxInteger, ContentType: p.ContentType,
		Body: p.Body, BodySHA256: p.BodySHA256(), ShareWith: p.ShareWith,
	}}}
	messages, err := pages(r, MinPayload-replyHeadroom)
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d pages, %v", len(messages), err)
	}
	put := encode(t, wire.Put{PutID: wire.NewPutID(), RosterVersion: wire.MaxInteger, Record: p})
	if len(put) > MinPayload {
		t.Errorf("its put takes %d bytes", len(put))
	}
}

// NA-04: answers larger than a message arrive whole.
func TestLargeAnswersArriveInPages(t *testing.T) {
	for _, payload := range []int32{server.DefaultMaxPayload, MinPayload} {
		t.Run(fmt.Sprint(payload), func(t *testing.T) {
			leakCheck(t)
			srv := startServer(t, server.Config{MaxPayload: payload})
			w := &world{server: srv}
			s := &site{node: newFakeNode(t, "archive-a"), blobs: newFakeBlobs(t)}
			w.serve(t, s)
			w.conn = connect(t, srv, "aggregator")
			a, err := NewArchives(w.conn, static{"archive-a"}, patient)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { a.Close() })
			for name, bodies := range map[string][]int{
				"1.1 MiB":           {256 << 10, 256 << 10, 256 << 10, 256 << 10, 100 << 10},
				"40 of 60 KiB":      slicesOf(40, 60<<10),
				"the largest alone": {wire.MaxBody},
				"3,000 small":       slicesOf(3000, 1),
			} {
				s.node.mu.Lock()
				want := replyOf(bodies...)
				s.node.records = want.Records
				s.node.mu.Unlock()
				next, stop, err := a.Ask(t.Context(), wire.Query{SHA256: want.SHA256, TenantID: tenantA}, []wire.ArchiveID{"archive-a"}, false)
				if err != nil {
					t.Fatal(err)
				}
				got := await(t, next)
				for n := got.Pages; n > 1; n-- {
					more := await(t, next)
					got.Records = append(got.Records, more.Records...)
				}
				stop()
				if got.Boot != s.node.boot {
					t.Errorf("%s: it is of process %q", name, got.Boot)
				}
				got.Page, got.Pages, got.Boot, got.Answer = 0, 0, "", ""
				if !bytes.Equal(encode(t, want), encode(t, got)) { // cmp takes seconds for megabytes
					t.Errorf("%s: the answer differs", name)
				}
			}
		})
	}
}

func slicesOf(n, value int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = value
	}
	return out
}
