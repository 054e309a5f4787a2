package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// errUnknown answers a put whose commit did not come back.
var errUnknown = fault.New(fault.Internal, "STORE_FAILED", "archive: the commit did not come back; repeat the put with its id")

// commit stores a batch of puts and answers each of them, on the committer's
// goroutine. Whatever happens inside, also a goroutine that is ended by the
// fatal hook, no put is left without an answer and none is acknowledged unless
// its record is durable.
func (n *Node) commit(items []*pending) {
	if items = orders(items); len(items) == 0 {
		return
	}
	out := make([]outcome, len(items))
	for i := range out {
		out[i].err = errUnknown
	}
	defer func() {
		for i, p := range items {
			p.reply <- out[i]
		}
	}()
	if err := n.health.failure(); err != nil {
		for i := range out {
			out[i].err = err
		}
		return
	}
	it, err := n.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		for i := range out {
			out[i].err = n.readError(err)
		}
		return
	}
	r := n.resolve(it, items, out)
	stored := n.store(it, r)
	for _, i := range r.freshAt {
		out[i] = outcome{seq: items[i].seq, err: stored}
	}
	for _, f := range r.followers {
		switch {
		case stored != nil:
			out[f.at].err = stored
		case f.conflict:
			out[f.at].err = conflict(f.first.seq, f.first.id)
		default:
			out[f.at] = outcome{seq: f.first.seq, duplicate: true}
		}
	}
	at, _ := n.feed.Position()
	for i := range out {
		out[i].at = at // what stood there before is known up to here, too
	}
	if err := it.Close(); err != nil {
		n.cfg.Log.Error("close an iterator", "err", err)
	}
}

// resolution sorts the puts of a batch by what is to be done with them.
type resolution struct {
	fresh     []*pending // to be stored
	freshAt   []int      // their places in the batch
	followers []follower // answered as soon as first is durable
	// absent are the put ids that the store was asked for and does not have.
	absent map[putKey]struct{}
}

// follower is a put that repeats, or contradicts, one before it in the batch.
type follower struct {
	at       int
	first    *pending
	conflict bool
}

// resolve applies law 3. What the store decides it answers in out.
func (n *Node) resolve(it *pebble.Iterator, items []*pending, out []outcome) (r resolution) {
	r.absent = make(map[putKey]struct{}, len(items))
	puts := make(map[putKey]*pending, len(items))
	ids := make(map[wire.RecordID]*pending, len(items))
	for i, p := range items {
		if prior, decided := n.prior(it, p, r.absent); decided {
			out[i] = prior
			continue
		}
		first := ids[p.id]
		if p.hasPutID && puts[p.putID] != nil {
			first = puts[p.putID]
		}
		if first != nil {
			r.followers = append(r.followers, follower{i, first, first.id != p.id})
			continue
		}
		r.fresh, r.freshAt = append(r.fresh, p), append(r.freshAt, i)
		ids[p.id] = p
		if p.hasPutID {
			puts[p.putID] = p
		}
	}
	return r
}

// prior looks for p's put id and record id in the store. decided is false if
// neither is there. A put id that is not goes to absent.
func (n *Node) prior(it *pebble.Iterator, p *pending, absent map[putKey]struct{}) (out outcome, decided bool) {
	if p.hasPutID {
		found, err := pebblex.Has(it, putIDKey(p.putID))
		if err != nil {
			return outcome{err: n.readError(err)}, true
		}
		if found {
			seq, id, ok := parsePutValue(it.Value())
			switch {
			case !ok:
				return outcome{err: n.damaged("the value of put id %x has %d bytes", p.putID, len(it.Value()))}, true
			case id != p.id:
				return outcome{err: conflict(seq, id)}, true
			case !n.lost.has(seq):
				return outcome{seq: seq, duplicate: true}, true
			}
			return outcome{err: n.damaged("put id %x is of seq %d, which is lost", p.putID, seq)}, true
		}
		absent[p.putID] = struct{}{}
	}
	ready := n.keys.set.Ready()
	if n.keys.set.Test(p.id) == bloom.Absent {
		return outcome{}, false
	}
	seq, err := n.seqOf(p.id)
	if err != nil {
		return outcome{err: err}, true
	}
	if ready {
		n.keys.set.Confirm(seq != 0)
	}
	return outcome{seq: seq, duplicate: true}, seq != 0
}

// seqOf returns the sequence number of the record id, or 0. Other records may
// be indexed under the same 32 bytes: anything can be somebody's subject. A lost
// record has none: it may be put again.
func (n *Node) seqOf(id wire.RecordID) (uint64, error) {
	seq := uint64(0)
	err := n.scan(id, n.tail.seq, func(at uint64, r row) bool {
		if r.roles&roleRecord != 0 {
			seq = at
		}
		return seq == 0
	})
	return seq, err
}

func conflict(seq uint64, id wire.RecordID) error {
	return fault.New(fault.Conflict, "PUT_CONFLICT",
		"archive: the put id was used for record %s (seq %d); a new record needs a new one", id, seq).InField("putId")
}

