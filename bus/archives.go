package bus

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// What an aggregator has under way to one archive at most. An archive accepts at
// least as much (see ArchiveConfig), so nothing is lost between them.
const (
	MaxPutsInFlight      = 64
	MaxPutBytesInFlight  = 16 << 20
	MaxBlobBytesInFlight = 16 << 20 // of all uploads together
	MaxReadBytesInFlight = 16 << 20 // asked for by all readers together
)

// Defaults of ArchivesConfig.
const (
	DefaultCopies         = 2
	DefaultMinCopies      = 1
	DefaultRequestTimeout = 5 * time.Second
	DefaultCommitTimeout  = time.Minute
)

// Ranker orders the archives that may be offered bytes now; see Roster.Rank.
type Ranker interface {
	Rank(key [32]byte) []wire.ArchiveID
}

// ArchivesConfig configures a client of archives.
type ArchivesConfig struct {
	// Copies is how many archives get the bytes of an upload (PUT_COPIES).
	Copies int
	// MinCopies is how many of them must keep up; with fewer the upload fails
	// (PUT_MIN_COPIES).
	MinCopies int
	// RequestTimeout bounds one put, one frame or one read.
	RequestTimeout time.Duration
	// CommitTimeout bounds the commit of an upload, in which the archive syncs
	// the file to disk.
	CommitTimeout time.Duration
	// Log gets what no caller is told; nil discards.
	Log *slog.Logger
}

// Archives is the aggregator's way to its archives: it puts, asks, uploads,
// reads and copies. Its methods may be called from many goroutines.
type Archives struct {
	conn    *Conn
	ranker  Ranker
	cfg     ArchivesConfig
	log     *slog.Logger
	metrics clientMetrics

	replies *mux         // answers to queries, on the control connection
	acks    *mux         // answers to fragments, on the bulk connection
	queued  atomic.Int64 // bytes of replies that nobody has taken yet
	lanes   atomic.Uint64
	subs    []*nats.Subscription

	mu    sync.Mutex // guards peers
	peers map[wire.ArchiveID]*peer
}

// A peer holds what bounds the traffic to one archive.
type peer struct {
	puts  *window
	blobs *window
	reads *window
}

// NewArchives returns a client on conn that places uploads by ranker. When it
// returns, its subscriptions are in force.
func NewArchives(conn *Conn, ranker Ranker, cfg ArchivesConfig) (*Archives, error) {
	cfg.Copies = cmp.Or(cfg.Copies, DefaultCopies)
	cfg.MinCopies = cmp.Or(cfg.MinCopies, DefaultMinCopies)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, DefaultRequestTimeout)
	cfg.CommitTimeout = cmp.Or(cfg.CommitTimeout, DefaultCommitTimeout)
	if cfg.MinCopies < 1 || cfg.Copies < cfg.MinCopies {
		return nil, fault.New(fault.Invalid, "", "bus: PUT_MIN_COPIES %d must be from 1 to PUT_COPIES %d", cfg.MinCopies, cfg.Copies).InField("PUT_MIN_COPIES")
	}
	a := &Archives{
		conn: conn, ranker: ranker, cfg: cfg, log: orDiscard(cfg.Log),
		peers: map[wire.ArchiveID]*peer{},
	}
	a.metrics = newClientMetrics(a)
	a.replies = newMux(wire.SubjectReplyPrefix, a.metrics.late)
	a.acks = newMux(conn.bulk.NewInbox()+".", a.metrics.lateAcks)
	replies, err := conn.subscribe(conn.ctl, wire.SubjectReplyPrefix+"*", "", a.replies.dispatch)
	if err != nil {
		return nil, err
	}
	a.subs = append(a.subs, replies)
	acks, err := conn.subscribe(conn.bulk, a.acks.prefix+"*", "", a.acks.dispatch)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.subs = append(a.subs, acks)
	if err := settle(conn.ctl, conn.bulk); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close ends all queries and uploads and waits for their goroutines. Puts and
// reads end with their own contexts.
func (a *Archives) Close() error {
	a.replies.close()
	a.acks.close()
	for _, sub := range a.subs {
		a.conn.unsubscribe(sub)
	}
	return nil
}

