package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of what an archive does for other archives, beside its work for
// aggregators. What does not fit is refused with BUSY.
const (
	MaxQueuedSyncs = 256
	MaxQueuedCtls  = 64

	largeAnswer = 32 << 10 // bytes, from which on answers take the bulk connection

	syncWorkers = 4
	ctlWorkers  = 8 // some of them wait for pulls
)

// SyncNode is what other archives are served from; *archive.Node is one.
type SyncNode interface {
	// HasRecords reports which records can be read here, in the order of ids.
	HasRecords(ctx context.Context, ids []wire.RecordID) ([]bool, error)
	// Portable returns the part of a durable record that its id is of.
	Portable(ctx context.Context, id wire.RecordID) (wire.PutRecord, error)
	// RecordIDs lists durable records after a sequence number.
	RecordIDs(ctx context.Context, after uint64, limit int) (wire.SyncPage, error)
	// Hello describes the archive as it is now.
	Hello() wire.Hello
}

// Puller fetches records from other archives; *archive.Puller is one.
type Puller interface {
	Pull(ctx context.Context, ids []wire.RecordID, from []wire.ArchiveID) []archive.Pulled
}

// Reconciler sees to copies; *archive.Reconciler is one.
type Reconciler interface {
	Start() wire.ReconcileProgress
	Progress() wire.ReconcileProgress
}

// SyncConfig configures the service for other archives. Node, Blobs and Peers
// are required; without a Puller or Reconciler their operations are refused.
type SyncConfig struct {
	Node       SyncNode
	Blobs      Blobs
	Peers      *Peers
	Puller     Puller
	Reconciler Reconciler
	// Queries answers queries that are put to this archive alone; it has to be
	// drained later. Nil: they are refused.
	Queries *ArchiveService
	// Log gets what no sender is told; nil discards.
	Log *slog.Logger
}

// SyncService binds an archive to its sync and ctl subjects. They are trusted
// ones: whoever may send there reads the records and files of every tenant, and
// makes the archive work.
type SyncService struct {
	conn  *Conn
	id    wire.ArchiveID
	cfg   SyncConfig
	log   *slog.Logger
	syncs *workers
	ctls  *workers
	ctl   map[string]operation
	subs  []*nats.Subscription

	mirrors *mirrorService // nil: nobody may mirror the node's filter

	asked    *prometheus.CounterVec // by op and outcome
	failures throttle
}

// ServeSync starts to serve other archives on conn. When it returns, the
// subscriptions are in force, or will be as soon as there is a connection. Drain
// ends the service.
func ServeSync(conn *Conn, cfg SyncConfig) (*SyncService, error) {
	id, err := wire.ParseArchiveID(string(cfg.Node.Hello().ArchiveID))
	if err != nil {
		return nil, fault.New(fault.Invalid, "", "bus: serve: %w", err).InField("ARCHIVE_ID")
	}
	s := &SyncService{
		conn: conn, id: id, cfg: cfg, log: orDiscard(cfg.Log).With("archive", id),
		syncs: startWorkers(syncWorkers, MaxQueuedSyncs), ctls: startWorkers(ctlWorkers, MaxQueuedCtls),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "archive_asked_total", ConstLabels: prometheus.Labels{"archive": string(id)},
			Help: "Questions of other archives and orders of aggregators, by operation and outcome.",
		}, []string{"op", "outcome"}),
	}
	s.ctl = s.ctlOps()
	s.mirrors = newMirrorService(conn, id, cfg.Node)
	syncs := s.syncOps()
	for _, b := range []struct {
		nc     *nats.Conn
		prefix string
		take   nats.MsgHandler
	}{
		{conn.bulk, wire.SubjectSyncPrefix, func(msg *nats.Msg) { s.take(s.syncs, syncs, msg) }},
		{conn.ctl, wire.SubjectCtlPrefix, s.onCtl},
	} {
		sub, err := conn.subscribe(b.nc, b.prefix+string(id), "", b.take)
		if err != nil {
			return nil, errors.Join(err, s.end())
		}
		s.subs = append(s.subs, sub)
	}
	if err := settle(conn.ctl, conn.bulk); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// end drains at once.
