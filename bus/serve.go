package bus

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of one archive's service. What does not fit is refused with BUSY (puts,
// blob frames) or dropped and counted (queries, which nobody may answer in
// another's name).
const (
	MaxQueuedQueries = 4096
	MaxPuts          = 1024     // being stored at the same time
	MaxPutBytes      = 64 << 20 // their payloads together
	MaxFrames        = 1024     // blob frames waiting or being handled
	MaxFrameBytes    = 64 << 20 // their payloads together
	MaxUploadFrames  = 16       // waiting frames of one upload
	MaxQueuedReads   = 1024

	// UploadWindow is the credit an archive grants to each upload, in bytes.
	UploadWindow = 2 << 20

	queryWorkers = 16
	readWorkers  = 16
	retryBusy    = 100 * time.Millisecond // what a refused sender is told to wait
)

// DefaultQueryTime bounds the answer to a query that names no deadline.
const DefaultQueryTime = 5 * time.Second

// ArchiveConfig configures the service of an archive.
type ArchiveConfig struct {
	// Copies is PUT_COPIES: among how many archives a record that came on the
	// bare put subject is kept. Default DefaultCopies.
	Copies int
	// Witness cosigns the checkpoints of ledgers; nil means that the archive
	// witnesses none.
	Witness Witness
	// Now is the clock by which other archives are judged alive; nil is time.Now.
	Now func() time.Time
	// Log gets what no sender is told; nil discards.
	Log *slog.Logger
}

// ArchiveService binds a node and its blobs to the subjects of an archive:
// queries on the control connection, puts and blob frames on the bulk one, so
// that neither waits for the other.
type ArchiveService struct {
	conn    *Conn
	id      wire.ArchiveID
	boot    string // of this process; in every reply
	node    Node
	misses  missBatch
	blobs   Blobs
	witness Witness // nil: none
	copies  int
	log     *slog.Logger
	metrics serviceMetrics
	others  *presence
	failed  throttle // log lines about internal errors

	queries *workers
	reads   *workers
	puts    *gate
	frames  *serials
	syncs   uploadSyncs
	hurry   context.CancelFunc // cancels puts and frames when a drain is out of time

	subs  []*nats.Subscription // all but hellos
	hello *nats.Subscription
	nudge chan struct{} // asks for a hello now
	say   sync.Mutex    // keeps hellos in the order of the states they tell
	stop  func()        // ends the hellos
	done  sync.WaitGroup
}

// ServeArchive starts to serve node and blobs on conn. When it returns, the
// archive's subscriptions are in force and its first hello is sent, or both will
// be as soon as there is a connection. The service is ended by Drain.
func ServeArchive(conn *Conn, node Node, blobs Blobs, cfg ArchiveConfig) (*ArchiveService, error) {
	id, err := wire.ParseArchiveID(string(node.Hello().ArchiveID))
	if err != nil {
		return nil, fault.New(fault.Invalid, "", "bus: serve: %w", err).InField("ARCHIVE_ID")
	}
	work, hurry := context.WithCancel(context.Background())
	s := &ArchiveService{
		conn: conn, id: id, boot: node.Hello().Boot, node: node, blobs: blobs, witness: cfg.Witness,
		copies: cmp.Or(cfg.Copies, DefaultCopies), log: orDiscard(cfg.Log).With("archive", id),
		metrics: newServiceMetrics(id), others: newPresence(cfg.Now),
		queries: startWorkers(queryWorkers, MaxQueuedQueries),
		reads:   startWorkers(readWorkers, MaxQueuedReads),
		puts:    newGate(MaxPuts, MaxPutBytes),
		frames:  newSerials(newGate(MaxFrames, MaxFrameBytes), MaxUploadFrames),
		hurry:   hurry,
		nudge:   make(chan struct{}, 1),
	}
	if p, ok := node.(Prober); ok {
		s.misses.prober = p
	}
	if err := s.start(work); err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, s.shutdown(ended))
	}
	return s, nil
}

