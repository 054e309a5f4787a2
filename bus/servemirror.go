package bus

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// Bounds of what an archive does for those who mirror its filter. What does not
// fit is refused with BUSY, and deltas are dropped: their receivers ask for them.
const (
	MaxQueuedLeases     = 256
	MaxQueuedDeltas     = 1024     // messages
	MaxQueuedDeltaBytes = 16 << 20 // their hashes together

	leaseWorkers = 1 // so that what one holder asks for, and gives back, keeps its order
	rangeWorkers = 2
	releaseWait  = time.Second // how long a drain waits for leases to be given back
)

// MirroredNode is implemented by nodes whose filter aggregators may mirror.
type MirroredNode interface {
	// Feed is what is added to the filter; nil if nobody may mirror it.
	Feed() *mirror.Feed
	// ViewsSnapshot begins a copy of the filter: what its head is, without a
	// session, and what writes it.
	ViewsSnapshot() (wire.SnapshotHead, func(io.Writer) (int64, error), error)
}

var _ MirroredNode = (*archive.Node)(nil)

// mirrorService is the part of a SyncService that mirrors are served by. Its
// questions are asked on the ctl subject, which is heard on the control connection:
// a put is acknowledged only after those who mirror the filter acknowledged its
// delta, so that neither may wait behind puts or files, nor behind pulls. For the
// same reason acknowledgements are taken as they come, by no worker.
type mirrorService struct {
	feed   *mirror.Feed
	conn   *Conn
	leases *workers
	reads  *workers // fragments of copies, and ranges of deltas
	copies *copyings
	ops    map[string]mirrorOp
	deltas chan wire.Delta
	queued atomic.Int64 // bytes of hashes in deltas
	stop   func()       // ends the sending of deltas
	done   sync.WaitGroup

	sent    *prometheus.CounterVec // deltas by outcome
	metrics []prometheus.Collector
}

// A mirrorOp is an operation with the workers that run it.
type mirrorOp struct {
	work *workers
	run  operation
}

// newMirrorService begins to send the deltas of a node's feed; nil if it has none.
func newMirrorService(conn *Conn, id wire.ArchiveID, node any) *mirrorService {
	n, ok := node.(MirroredNode)
	if !ok || n.Feed() == nil {
		return nil
	}
	stop := make(chan struct{})
	s := &mirrorService{
		feed: n.Feed(), conn: conn,
		leases: startWorkers(leaseWorkers, MaxQueuedLeases), reads: startWorkers(rangeWorkers, MaxQueuedLeases),
		copies: newCopyings(n.ViewsSnapshot),
		deltas: make(chan wire.Delta, MaxQueuedDeltas),
		stop:   sync.OnceFunc(func() { close(stop) }),
		sent: counters("archive_deltas_total", "Deltas of the filter for those who mirror it, by outcome: sent, unsent, dropped (too many wait). Who lacks one asks for it.", "outcome",
			prometheus.Labels{"archive": string(id)}),
	}
	s.sent.WithLabelValues("sent")
	s.ops = map[string]mirrorOp{
		wire.OpLease: {s.leases, answering(wire.OpLease, func(_ context.Context, q wire.LeaseRequest) (wire.LeaseGrant, error) {
			return s.feed.Lease(q)
		})},
		wire.OpDeltas: {s.reads, answering(wire.OpDeltas, func(_ context.Context, q wire.DeltasRequest) (wire.Delta, error) {
			return s.feed.Since(q)
		})},
		wire.OpSnapshot: {s.reads, s.snapshot},
	}
	s.metrics = append(feedMetrics(s.feed, id), s.sent)
	s.done.Go(func() { s.publish(stop) })
	s.feed.SetSend(s.send)
	return s
}

// send hands a delta to the goroutine that publishes. The caller commits records,
// and neither encodes nor waits for a connection.
func (s *mirrorService) send(d wire.Delta) {
	if s.queued.Add(int64(len(d.Hashes))) <= MaxQueuedDeltaBytes {
		select {
		case s.deltas <- d:
			return
		default:
		}
	}
	s.queued.Add(-int64(len(d.Hashes)))
	s.sent.WithLabelValues("dropped").Inc()
}

