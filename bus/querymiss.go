package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// MaxQueryBatch is how many queries that wait on the subscription are looked for
// in the filter at once.
const MaxQueryBatch = 64

// A missBatch holds queries back while others are known to wait behind them, so
// that a large filter is asked for all of them together: the memory fetches what
// it needs for one while it fetches what it needs for the next. A lone query is
// looked for at once.
type missBatch struct {
	prober Prober // nil: nothing is ever held

	mu      sync.Mutex // guards all below
	left    int        // of those that waited when the batch began, how many have not come
	n       int
	msgs    [MaxQueryBatch]*nats.Msg
	digests [MaxQueryBatch][32]byte
	absent  [MaxQueryBatch]bool
}

// onQuery takes a query off the subscription. A key that is surely absent ends
// here, unless the asker expects a word from this archive in any case.
func (s *ArchiveService) onQuery(msg *nats.Msg) {
	b := &s.misses
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		b.left = waiting(msg.Sub)
	}
	b.left--
	s.hold(msg)
	if b.left == 0 {
		s.probe()
	}
}

// waiting returns how many messages of sub are sure to come, the one that is being
// handled among them, and MaxQueryBatch at most.
func waiting(sub *nats.Subscription) int {
	n, _, err := sub.Pending()
	if err != nil { // it has ended
		return 1
	}
	return min(max(n, 1), MaxQueryBatch)
}

// hold puts a query into the batch, or hands it to the workers if the filter has
// no say in it. The batch is locked.
func (s *ArchiveService) hold(msg *nats.Msg) {
	b := &s.misses
	if names(msg.Header.Get(wire.HeaderExpect), s.id) {
		s.queue(msg, true, time.Now())
		return
	}
	var digest wire.Digest
	ok := false
	if b.prober != nil {
		digest, ok = wire.QueryDigest(msg.Data)
	}
	if !ok {
		s.queue(msg, false, time.Now())
		return
	}
	b.msgs[b.n], b.digests[b.n] = msg, digest
	b.n++
}

// probe ends the batch: it asks the filter, and hands the queries that it does not
// deny to the workers. The batch is locked.
func (s *ArchiveService) probe() {
	b := &s.misses
	if b.n == 0 {
		return
	}
	misses := 0
	for i, absent := range b.prober.AbsentBatch(b.digests[:b.n], b.absent[:0]) {
		if absent {
			misses++
			continue
		}
		s.queue(b.msgs[i], false, time.Now())
	}
	s.metrics.silent.Add(float64(misses))
	clear(b.msgs[:b.n])
	b.n = 0
}

// probeRest looks for what is held when the subscription has ended.
func (s *ArchiveService) probeRest() {
	s.misses.mu.Lock()
	defer s.misses.mu.Unlock()
	s.probe()
}
