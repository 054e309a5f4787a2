package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// fleet is a roster whose archives have the boot "boot-<id>".
type fleet []wire.ArchiveID

func (f fleet) Enrolled() []wire.ArchiveID              { return append([]wire.ArchiveID{}, f...) }
func (f fleet) Rank([32]byte) []wire.ArchiveID          { return f }
func (f fleet) Speaks(id wire.ArchiveID, b string) bool { return b == "boot-"+string(id) }

// TestAMisbehavingArchiveCostsACounter: one peer answers every query with
// rubbish, before the archives that behave say a word. The answer is the one
// without it, complete, and the rubbish is counted.
func TestAMisbehavingArchiveCostsACounter(t *testing.T) {
	srv, err := server.Start(server.Config{Port: server.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	enrolled := fleet{"archive-a", "archive-b"}
	digest := wire.Digest{1, 2, 3}
	record := func(body string, tenant wire.TenantID) wire.Record {
		r := wire.Record{Kind: "note", SHA256: digest, TenantID: tenant, StoredAt: "2026-11-30T14:02:12.000000000Z", Body: []byte(body)}
		r.ID = r.ComputeID()
		return r
	}
	from := func(id wire.ArchiveID, records ...wire.Record) wire.Reply {
		return wire.Reply{ArchiveID: id, SHA256: digest, Records: append([]wire.Record{}, records...), Page: 1, Pages: 1, Boot: "boot-" + string(id)}
	}
	text := func(r wire.Reply) []byte {
		data, err := json.Marshal(r)
		if err != nil {
			t.Error(err)
		}
		return data
	}
	edited := func(r wire.Reply, edit func(*wire.Reply)) []byte { edit(&r); return text(r) }
	forged := record("forged", "acme")
	for _, c := range []struct {
		name    string
		rubbish func(i int) []byte
		times   int
		counter string // name and label of what rises
	}{
		{"nothing", nil, 0, ""},
		{"broken JSON", func(int) []byte { return []byte(`{"archiveId":"archive-a","records":[{]}`) }, 1, `verae_bus_replies_dropped_total malformed`},
		{"no JSON", func(int) []byte { return []byte("\x00\xff") }, 1, `verae_bus_replies_dropped_total malformed`},
		{"duplicate keys", func(int) []byte { return []byte(`{"archiveId":"archive-a","archiveId":"archive-b","records":[]}`) }, 1, `verae_bus_replies_dropped_total malformed`},
		{"nesting without end", func(int) []byte { return []byte(strings.Repeat(`{"records":[`, 50_000)) }, 1, `verae_bus_replies_dropped_total malformed`},
		{"an archive id that is not enrolled", func(int) []byte { return text(from("stranger", forged)) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"an archive id that is none", func(int) []byte { return text(from("../archive-a", forged)) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"no archive id", func(int) []byte { return text(from("", forged)) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"under the id of another", func(int) []byte { return edited(from("archive-a", forged), func(r *wire.Reply) { r.Boot = "mine" }) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"under the id of another, without a process", func(int) []byte { return edited(from("archive-b"), func(r *wire.Reply) { r.Boot = "" }) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"another digest", func(int) []byte {
			return edited(from("archive-b", forged), func(r *wire.Reply) { r.SHA256 = wire.Digest{9} })
		}, 1, `verae_receipts_dropped_total wrong-digest`},
		{"pages that can not be", func(int) []byte { return edited(from("archive-b"), func(r *wire.Reply) { r.Page, r.Pages = 3, 2 }) }, 1, `verae_receipts_dropped_total page-out-of-range`},
		{"a record of another tenant", func(int) []byte { return edited(from("stranger", record("x", "globex")), func(*wire.Reply) {}) }, 1, `verae_receipts_dropped_total unlisted-archive`},
		{"a flood of strangers", func(i int) []byte { return text(from(wire.ArchiveID(fmt.Sprint("stranger-", i)), forged)) }, need.Rounds(5_000, 50_000), `verae_receipts_dropped_total unlisted-archive`},
		{"a flood of broken JSON", func(int) []byte { return []byte(`{"archiveId":`) }, need.Rounds(5_000, 50_000), `verae_bus_replies_dropped_total malformed`},
		{"a flood under the id of another", func(int) []byte { return edited(from("archive-a", forged), func(r *wire.Reply) { r.Boot = "mine" }) }, need.Rounds(5_000, 10_000), `verae_receipts_dropped_total unlisted-archive`},
		{"a large flood", func(int) []byte { return []byte(`{"archiveId":"stranger","x":"` + strings.Repeat("x", 512<<10) + `"}`) }, need.Rounds(20, 200), `verae_receipts_dropped_total unlisted-archive`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := bus.Connect(bus.Config{URL: srv.ClientURL(), Name: "aggregator"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			client, err := bus.NewArchives(conn, enrolled, bus.ArchivesConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			g := &receipts.Gatherer{Asker: client, Roster: enrolled, Wait: time.Minute, Log: slog.New(slog.DiscardHandler)}
			registry := serve.NewRegistry()
			for _, col := range append(append(client.Metrics(), g.Metrics()...), conn.Metrics()...) {
				registry.MustRegister(col)
			}
			peers, err := nats.Connect(srv.ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(peers.Close)
			if _, err := peers.Subscribe(wire.SubjectQuery, func(m *nats.Msg) {
				for i := range c.times {
					if err := m.Respond(c.rubbish(i)); err != nil {
						t.Error(err)
					}
				}
				for _, r := range []wire.Reply{from("archive-a", record("one", "acme")), from("archive-b", record("one", "acme"), record("two", "acme"))} {
					if err := m.Respond(text(r)); err != nil {
						t.Error(err)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := peers.Flush(); err != nil {
				t.Fatal(err)
			}

			got, err := g.Gather(t.Context(), digest, "acme", nil)
			if err != nil {
				t.Fatal(err)
			}
			both, b := []wire.ArchiveID{"archive-a", "archive-b"}, []wire.ArchiveID{"archive-b"}
			one, two := record("one", "acme"), record("two", "acme")
			one.BodySHA256, two.BodySHA256 = one.Portable().BodySHA256(), two.Portable().BodySHA256()
			want := receipts.Gathered{
				Records:  []receipts.Held{{Record: one, ArchiveIDs: both}, {Record: two, ArchiveIDs: b}},
				Expected: both, Missing: []wire.ArchiveID{}, Replied: 2, Complete: true, Reason: wire.ReasonAll,
			}
			sorted := cmpopts.SortSlices(func(x, y receipts.Held) bool { return string(x.Record.Body) < string(y.Record.Body) })
			if diff := cmp.Diff(want, got, sorted); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.counter != "" && total(t, registry, c.counter) == 0 {
				t.Errorf("nothing was counted as %s", c.counter)
			}
		})
	}
}

// total is the value of a counter, named with the value of its one label.
func total(t *testing.T, from prometheus.Gatherer, counter string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name, label, _ := strings.Cut(counter, " ")
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
