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
	DefaultStallTimeout   = 15 * time.Second
	DefaultCommitTimeout  = time.Minute
	DefaultUploadIdle     = time.Minute
	DefaultAwayTimeout    = 5 * time.Second
)

// Ranker orders the archives that may be offered bytes now; see Roster.Rank.
type Ranker interface {
	Rank(key [32]byte) []wire.ArchiveID
}

// A Ranker may also know which process is the enrolled archive: see
// Roster.Speaks. Acknowledgements of others are then not believed.
type speaker interface {
	Speaks(id wire.ArchiveID, boot string) bool
}

// A Ranker may also remember what archives acknowledge and sign: see Roster.
type rememberer interface {
	Acknowledged(id wire.ArchiveID, ack wire.PutAck)
	Told(id wire.ArchiveID, boot, note string)
}

// ArchivesConfig configures a client of archives.
type ArchivesConfig struct {
	// Copies is how many archives get the bytes of an upload (PUT_COPIES).
	Copies int
	// MinCopies is how many of them must keep up; with fewer the upload fails
	// (PUT_MIN_COPIES).
	MinCopies int
	// RequestTimeout bounds one put, one read, or the opening of an upload.
	RequestTimeout time.Duration
	// StallTimeout is how long an archive may be silent that has a copy of an upload
	// under way, before it counts as away. A disk under load is allowed to pause.
	StallTimeout time.Duration
	// UploadIdle is how long an archive that is away keeps an upload, and is waited
	// for (UPLOAD_IDLE_S).
	UploadIdle time.Duration
	// AwayTimeout is how long it is waited for while others are enough, and have to
	// wait with it. Its copy is made later.
	AwayTimeout time.Duration
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
	queued  atomic.Int64 // bytes of replies of named archives that nobody has taken yet
	strange atomic.Int64 // and of others
	lanes   atomic.Uint64
	frames  poster        // takes the frames of uploads; nothing waits for it
	shared  chan struct{} // memory of uploads, see room
	ahead   chan struct{} // a place for every fragment that was asked for before it was wanted
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

// A poster publishes messages, as a nats.Conn does.
type poster interface{ PublishMsg(*nats.Msg) error }

// NewArchives returns a client on conn that places uploads by ranker. When it
// returns, its subscriptions are in force.
func NewArchives(conn *Conn, ranker Ranker, cfg ArchivesConfig) (*Archives, error) {
	cfg.Copies = cmp.Or(cfg.Copies, DefaultCopies)
	cfg.MinCopies = cmp.Or(cfg.MinCopies, DefaultMinCopies)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, DefaultRequestTimeout)
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, DefaultStallTimeout)
	cfg.CommitTimeout = cmp.Or(cfg.CommitTimeout, DefaultCommitTimeout)
	cfg.UploadIdle = cmp.Or(cfg.UploadIdle, DefaultUploadIdle)
	cfg.AwayTimeout = cmp.Or(cfg.AwayTimeout, DefaultAwayTimeout)
	if cfg.MinCopies < 1 || cfg.Copies < cfg.MinCopies {
		return nil, fault.New(fault.Invalid, "", "bus: PUT_MIN_COPIES %d must be from 1 to PUT_COPIES %d", cfg.MinCopies, cfg.Copies).InField("PUT_MIN_COPIES")
	}
	a := &Archives{
		conn: conn, ranker: ranker, cfg: cfg, log: orDiscard(cfg.Log),
		peers: map[wire.ArchiveID]*peer{}, ahead: make(chan struct{}, allReadAhead),
		frames: conn.bulk, shared: newShared(),
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