func (s *SyncService) end() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Drain(ctx)
}

// Drain takes nothing new and returns when what was taken is answered. When ctx
// is done before, what is still running is cancelled. Whoever has a lease on the
// filter is told before that the archive is draining, and has a second to give it
// back.
func (s *SyncService) Drain(ctx context.Context) error {
	if s.mirrors != nil && !s.mirrors.feed.Idle() {
		s.sayDraining()
		s.mirrors.release(ctx)
	}
	err := s.conn.drain(ctx, s.subs...)
	s.syncs.close(ctx)
	s.ctls.close(ctx)
	if s.mirrors != nil {
		s.mirrors.close(ctx)
	}
	return err
}

// sayDraining puts the node into that state and sends its hello, as the service
// that is drained next does.
func (s *SyncService) sayDraining() {
	if n, ok := s.cfg.Node.(interface{ SetState(state string) }); ok {
		n.SetState(wire.StateDraining)
	}
	s.mirrors.feed.Refuse(fault.New(fault.Transient, "DRAINING", "bus: the archive is stopping"))
	hello := s.cfg.Node.Hello()
	hello.Proto = helloProto
	data, err := wire.Encode(hello)
	if err == nil {
		err = s.conn.ctl.Publish(wire.SubjectHelloPrefix+string(s.id), data)
	}
	if err != nil && s.failures.now() {
		s.log.Warn("could not say that the archive is draining", "err", err)
	}
}

// Metrics returns the service's collectors, labelled with the archive's id.
func (s *SyncService) Metrics() []prometheus.Collector {
	all := []prometheus.Collector{s.asked}
	if s.mirrors != nil {
		all = append(all, s.mirrors.metrics...)
	}
	return all
}

// An operation answers one question.
type operation func(ctx context.Context, data []byte) (answer, error)

// answer is a payload; at and size stand beside the fragment of something larger.
type answer struct {
	data     []byte
	fragment bool
	at, size int64
	profile  string // of a file, beside its first bytes; "" otherwise
}

// take hands a question to a worker.
func (s *SyncService) take(work *workers, ops map[string]operation, msg *nats.Msg) {
	name := msg.Header.Get(wire.HeaderOp)
	op := ops[name]
	if op == nil {
		s.answer("unknown", msg, answer{}, fault.New(fault.Invalid, CodeMalformed, "header %s: %q is no operation on this subject", wire.HeaderOp, name))
		return
	}
	s.run(work, name, op, msg)
}

// run has a worker answer a question.
func (s *SyncService) run(work *workers, name string, op operation, msg *nats.Msg) {
	if !work.try(func(ctx context.Context) {
		a, err := op(ctx, msg.Data)
		s.answer(name, msg, a, err)
	}) {
		s.answer(name, msg, answer{}, busy("questions"))
	}
}

// answer sends an answer, or a problem, and counts it.
func (s *SyncService) answer(op string, msg *nats.Msg, a answer, err error) {
	outcome := "answered"
	if err != nil {
		outcome = fault.KindOf(err).String()
		if kind := fault.KindOf(err); (kind == fault.Internal || kind == fault.Corrupt) && s.failures.now() {
			s.log.Error("a question of another archive failed", "op", op, "err", err)
		}
	}
	s.asked.WithLabelValues(op, outcome).Inc()
	if msg.Reply == "" {
		return
	}
	if err != nil {
		err = respondProblem(msg, ProblemOf(err))
	} else {
		reply := &nats.Msg{Subject: msg.Reply, Data: a.data, Header: nats.Header{}}
		if a.fragment {
			reply.Header.Set(wire.HeaderOffset, strconv.FormatInt(a.at, 10))
			reply.Header.Set(wire.HeaderSize, strconv.FormatInt(a.size, 10))
			if a.profile != "" {
				reply.Header.Set(wire.HeaderProfile, a.profile)
			}
		}
		if a.fragment || len(a.data) > largeAnswer {
			err = s.conn.bulk.PublishMsg(reply) // nothing small waits behind it
		} else {
			err = msg.RespondMsg(reply)
		}
	}
	if err != nil {
		s.asked.WithLabelValues(op, "unsent").Inc()
	}
}