// start subscribes, hellos of others first, so that a bare put finds a view. work
// is the context of puts and frames.
func (s *ArchiveService) start(work context.Context) error {
	var err error
	s.hello, err = s.conn.subscribe(s.conn.ctl, wire.SubjectHelloPrefix+"*", "", s.onHello)
	if err != nil {
		return err
	}
	type binding struct {
		nc      *nats.Conn
		subject string
		handle  nats.MsgHandler
	}
	bindings := []binding{
		{s.conn.bulk, wire.SubjectBlobPrefix + string(s.id), func(msg *nats.Msg) { s.onBlob(work, msg) }},
		{s.conn.bulk, wire.SubjectPutPrefix + string(s.id), func(msg *nats.Msg) { s.onPut(work, msg) }},
		{s.conn.bulk, wire.SubjectPut, func(msg *nats.Msg) { s.onBarePut(work, msg) }},
		{s.conn.ctl, wire.SubjectQuery, s.onQuery},
	}
	if s.witness != nil {
		bindings = append(bindings, binding{s.conn.ctl, wire.SubjectWitnessPrefix + string(s.id), s.onWitness})
	}
	for _, b := range bindings {
		sub, err := s.conn.subscribe(b.nc, b.subject, "", b.handle)
		if err != nil {
			return err
		}
		s.subs = append(s.subs, sub)
		if b.subject == wire.SubjectQuery {
			s.metrics.unseen.of(sub)
		}
	}
	if err := settle(s.conn.ctl, s.conn.bulk); err != nil {
		return err
	}
	unhook := s.conn.onUp(s.Announce)
	stop := make(chan struct{})
	s.stop = sync.OnceFunc(func() {
		unhook()
		close(stop)
	})
	s.sayHello()
	s.done.Go(func() { s.sayHellos(stop) })
	return nil
}

// Drain ends the service without losing what it has taken: it tells everybody
// that the archive is draining, takes nothing new, waits until puts, frames,
// reads and queries are answered, and sends all answers. Then the caller closes
// node and blobs, and the connection last. When ctx is done before, what is
// still running is cancelled, and the error says so.
func (s *ArchiveService) Drain(ctx context.Context) error {
	s.SetState(wire.StateDraining)
	s.sayHello()
	return s.shutdown(ctx)
}

func (s *ArchiveService) shutdown(ctx context.Context) error {
	s.metrics.unseen.read() // the last time that it can be
	errs := []error{s.conn.drain(ctx, s.subs...)}
	s.probeRest()
	s.queries.close(ctx)
	s.puts.close(ctx, s.hurry)
	s.frames.gate.close(ctx, s.hurry)
	s.syncs.running.Wait()
	s.reads.close(ctx)
	s.hurry()
	if s.stop != nil {
		s.stop()
	}
	s.done.Wait()
	if s.hello != nil {
		s.conn.unsubscribe(s.hello)
	}
	if ctx.Err() == nil && s.conn.Connected() {
		if err := s.conn.Flush(ctx); s.conn.Connected() {
			errs = append(errs, err) // else the connection went meanwhile, and the receivers ask again
		}
	}
	return errors.Join(errs...)
}

// refuse answers msg with a problem. An internal error is counted and logged
// here, because the sender is not told.
func (s *ArchiveService) refuse(msg *nats.Msg, err error) {
	if kind := fault.KindOf(err); kind == fault.Internal || kind == fault.Corrupt {
		s.internal(msg.Subject, err)
	}
	if msg.Reply != "" {
		s.sent(respondProblem(msg, ProblemOf(err)))
	}
}

// respond answers msg with v, if it wants an answer.
func (s *ArchiveService) respond(msg *nats.Msg, v any) {
	if msg.Reply == "" {
		return
	}
	data, err := wire.Encode(v)
	if err == nil {
		err = msg.Respond(data)
	}
	s.sent(err)
}

// sent counts an answer that could not be sent. Its receiver will ask again.
func (s *ArchiveService) sent(err error) {
	if err != nil {
		s.metrics.unsent.Inc()
	}
}

// internal logs a failure that is ours, at most one a second.
func (s *ArchiveService) internal(subject string, err error) {
	s.metrics.failures.Inc()
	if s.failed.now() {
		s.log.Error("a request failed", "subject", subject, "err", err)
	}
}
