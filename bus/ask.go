package bus

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// How many reply messages may wait for a consumer. Honest archives stay far
// below: they send one page of at most max_payload for each MiB of records. What
// is beyond is dropped and counted, and its archive is seen as missing.
const (
	MaxQueuedReplies    = 1 << 14   // messages of one query
	MaxQueuedReplyBytes = 64 << 20  // bytes of one query
	maxQueuedTotal      = 256 << 20 // bytes of all queries
)

// An ask collects the replies to one query.
type ask struct {
	a      *Archives
	finish func()        // ends the query; may be called again
	end    chan struct{} // closed by finish
	wake   chan struct{} // has a value when queue or silent changed

	mu     sync.Mutex // guards all below
	queue  []*nats.Msg
	held   int   // messages of the queue, and those pump has taken and not handed out
	bytes  int64 // of them
	silent bool  // the server said that nobody listens
}

// Ask publishes q to every archive and returns the replies as they come, pages
// of one archive as they are. expect names the archives from which a word is
// expected in any case. The channel is closed only when nobody listens at all;
// the caller decides when it has heard enough, and calls stop in any case. Nothing
// comes after ctx is done. An empty q.CorrelationID is filled in.
//
// Without a connection the error is Transient, BUS_DISCONNECTED.
func (a *Archives) Ask(ctx context.Context, q wire.Query, expect []wire.ArchiveID) (replies <-chan wire.Reply, stop func(), err error) {
	if q.CorrelationID == "" {
		q.CorrelationID = wire.NewCorrelationID()
	}
	if err := q.Check(); err != nil {
		return nil, nil, fault.New(fault.Invalid, CodeMalformed, "bus: query: %w", err)
	}
	msg, err := queryMsg(ctx, q, expect)
	if err != nil {
		return nil, nil, err
	}
	token := string(q.CorrelationID)
	k := &ask{a: a, wake: make(chan struct{}, 1), end: make(chan struct{})}
	k.finish = sync.OnceFunc(func() {
		a.replies.remove(token)
		close(k.end)
	})
	out := make(chan wire.Reply, max(1, min(len(expect), 64)))
	started := a.replies.add(token, k, func() {
		k.pump(out)
		k.discard()
	})
	if !started {
		return nil, nil, fault.New(fault.Conflict, "", "bus: query %s is under way, or the client is closed", token)
	}
	unhook := context.AfterFunc(ctx, k.finish)
	stop = func() {
		unhook()
		k.finish()
	}
	if err := a.conn.ctl.PublishMsg(msg); err != nil {
		stop()
		return nil, nil, sendFault(err, "bus: query")
	}
	a.metrics.asks.Inc()
	return out, stop, nil
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
		msgs, silent := k.take()
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
		select {
		case <-k.wake:
		case <-k.end:
			return
		}
	}
}