// checked is a question that says whether it keeps the rules.
type checked interface{ Check() error }

// answering makes an operation of a function on payloads.
func answering[Q checked, A any](op string, f func(context.Context, Q) (A, error)) operation {
	return func(ctx context.Context, data []byte) (answer, error) {
		q, err := read[Q](op, data)
		if err != nil {
			return answer{}, err
		}
		a, err := f(ctx, q)
		if err != nil {
			return answer{}, err
		}
		out, err := wire.Encode(a)
		return answer{data: out}, err
	}
}

// read decodes and checks a question.
func read[Q checked](op string, data []byte) (Q, error) {
	q, err := wire.Decode[Q](data)
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		return q, fault.New(fault.Invalid, CodeMalformed, "%s: %w", op, err)
	}
	return q, nil
}

func (s *SyncService) syncOps() map[string]operation {
	return map[string]operation{
		wire.OpHas: answering(wire.OpHas, func(ctx context.Context, q wire.SyncHas) (wire.SyncHave, error) {
			have, err := s.cfg.Node.HasRecords(ctx, q.IDs)
			return wire.SyncHave{Have: have}, err
		}),
		wire.OpIDs: answering(wire.OpIDs, func(ctx context.Context, q wire.SyncIDs) (wire.SyncPage, error) {
			return s.cfg.Node.RecordIDs(ctx, q.After, q.Limit)
		}),
		wire.OpRemembered: answering(wire.OpRemembered, func(_ context.Context, q wire.SyncRemembered) (wire.SyncMemory, error) {
			return wire.SyncMemory{Remembered: s.cfg.Peers.memoryOf(q.ArchiveID)}, nil
		}),
		wire.OpRecord: s.record,
		wire.OpFile:   s.file,
	}
}

// record answers with a fragment of a record's JSON. It is encoded for each
// fragment; only where max_payload is far below ours are there several.
func (s *SyncService) record(ctx context.Context, data []byte) (answer, error) {
	q, err := read[wire.SyncRecord](wire.OpRecord, data)
	if err != nil {
		return answer{}, err
	}
	rec, err := s.cfg.Node.Portable(ctx, q.ID)
	if err != nil {
		return answer{}, err
	}
	text, err := wire.Encode(rec)
	if err != nil {
		return answer{}, err
	}
	size := int64(len(text))
	if q.Offset > size {
		return answer{}, fault.New(fault.Invalid, CodeMalformed, "record: offset %d of %d bytes", q.Offset, size)
	}
	return answer{data: text[q.Offset:min(q.Offset+wire.FragmentSize, size)], fragment: true, at: q.Offset, size: size}, nil
}

// file answers with a range of a file, each of its blocks verified.
func (s *SyncService) file(ctx context.Context, data []byte) (answer, error) {
	q, err := read[wire.SyncFile](wire.OpFile, data)
	if err != nil {
		return answer{}, err
	}
	here, err := s.cfg.Blobs.Has(ctx, q.SHA256, q.CID)
	if err != nil {
		return answer{}, err
	}
	if !here {
		return answer{}, fault.New(fault.NotFound, archive.CodeNoFile, "file %s is not here, or not whole", q.CID)
	}
	out, size, err := s.cfg.Blobs.Read(ctx, q.CID, q.Offset, int(q.Length))
	if err != nil {
		return answer{}, err
	}
	a := answer{data: out, fragment: true, at: q.Offset, size: size}
	if q.Offset == 0 {
		p, err := s.cfg.Blobs.Profile(ctx, q.SHA256, q.CID)
		if err != nil {
			return answer{}, err
		}
		a.profile = fmt.Sprintf("%d/%d", p.ChunkSize, p.MaxLinks)
	}
	return a, nil
}
