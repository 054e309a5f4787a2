package receipts_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// member is an archive of a fleet, and what the aggregator knows of it. It keeps
// the contract: it answers when it is named, and what the asker may see.
type member struct {
	id      wire.ArchiveID
	boot    string        // of its process
	after   time.Duration // how long it takes to answer
	records []wire.Record
	dead    bool // it answers nothing

	doubted  bool
	mirrored bool   // its mirror may be trusted
	process  string // that is mirrored; empty: boot
	upto     uint64 // the mirror has its records up to this one
	lies     bool   // the mirror lacks a record that it should have
}

// fleet is a bus, a roster and mirrors whose members keep their contracts.
type fleet struct {
	t       *testing.T
	members []*member
	others  []says // replies of those who are not enrolled
	gone    bool   // it tells which of the named archives are dead

	mu     sync.Mutex
	asks   []asking
	told   []receipts.Silence // contradictions
	mirror int                // how often the mirrors were asked
}

// asking is a question as the fleet got it.
type asking struct {
	Named []wire.ArchiveID
	Alone bool
}

func (f *fleet) member(id wire.ArchiveID) *member {
	at := slices.IndexFunc(f.members, func(m *member) bool { return m.id == id })
	if at < 0 {
		return nil
	}
	return f.members[at]
}

func (f *fleet) Enrolled() (ids []wire.ArchiveID) {
	for _, m := range f.members {
		ids = append(ids, m.id)
	}
	return ids
}

func (f *fleet) Speaks(id wire.ArchiveID, boot string) bool { return f.member(id).boot == boot }
func (f *fleet) Doubted(id wire.ArchiveID) bool             { m := f.member(id); return m != nil && m.doubted }

func (m *member) visible(tenant wire.TenantID) (out []wire.Record) {
	for _, r := range m.records {
		if _, ok := wire.Visible(&r, tenant); ok {
			out = append(out, r)
		}
	}
	return out
}

// absent is what the mirror says of a tenant.
func (m *member) absent(tenant wire.TenantID) bool {
	return m.lies || !slices.ContainsFunc(m.visible(tenant), func(r wire.Record) bool { return r.Seq <= m.upto })
}

func (f *fleet) Silent(tenant wire.TenantID, digest wire.Digest, archives []wire.ArchiveID) (out []receipts.Silence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mirror++
	if digest != subject {
		f.t.Errorf("the mirrors were asked for %s", digest)
	}
	for _, id := range archives {
		if m := f.member(id); m.mirrored && m.absent(tenant) {
			out = append(out, receipts.Silence{ID: id, Boot: cmp.Or(m.process, m.boot), Seq: m.upto})
		}
	}
	return out
}

func (f *fleet) Contradicted(s receipts.Silence, record wire.RecordID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, s)
	m := f.member(s.ID)
	if !slices.ContainsFunc(m.records, func(r wire.Record) bool { return r.ID == record && r.Seq <= m.upto }) || !m.lies {
		f.t.Errorf("the mirror of %s was right", s.ID)
	}
}

func (f *fleet) Ask(ctx context.Context, q wire.Query, named []wire.ArchiveID, alone bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	f.mu.Lock()
	f.asks = append(f.asks, asking{slices.Clone(named), alone})
	f.mu.Unlock()
	replies, gone := make(chan wire.Reply), make(chan wire.ArchiveID)
	quit := make(chan struct{})
	send := func(after time.Duration, deliver func()) {
		go func() {
			select {
			case <-time.After(after):
				deliver()
			case <-quit:
			}
		}()
	}
	say := func(r wire.Reply) func() {
		return func() {
			select {
			case replies <- r:
			case <-quit:
			}
		}
	}
	for _, m := range f.members {
		asked := slices.Contains(named, m.id)
		r := reply(m.id, m.visible(q.TenantID)...)
		r.Boot = m.boot
		switch {
		case m.dead && asked && f.gone:
			send(m.after, func() {
				select {
				case gone <- m.id:
				case <-quit:
				}
			})
		case m.dead, alone && !asked, !asked && len(r.Records) == 0:
		default:
			send(m.after, say(r))
		}
	}
	for _, s := range f.others {
		if !alone {
			send(s.after, say(s.reply))
		}
	}
	return hearing(ctx, replies, gone), func() { close(quit) }, nil
}

// gatherer returns a gatherer over the fleet, with its mirrors.
func (f *fleet) gatherer() *receipts.Gatherer {
	return &receipts.Gatherer{Asker: f, Roster: f, Mirrors: f, Wait: wait, SampleEvery: 1 << 40}
}

// numbered gives a record its place in the log of an archive.
func numbered(seq uint64, r wire.Record) wire.Record {
	r.Seq = seq
	return r
}
