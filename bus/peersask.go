package bus

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// maxRecordText bounds the JSON of a record that another archive sends, in
// bytes; the largest that wire.PutRecord.Check admits takes a quarter of it.
const maxRecordText = 2 << 20

// wrong says what an archive answered that can not be true.
func wrong(peer wire.ArchiveID, format string, args ...any) error {
	args = append([]any{peer}, args...)
	return fault.New(fault.Corrupt, archive.CodeWrongAnswer, "archive %s: "+format, args...)
}

// Has reports which records an archive can read now, in the order of ids.
func (p *Peers) Has(ctx context.Context, peer wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	answer, err := question[wire.SyncHave](ctx, p, peer, wire.SubjectSyncPrefix, wire.OpHas, wire.SyncHas{IDs: ids}, 0)
	if err == nil && len(answer.Have) != len(ids) {
		err = wrong(peer, "asked for %d records, it told of %d", len(ids), len(answer.Have))
	}
	return answer.Have, err
}

// IDs returns a page of an archive's records after a sequence number.
func (p *Peers) IDs(ctx context.Context, peer wire.ArchiveID, after uint64, limit int) (wire.SyncPage, error) {
	page, err := question[wire.SyncPage](ctx, p, peer, wire.SubjectSyncPrefix, wire.OpIDs, wire.SyncIDs{After: after, Limit: limit}, 0)
	if err != nil {
		return page, err
	}
	last := after
	for _, r := range page.Records {
		if r.Seq <= last || r.RecordID.IsZero() {
			return wire.SyncPage{}, wrong(peer, "in the page after seq %d, seq %d follows seq %d", after, r.Seq, last)
		}
		last = r.Seq
	}
	if page.Next < last || page.Next <= after && page.Next < page.End {
		return wire.SyncPage{}, wrong(peer, "the page after seq %d, which ends with seq %d, goes on after seq %d", after, last, page.Next)
	}
	return page, nil
}

// Record returns a record from an archive, whose id is computed from what came.
func (p *Peers) Record(ctx context.Context, peer wire.ArchiveID, id wire.RecordID) (wire.PutRecord, error) {
	var text []byte
	for size := int64(1); int64(len(text)) < size; {
		at := int64(len(text))
		data, n, err := p.fragment(ctx, peer, wire.OpRecord, wire.SyncRecord{ID: id, Offset: at}, at, wire.FragmentSize)
		if err != nil {
			return wire.PutRecord{}, err
		}
		if n > maxRecordText || at > 0 && n != size {
			return wire.PutRecord{}, wrong(peer, "record %s has %d bytes", id, n)
		}
		text, size = append(text, data...), n
	}
	rec, err := wire.Decode[wire.PutRecord](text)
	if err == nil {
		err = rec.Check()
	}
	if err != nil {
		return wire.PutRecord{}, wrong(peer, "asked for record %s, it sent none: %w", id, err)
	}
	if got := rec.ID(); got != id {
		return wire.PutRecord{}, wrong(peer, "asked for record %s, it sent %s", id, got)
	}
	return rec, nil
}

// File returns up to n bytes at off of a file on an archive, and the size that
// the archive says the file has.
func (p *Peers) File(ctx context.Context, peer wire.ArchiveID, sha256 wire.Digest, cid string, off int64, n int) (data []byte, size int64, err error) {
	return p.fragment(ctx, peer, wire.OpFile, wire.SyncFile{SHA256: sha256, CID: cid, Offset: off, Length: int64(n)}, off, n)
}

// FileProfile returns the profile in which an archive says that a file has its CID.
func (p *Peers) FileProfile(ctx context.Context, peer wire.ArchiveID, sha256 wire.Digest, cid string) (blob.Profile, error) {
	reply, err := p.ask(ctx, peer, wire.SubjectSyncPrefix, wire.OpFile, wire.SyncFile{SHA256: sha256, CID: cid, Length: 1}, 0)
	if err != nil {
		return blob.Profile{}, err
	}
	var profile blob.Profile
	told := reply.Header.Get(wire.HeaderProfile)
	if _, err := fmt.Sscanf(told, "%d/%d", &profile.ChunkSize, &profile.MaxLinks); err != nil || profile.Check() != nil {
		return blob.Profile{}, wrong(peer, "asked for the profile of file %s, it said %q", cid, told)
	}
	return profile, nil
}