// publish sends deltas in their order until stop is closed.
func (s *mirrorService) publish(stop <-chan struct{}) {
	for {
		select {
		case d := <-s.deltas:
			s.queued.Add(-int64(len(d.Hashes)))
			data, err := wire.Encode(d)
			if err == nil {
				err = s.conn.ctl.Publish(wire.SubjectFilterPrefix+string(d.ArchiveID), data)
			}
			outcome := "sent"
			if err != nil {
				outcome = "unsent" // who lacks it asks for it
			}
			s.sent.WithLabelValues(outcome).Inc()
		case <-stop:
			return
		}
	}
}

// acked takes the acknowledgement of a holder.
func (s *mirrorService) acked(data []byte) error {
	a, err := read[wire.DeltaAck](wire.OpAck, data)
	if err == nil {
		s.feed.Ack(a)
	}
	return err
}

// snapshot begins a copy, or answers with a fragment of one.
func (s *mirrorService) snapshot(_ context.Context, data []byte) (answer, error) {
	q, err := read[wire.SnapshotRequest](wire.OpSnapshot, data)
	if err != nil {
		return answer{}, err
	}
	if q.Session != "" {
		out, size, err := s.copies.fragment(q.Session, q.Offset)
		if err == nil {
			s.feed.Follow() // what is added meanwhile is asked for at the end, however long this takes
		}
		return answer{data: out, fragment: true, at: int64(q.Offset), size: int64(size)}, err
	}
	head, err := s.copies.begin()
	if err != nil {
		return answer{}, err
	}
	out, err := wire.Encode(head)
	return answer{data: out}, err
}

// release waits a moment for the leases to be given back, so that the next process
// of this archive need not wait for them to run out. Holders give them back when
// the archive says that it is draining.
func (s *mirrorService) release(ctx context.Context) {
	late := time.NewTimer(releaseWait)
	defer late.Stop()
	tick := time.NewTicker(releaseWait / 200)
	defer tick.Stop()
	for !s.feed.Idle() && s.conn.Connected() {
		select {
		case <-tick.C:
		case <-late.C:
			return
		case <-s.conn.lost:
			return
		case <-ctx.Done():
			return
		}
	}
}

// close ends the service when its subscription has ended.
func (s *mirrorService) close(ctx context.Context) {
	s.copies.close()
	s.leases.close(ctx)
	s.reads.close(ctx)
	s.feed.SetSend(nil)
	s.stop()
	s.done.Wait()
}

// onCtl takes a message on the ctl subject.
func (s *SyncService) onCtl(msg *nats.Msg) {
	name := msg.Header.Get(wire.HeaderOp)
	switch name {
	case wire.OpDirect:
		s.direct(msg)
		return
	case wire.OpAck, wire.OpLease, wire.OpDeltas, wire.OpSnapshot:
	default:
		s.take(s.ctls, s.ctl, msg)
		return
	}
	if s.mirrors == nil {
		s.answer(name, msg, answer{}, unserved(name))
		return
	}
	if name == wire.OpAck {
		outcome := "taken"
		if s.mirrors.acked(msg.Data) != nil {
			outcome = fault.Invalid.String()
		}
		s.asked.WithLabelValues(name, outcome).Inc()
		return
	}
	op := s.mirrors.ops[name]
	s.run(op.work, name, op.run, msg)
}

// direct takes a query that is put to this archive alone.
func (s *SyncService) direct(msg *nats.Msg) {
	if s.cfg.Queries == nil {
		s.answer(wire.OpDirect, msg, answer{}, unserved(wire.OpDirect))
		return
	}
	s.asked.WithLabelValues(wire.OpDirect, "taken").Inc()
	s.cfg.Queries.onDirect(msg)
}
