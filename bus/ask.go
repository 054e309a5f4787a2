package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How many reply messages of named archives may wait for a consumer. Honest ones
// stay far below: they send one page of at most max_payload for each MiB of
// records. What is beyond is dropped and counted, and its archive is seen as
// missing. Others may have a quarter as much beside that.
const (
	MaxQueuedReplies    = 1 << 14   // messages of one query
	MaxQueuedReplyBytes = 64 << 20  // bytes of one query
	maxQueuedTotal      = 256 << 20 // bytes of all queries
	maxQueuedStrange    = maxQueuedTotal / 4
)

// An ask collects the replies to one query.
type ask struct {
	a     *Archives
	token string
	msg   *nats.Msg       // the query
	ctx   context.Context // of the caller; that of the probes is made of it
	wake  chan struct{}   // has a value when something below changed that next looks at
	alone bool            // nobody but the named archives gets the query

	mu     sync.Mutex // guards all below
	queue  []*nats.Msg
	first  [2]*nats.Msg            // the memory of the first queue
	named  map[string]*share       // of the archives named in the query; the map itself stays
	all    share                   // of them together
	others share                   // of everybody else
	doubt  bool                    // a message said that nobody listens, and nobody confirms it yet
	asked  bool                    // that was looked into, once
	silent bool                    // nobody listens
	away   []wire.ArchiveID        // named archives that may not be there; next has them probed
	seen   map[wire.ArchiveID]bool // those that were in away
	gone   []wire.ArchiveID        // those that are not there
	over   bool                    // nothing is taken any more, and no goroutine started
	cancel context.CancelFunc      // of the probes; nil: none were started
	probes context.Context
}

// Ask publishes q and returns next, which hands out the replies as they came, pages
// of one archive as they are, and the named archives which are not there: they said
// no hello lately, or were asked alone, and the server knows nobody who listens for
// them. From the named a word is expected in any case; if alone is set, nobody else
// gets the query. An empty q.CorrelationID is filled in.
//
// next waits for a word, and says no when there is none and its context or ctx is
// done, or nobody listens at all. It is for one goroutine at a time. The caller decides
// when it has heard enough, and calls stop in any case.
//
// Without a connection the error is Transient, BUS_DISCONNECTED.
func (a *Archives) Ask(ctx context.Context, q wire.Query, named []wire.ArchiveID, alone bool) (next func(context.Context) (reply wire.Reply, gone wire.ArchiveID, ok bool), stop func(), err error) {
	if q.CorrelationID == "" {
		q.CorrelationID = wire.NewCorrelationID()
	}
	if err := q.Check(); err != nil {
		return nil, nil, fault.New(fault.Invalid, CodeMalformed, "bus: query: %w", err)
	}
	k := &ask{a: a, token: string(q.CorrelationID), ctx: ctx, alone: alone, named: newShares(named), wake: make(chan struct{}, 1)}
	k.queue = k.first[:0]
	expect := named
	if alone {
		expect = nil // each gets a message of its own
	}
	if k.msg, err = queryMsg(ctx, q, expect); err != nil {
		return nil, nil, err
	}
	if l, ok := a.ranker.(listener); ok {
		for _, id := range l.unheard(named) {
			k.miss(id)
		}
	}
	away := k.away
	if !a.replies.add(k.token, k, nil) {
		return nil, nil, fault.New(fault.Conflict, "", "bus: query %s is under way, or the client is closed", k.token)
	}
	unhook := context.AfterFunc(ctx, k.shut)
	stop = func() {
		unhook()
		k.shut()
		k.discard()
	}
	if err := k.send(named, away); err != nil {
		stop()
		return nil, nil, sendFault(err, "bus: query")
	}
	a.metrics.asks.Inc()
	return k.next, stop, nil
}

// shut ends the query: nothing more is taken. What lies there came in time, and can
// still be had until stop is called. shut may be called again.
func (k *ask) shut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	k.over = true
	k.a.replies.remove(k.token)
	if k.cancel != nil {
		k.cancel()
	}
}

// next is what Ask returns.
func (k *ask) next(ctx context.Context) (reply wire.Reply, gone wire.ArchiveID, ok bool) {
	for done := false; ; {
		msg, gone, silent := k.take()
		switch {
		case msg != nil:
			if reply, ok := k.read(msg); ok {
				return reply, "", true
			}
			continue
		case gone != "" || silent || done:
			return wire.Reply{}, gone, gone != ""
		}
		select {
		case <-k.wake:
		case <-ctx.Done():
			done = true
		case <-k.ctx.Done():
			done = true
		}
	}
}

// read decodes a reply, and has the roster remember what it says of its archive.
func (k *ask) read(msg *nats.Msg) (wire.Reply, bool) {
	reply, err := wire.DecodeReply(msg.Data)
	if err != nil {
		k.a.metrics.badReplies.WithLabelValues("malformed").Inc()
		return wire.Reply{}, false
	}
	if memory, ok := k.a.ranker.(rememberer); ok {
		memory.Told(reply.ArchiveID, reply.Boot, reply.Checkpoint)
	}
	return reply, true
}

// start runs f, which asks the server whether somebody listens, beside the query and
// no longer than it. mu is held.
func (k *ask) start(f func(context.Context)) {
	if k.over {
		return
	}
	if k.cancel == nil {
		k.probes, k.cancel = context.WithCancel(k.ctx)
	}
	ctx := k.probes
	k.a.replies.running.Go(func() { f(ctx) })
}

// confirm asks once more, with an answer to a subject that no archive knows,
// when a message said that nobody listens. Whoever heard the query can send such
// a message, and must not end the query of all the others.
func (k *ask) confirm(ctx context.Context) {
	again := &nats.Msg{Subject: k.msg.Subject, Data: k.msg.Data, Header: k.msg.Header}
	_, err := k.a.conn.ctl.RequestMsgWithContext(ctx, again)
	if !errors.Is(err, nats.ErrNoResponders) {
		k.a.metrics.badReplies.WithLabelValues("unconfirmed-unheard").Inc()
		return
	}
	k.a.metrics.unheard.Inc()
	k.mu.Lock()
	k.silent = true
	k.mu.Unlock()
	k.kick()
}

// queryMsg builds the message of a query. The reply field names the same subject
// as the correlation id: gateways map it, and the server answers on it when
// nobody listens.
func queryMsg(ctx context.Context, q wire.Query, expect []wire.ArchiveID) (*nats.Msg, error) {
	data, err := wire.Encode(q)
	if err != nil {
		return nil, err
	}
	msg := &nats.Msg{
		Subject: wire.SubjectQuery,
		Reply:   wire.SubjectReplyPrefix + string(q.CorrelationID),
		Data:    data,
		Header:  nats.Header{},
	}
	if len(expect) > 0 {
		var names strings.Builder
		for i, id := range expect {
			if i > 0 {
				names.WriteByte(',')
			}
			names.WriteString(string(id))
		}
		msg.Header.Set(wire.HeaderExpect, names.String())
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline).Milliseconds())
		msg.Header.Set(wire.HeaderDeadline, strconv.FormatInt(left, 10))
	}
	return msg, nil
}