// fragment asks for up to n bytes at off of something, and returns them with the
// size of the whole. All that fit are there.
func (p *Peers) fragment(ctx context.Context, peer wire.ArchiveID, op string, ask any, off int64, n int) (data []byte, size int64, err error) {
	reply, err := p.ask(ctx, peer, wire.SubjectSyncPrefix, op, ask, 0)
	if err != nil {
		return nil, 0, err
	}
	size, err = strconv.ParseInt(reply.Header.Get(wire.HeaderSize), 10, 64)
	at := reply.Header.Get(wire.HeaderOffset)
	if err != nil || size < off || at != strconv.FormatInt(off, 10) || int64(len(reply.Data)) != min(int64(n), size-off) {
		return nil, 0, wrong(peer, "asked for %d bytes at %d, it sent %d at %q of %q", n, off, len(reply.Data), at, reply.Header.Get(wire.HeaderSize))
	}
	return reply.Data, size, nil
}

// Pull tells an archive to fetch records from others.
func (p *Peers) Pull(ctx context.Context, peer wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]wire.PullResult, error) {
	answer, err := question[wire.CtlPulled](ctx, p, peer, wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: ids, From: from}, pullWait)
	if err != nil {
		return nil, err
	}
	if len(answer.Results) != len(ids) {
		return nil, wrong(peer, "told to pull %d records, it told of %d", len(ids), len(answer.Results))
	}
	for i, r := range answer.Results {
		if r.ID != ids[i] {
			return nil, wrong(peer, "told to pull record %s, it told of %s", ids[i], r.ID)
		}
	}
	return answer.Results, nil
}

// Reconcile asks an archive how far its reconciliation is, and has it start one
// if start is set.
func (p *Peers) Reconcile(ctx context.Context, peer wire.ArchiveID, start bool) (wire.ReconcileProgress, error) {
	return question[wire.ReconcileProgress](ctx, p, peer, wire.SubjectCtlPrefix, wire.OpReconcile, wire.CtlReconcile{Start: start}, 0)
}

// Status asks an archive what it knows of itself.
func (p *Peers) Status(ctx context.Context, peer wire.ArchiveID) (wire.CtlStatus, error) {
	return question[wire.CtlStatus](ctx, p, peer, wire.SubjectCtlPrefix, wire.OpStatus, nil, 0)
}

// question asks an archive and reads its answer. extra is time beyond the
// timeout, for an archive that is allowed to take its time.
func question[T any](ctx context.Context, p *Peers, peer wire.ArchiveID, subject, op string, ask any, extra time.Duration) (answer T, err error) {
	reply, err := p.ask(ctx, peer, subject, op, ask, extra)
	if err != nil {
		return answer, err
	}
	if answer, err = wire.Decode[T](reply.Data); err != nil {
		err = wrong(peer, "its answer to %s can not be read: %w", op, err)
	}
	return answer, err
}

// ask sends one question and returns the answer. An archive that is busy is
// asked again while there is time.
func (p *Peers) ask(ctx context.Context, peer wire.ArchiveID, subject, op string, ask any, extra time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout+extra)
	defer cancel()
	from := "archive " + string(peer)
	var data []byte
	if ask != nil {
		var err error
		if data, err = wire.Encode(ask); err != nil {
			return nil, err
		}
	}
	win := p.window(peer)
	credit, err := win.acquire(ctx, wire.FragmentSize)
	if err != nil {
		return nil, sendFault(err, from)
	}
	defer win.release(credit)
	for {
		msg := &nats.Msg{Subject: subject + string(peer), Data: data, Header: nats.Header{}}
		msg.Header.Set(wire.HeaderOp, op)
		reply, err := p.conn.bulk.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return nil, sendFault(err, from)
		}
		err = replyFault(reply, from)
		if fault.CodeOf(err) != CodeBusy {
			return reply, err
		}
		select {
		case <-time.After(cmp.Or(fault.RetryAfter(err), retryBusy)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (p *Peers) window(peer wire.ArchiveID) *window {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.windows[peer]
	if w == nil {
		w = newWindow(MaxAsksInFlight, MaxAskBytesInFlight)
		p.windows[peer] = w
	}
	return w
}