// store writes fresh puts in one synced commit and advances the durable
// sequence number. An error means that none of them may be acknowledged.
func (n *Node) store(it *pebble.Iterator, r resolution) error {
	fresh := r.fresh
	if len(fresh) == 0 {
		return nil
	}
	if err := n.admit(fresh); err != nil {
		return err
	}
	if err := errors.Join(n.keeper.overdue(), n.inGrace(), n.keys.stays(), n.views.stays()); err != nil {
		return err
	}
	batch := n.db.NewBatch()
	end, bones, err := n.fill(batch, fresh)
	if err == nil {
		err = n.guard(it, batch, r.absent)
	}
	if err != nil {
		return errors.Join(err, batch.Close())
	}
	n.announce(fresh, end.seq) // before anyone can see the records
	began := time.Now()
	if err := n.db.Apply(batch, pebble.Sync); err != nil {
		n.health.fail(err.Error())
		return errors.Join(n.health.failure(), batch.Close())
	}
	n.metrics.commit(len(fresh), time.Since(began))
	n.tail = end
	n.storedAt.Store(end.storedAt)
	n.durable.Store(end.seq)
	n.keeper.offer(bones, end.head())
	signal(n.wake)
	for _, p := range fresh {
		n.lost.found(p.id)
	}
	if err := batch.Close(); err != nil {
		n.cfg.Log.Error("close a batch", "err", err)
	}
	return nil
}

// announce puts records into the filters, and then tells those who have copies of
// views; seq is the number of the last.
func (n *Node) announce(fresh []*pending, seq uint64) {
	n.pairs = n.pairs[:0]
	for _, p := range fresh {
		for _, at := range p.places {
			n.keys.set.Add(at.digest)
		}
		n.views.add(p.pairs)
		n.pairs = append(n.pairs, p.pairs...)
	}
	n.feed.Append(seq, n.pairs)
	if cap(n.pairs) > maxPairs {
		n.pairs = nil
	}
}

// guard refuses a batch that would do more than append. Nothing is written then,
// but what led there is a fault of this program or of the store, and no more is
// written on top of it.
func (n *Node) guard(it *pebble.Iterator, batch *pebble.Batch, absent map[putKey]struct{}) error {
	exists, err := n.existing(it, absent)
	if err != nil {
		return n.readError(err)
	}
	if err := pebblex.AppendOnlyFunc(batch, exists); err != nil {
		n.health.quarantine(err.Error())
		return fault.New(fault.Internal, "NOT_APPEND", "archive: the batch was refused: %w", err)
	}
	return nil
}

// fill gives each put its place in the log and writes it to batch, with what the
// leaves add to the tree. It returns the end of the log as it will be, and the
// new part of its skeleton.
func (n *Node) fill(batch *pebble.Batch, fresh []*pending) (end tail, bones []bone, err error) {
	end = n.tail
	end.edge = n.tail.edge.Clone()
	commit := commitRow{first: end.seq + 1}
	bones = make([]bone, 0, len(fresh))
	var buf []byte
	for _, p := range fresh {
		end.seq++
		end.storedAt = max(n.cfg.Now().UnixNano(), end.storedAt+1)
		p.seq = end.seq
		e := bone{p.seq, end.storedAt, p.id, p.putID}
		leaf, err := encodeLeaf(string(n.cfg.ID), n.identity.generation, e)
		if err != nil {
			return tail{}, nil, err
		}
		end.edge.Append(tlog.RecordHash(leaf), func(_ int64, h tlog.Hash) { commit.hashes = append(commit.hashes, h) })
		buf = p.frame.appendTo(buf[:0], e.seq, e.storedAt)
		if err := fillRecord(batch, p, e, buf); err != nil {
			return tail{}, nil, err
		}
		bones = append(bones, e)
	}
	commit.last = end.seq
	if err := batch.Set(commitKey(commit.last), commit.encode(), nil); err != nil {
		return tail{}, nil, fmt.Errorf("archive: batch: %w", err)
	}
	return end, bones, nil
}

// fillRecord writes the rows of one record to batch, which copies them.
func fillRecord(batch *pebble.Batch, p *pending, e bone, frame []byte) error {
	err := errors.Join(
		batch.Set(logKey(e.seq), frame, nil),
		batch.Set(tenantKey(p.tag, e.storedAt, e.seq), nil, nil),
	)
	r := row{shared: len(p.rec.ShareWith) > 0, storedAt: e.storedAt, id: p.id, kind: p.rec.Kind, tenant: p.rec.TenantID}
	for _, at := range p.places {
		r.roles = at.roles
		err = errors.Join(err, batch.Set(indexKey(at.digest, e.seq), r.encode(), nil))
	}
	if p.hasPutID {
		err = errors.Join(err, batch.Set(putIDKey(p.putID), putValue(e.seq, p.id), nil))
	}
	if err != nil {
		return fmt.Errorf("archive: batch: %w", err)
	}
	return nil
}

// existing tells the guard whether a key is in the store. Where the log ends it
// reads from the store, not from memory that may be wrong; it need not look up
// keys that end in a later sequence number, because such keys are written
// together with their log entry or not at all, nor put ids that it was asked for
// through it before, which are absent.
func (n *Node) existing(it *pebble.Iterator, absent map[putKey]struct{}) (func(key []byte) (bool, error), error) {
	end := uint64(0)
	if _, after := prefixBounds(prefixLog); it.SeekLT(after) {
		end, _ = logSeq(it.Key()) // another key: there is no log yet
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("archive: the end of the log: %w", err)
	}
	return func(key []byte) (bool, error) {
		if seq, ok := lastSeq(key); ok && seq > end {
			return false, nil
		}
		if len(key) == 1+putIDLen && key[0] == prefixPut {
			if _, ok := absent[putKey(key[1:])]; ok {
				return false, nil
			}
		}
		return pebblex.Has(it, key)
	}, nil
}
