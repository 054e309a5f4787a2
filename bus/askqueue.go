package bus

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// What one sender may have in the queue of a query, so that none can crowd out
// the others: a named archive most of it, and all whom nobody named, whose
// replies may be anything, a part beside it.
const (
	maxOfOne         = MaxQueuedReplies / 4 * 3
	maxOfOneBytes    = MaxQueuedReplyBytes / 4 * 3
	maxOfOthers      = MaxQueuedReplies / 4
	maxOfOthersBytes = MaxQueuedReplyBytes / 4
)

// A share is what the queue holds of one sender's replies.
type share struct {
	held  int
	bytes int64
}

func (s *share) fits(size int64, most int, mostBytes int64) bool {
	return s.held < most && s.bytes+size <= mostBytes
}

func (s *share) add(n int, size int64) {
	s.held += n
	s.bytes += size
}

// newShares returns a share for each named archive.
func newShares(expect []wire.ArchiveID) map[string]*share {
	shares := make(map[string]*share, len(expect))
	for _, id := range expect {
		shares[string(id)] = new(share)
	}
	return shares
}

// senderPrefix is how the replies of our archives begin.
var senderPrefix = []byte(`{"archiveId":"`)

// of returns the share of the named archive that sent data, or nil.
func (k *ask) of(data []byte) *share {
	rest, ok := bytes.CutPrefix(data, senderPrefix)
	if !ok {
		return nil
	}
	id, _, ok := bytes.Cut(rest[:min(len(rest), wire.MaxArchiveID+1)], []byte{'"'})
	if !ok {
		return nil
	}
	return k.named[string(id)]
}

// room takes room for a reply. mu is held.
func (k *ask) room(data []byte) bool {
	size := int64(len(data))
	one := k.of(data)
	switch {
	case one == nil && !k.others.fits(size, maxOfOthers, maxOfOthersBytes):
		return false
	case one == nil:
		k.others.add(1, size)
		return true
	case !one.fits(size, maxOfOne, maxOfOneBytes) || !k.all.fits(size, MaxQueuedReplies, MaxQueuedReplyBytes):
		return false
	}
	one.add(1, size)
	k.all.add(1, size)
	return true
}

// free gives the room of a reply back. mu is held.
func (k *ask) free(data []byte) {
	size := int64(len(data))
	if one := k.of(data); one != nil {
		one.add(-1, -size)
		k.all.add(-1, -size)
		return
	}
	k.others.add(-1, -size)
}

// deliver takes a message for the query.
func (k *ask) deliver(msg *nats.Msg) {
	if unheard(msg) {
		k.nobody(msg)
		return
	}
	if all, most := k.total(msg.Data); all.Add(int64(len(msg.Data))) > most {
		k.drop(msg.Data, "all-queues-full")
		return
	}
	k.mu.Lock()
	if k.over || !k.room(msg.Data) {
		k.mu.Unlock()
		k.drop(msg.Data, "queue-full")
		return
	}
	k.queue = append(k.queue, msg)
	k.mu.Unlock()
	k.kick()
}

// total is what all queues hold of named archives, or of others, whichever sent
// data, and the most of it in bytes.
func (k *ask) total(data []byte) (all *atomic.Int64, most int64) {
	if k.of(data) == nil {
		return &k.a.strange, maxQueuedStrange
	}
	return &k.a.queued, maxQueuedTotal
}

// release takes data off the total.
func (k *ask) release(data []byte) {
	all, _ := k.total(data)
	all.Add(-int64(len(data)))
}

func (k *ask) drop(data []byte, reason string) {
	k.release(data)
	k.a.metrics.badReplies.WithLabelValues(reason).Inc()
}

func (k *ask) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// take removes and returns the first of the replies that have arrived, or of the
// archives that are not there, or says that nobody listens. It has probed what may
// not be there.
func (k *ask) take() (msg *nats.Msg, gone wire.ArchiveID, silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range k.away {
		k.start(func(ctx context.Context) { k.probe(ctx, id) })
	}
	k.away = nil
	if k.doubt && !k.asked {
		k.asked = true
		k.start(k.confirm)
	}
	switch {
	case len(k.queue) > 0:
		msg, k.queue[0] = k.queue[0], nil
		k.queue = k.queue[1:]
		k.release(msg.Data)
		k.free(msg.Data)
		return msg, "", false
	case len(k.gone) > 0:
		gone, k.gone = k.gone[0], k.gone[1:]
		return nil, gone, false
	}
	return nil, "", k.silent
}

// discard returns the budget of what nobody will take.
func (k *ask) discard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, msg := range k.queue {
		k.release(msg.Data)
	}
	k.queue = nil
}
