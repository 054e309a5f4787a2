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
	a      *Archives
	msg    *nats.Msg           // the query
	ctx    context.Context     // ends with the query
	once   sync.Once           // of confirm
	finish func()              // ends the query; may be called again
	end    chan struct{}       // closed by finish
	wake   chan struct{}       // has a value when queue, silent or away changed
	alone  bool                // nobody but the named archives gets the query
	gone   chan wire.ArchiveID // gets named archives that are not there; nil: nobody asked for that

	mu     sync.Mutex // guards all below
	queue  []*nats.Msg
	named  map[string]*share       // of the archives named in the query; the map itself stays
	all    share                   // of them together
	others share                   // of everybody else
	doubt  bool                    // a message said that nobody listens
	away   []wire.ArchiveID        // named archives that may not be there; pump asks them
	seen   map[wire.ArchiveID]bool // those that were in away
	silent bool                    // nobody listens
	over   bool                    // nothing is taken any more
}

// Ask publishes q to every archive and returns the replies as they come, pages
// of one archive as they are. expect names the archives from which a word is
// expected in any case. The channel is closed only when nobody listens at all;
// the caller decides when it has heard enough, and calls stop in any case. Nothing
// comes after ctx is done. An empty q.CorrelationID is filled in.
//
// Without a connection the error is Transient, BUS_DISCONNECTED.
func (a *Archives) Ask(ctx context.Context, q wire.Query, expect []wire.ArchiveID) (replies <-chan wire.Reply, stop func(), err error) {
	k, replies, stop, err := a.begin(ctx, q, &ask{named: newShares(expect)}, expect)
	if err != nil {
		return nil, nil, err
	}
	if err := a.conn.ctl.PublishMsg(k.msg); err != nil {
		stop()
		return nil, nil, sendFault(err, "bus: query")
	}
	a.metrics.asks.Inc()
	return replies, stop, nil
}

// begin takes replies to q, which is not sent yet.
func (a *Archives) begin(ctx context.Context, q wire.Query, k *ask, expect []wire.ArchiveID) (_ *ask, replies <-chan wire.Reply, stop func(), err error) {
	if q.CorrelationID == "" {
		q.CorrelationID = wire.NewCorrelationID()
	}
	if err := q.Check(); err != nil {
		return nil, nil, nil, fault.New(fault.Invalid, CodeMalformed, "bus: query: %w", err)
	}
	if k.msg, err = queryMsg(ctx, q, expect); err != nil {
		return nil, nil, nil, err
	}
	token := string(q.CorrelationID)
	k.a, k.wake, k.end = a, make(chan struct{}, 1), make(chan struct{})
	asking, cancel := context.WithCancel(ctx)
	k.ctx = asking
	k.finish = sync.OnceFunc(func() {
		a.replies.remove(token)
		close(k.end)
		cancel()
	})
	out := make(chan wire.Reply, max(1, min(len(expect), 64)))
	started := a.replies.add(token, k, func() {
		k.pump(out)
		k.discard()
	})
	if !started {
		cancel()
		return nil, nil, nil, fault.New(fault.Conflict, "", "bus: query %s is under way, or the client is closed", token)
	}
	unhook := context.AfterFunc(ctx, k.finish)
	return k, out, func() {
		unhook()
		k.finish()
	}, nil
}

// confirm asks once more, with an answer to a subject that no archive knows,
// when a message said that nobody listens. Whoever heard the query can send such
// a message, and must not end the query of all the others.
func (k *ask) confirm() {
	again := &nats.Msg{Subject: k.msg.Subject, Data: k.msg.Data, Header: k.msg.Header}
	_, err := k.a.conn.ctl.RequestMsgWithContext(k.ctx, again)
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

// shut ends the query from the client's side.
func (k *ask) shut() { k.finish() }

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

// pump decodes replies and hands them out until the query ends. It closes out
// only when nobody listens.
func (k *ask) pump(out chan<- wire.Reply) {
	for {
		msgs, away, doubt, silent := k.take()
		for _, id := range away {
			k.a.replies.running.Go(func() { k.probe(id) })
		}
		for i, msg := range msgs {
			reply, err := wire.DecodeReply(msg.Data)
			k.done(msg)
			if err != nil {
				k.a.metrics.badReplies.WithLabelValues("malformed").Inc()
				continue
			}
			if memory, ok := k.a.ranker.(rememberer); ok {
				memory.Told(reply.ArchiveID, reply.Boot, reply.Checkpoint)
			}
			select {
			case out <- reply:
			case <-k.end:
				for _, msg := range msgs[i+1:] {
					k.done(msg)
				}
				return
			}
		}
		if silent {
			close(out)
			return
		}
		if doubt {
			k.once.Do(func() { k.a.replies.running.Go(k.confirm) })
		}
		select {
		case <-k.wake:
		case <-k.end:
			return
		}
	}
}