func (a *Archives) peer(id wire.ArchiveID) *peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[id]
	if p == nil {
		p = &peer{
			puts:  newWindow(MaxPutsInFlight, MaxPutBytesInFlight),
			blobs: newWindow(MaxBlobBytesInFlight/wire.FragmentSize, MaxBlobBytesInFlight),
			reads: newWindow(MaxReadBytesInFlight/wire.FragmentSize, MaxReadBytesInFlight),
		}
		a.peers[id] = p
	}
	return p
}

// request sends msg to an archive over the bulk connection and waits for its
// answer, at most for timeout. A refusal is the fault that the archive named.
func (a *Archives) request(ctx context.Context, id wire.ArchiveID, msg *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from := "archive " + string(id)
	reply, err := a.conn.bulk.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, sendFault(err, from)
	}
	if err := replyFault(reply, from); err != nil {
		return nil, err
	}
	return reply, nil
}

// Put sends a put to one archive and returns its acknowledgement: the record is
// on that archive's disk. It waits for a credit first, so that a slow archive
// slows its senders down. Faults of the archive keep their kind and code; an
// archive that nobody answers for is Transient, ARCHIVE_UNREACHABLE. After any
// other Transient fault the outcome is unknown, and the same put may be sent
// again.
func (a *Archives) Put(ctx context.Context, id wire.ArchiveID, put wire.Put) (wire.PutAck, error) {
	data, err := wire.Encode(put)
	if err != nil {
		return wire.PutAck{}, err
	}
	win := a.peer(id).puts
	credit, err := win.acquire(ctx, int64(len(data)))
	if err != nil {
		return wire.PutAck{}, fault.New(fault.Transient, CodeTimeout, "archive %s: no credit in time: %w", id, err)
	}
	defer win.release(credit)
	reply, err := a.request(ctx, id, &nats.Msg{Subject: wire.SubjectPutPrefix + string(id), Data: data}, a.cfg.RequestTimeout)
	if err != nil {
		a.metrics.puts.WithLabelValues("failed").Inc()
		return wire.PutAck{}, err
	}
	ack, err := wire.Decode[wire.PutAck](reply.Data)
	if err != nil {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: unreadable acknowledgement: %w", id, err)
	} else if want := put.Record.ID(); ack.ArchiveID != id || ack.RecordID != want {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: acknowledged record %s as archive %s; sent %s", id, ack.RecordID, ack.ArchiveID, want)
	}
	if err != nil {
		a.metrics.puts.WithLabelValues("bad-ack").Inc()
		return wire.PutAck{}, err
	}
	a.metrics.puts.WithLabelValues("acknowledged").Inc()
	return ack, nil
}

// Metrics returns the client's collectors.
func (a *Archives) Metrics() []prometheus.Collector { return a.metrics.all }

type clientMetrics struct {
	puts       *prometheus.CounterVec // by outcome
	asks       prometheus.Counter
	unheard    prometheus.Counter
	late       prometheus.Counter
	lateAcks   prometheus.Counter
	badReplies *prometheus.CounterVec // by reason
	lanes      *prometheus.CounterVec // by outcome
	all        []prometheus.Collector
}

func newClientMetrics(a *Archives) clientMetrics {
	m := clientMetrics{
		puts:       counters("puts_total", "Puts sent to archives.", "outcome", nil),
		asks:       counter("queries_total", "Queries published.", nil),
		unheard:    counter("queries_unheard_total", "Queries that nobody listened to.", nil),
		late:       counter("replies_late_total", "Replies to queries that had ended, or never were.", nil),
		lateAcks:   counter("upload_acks_late_total", "Acknowledgements for uploads that had ended.", nil),
		badReplies: counters("replies_dropped_total", "Replies that were not passed on.", "reason", nil),
		lanes:      counters("upload_copies_total", "Copies of uploads by how they ended.", "outcome", nil),
	}
	m.all = []prometheus.Collector{
		m.puts, m.asks, m.unheard, m.late, m.lateAcks, m.badReplies, m.lanes,
		gauge("replies_queued_bytes", "Bytes of replies that no query has taken yet.", nil,
			func() float64 { return float64(a.queued.Load()) }),
	}
	return m
}
