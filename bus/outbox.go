package bus

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of the outbox service. Claims and reports are small and rare.
const (
	outboxTime  = 10 * time.Second // for one request
	outboxMost  = 16               // at the same time
	outboxBytes = 4 << 20          // of their bodies together
)

// Outbox hands out messages for neighbours; jobs.Engine is one. Its methods may be
// called from many goroutines, and have their own bounds.
type Outbox interface {
	ClaimOCR(ctx context.Context, c wire.OutboxClaim) (wire.OutboxItems, error)
	DoneOCR(ctx context.Context, d wire.OutboxDone) (wire.OutboxCount, error)
}

// OutboxService serves verae.outbox.ocr.claim and verae.outbox.ocr.done.
type OutboxService struct {
	conn     *Conn
	log      *slog.Logger
	gate     *gate
	hurry    context.CancelFunc     // cancels requests when a drain is out of time
	requests *prometheus.CounterVec // by outcome
	subs     []*nats.Subscription
}

// ServeOutbox offers o to bridges on conn. All aggregators share a queue group: one
// of them gets each request. An answer is a payload of package wire, or a
// wire.Problem, which the header Verae-Problem marks. A claim that asks for no
// answer is ignored: its messages would be kept from everybody else for nobody.
// When it returns, requests are heard.
func ServeOutbox(conn *Conn, o Outbox, log *slog.Logger) (*OutboxService, error) {
	base, hurry := context.WithCancel(context.Background())
	s := &OutboxService{
		conn: conn, log: orDiscard(log), gate: newGate(outboxMost, outboxBytes), hurry: hurry,
		requests: counters("outbox_requests_total", "Claims and reports of bridges, by outcome: ok, a kind of refusal, unanswerable or unsent.", "outcome", nil),
	}
	s.requests.WithLabelValues("ok") // it is there, and 0, before anybody asks
	err := errors.Join(
		s.bind(base, wire.SubjectOCRClaim, true, func(ctx context.Context, body []byte) (any, error) {
			c, err := wire.Decode[wire.OutboxClaim](body)
			if err != nil {
				return nil, fault.New(fault.Invalid, CodeMalformed, "claim: %w", err)
			}
			return o.ClaimOCR(ctx, c)
		}),
		s.bind(base, wire.SubjectOCRDone, false, func(ctx context.Context, body []byte) (any, error) {
			d, err := wire.Decode[wire.OutboxDone](body)
			if err != nil {
				return nil, fault.New(fault.Invalid, CodeMalformed, "done: %w", err)
			}
			return o.DoneOCR(ctx, d)
		}),
		settle(conn.bulk),
	)
	if err != nil {
		for _, sub := range s.subs {
			conn.unsubscribe(sub)
		}
		hurry()
		return nil, err
	}
	return s, nil
}

// bind has requests on a subject carried out by call, each on a goroutine of its
// own.
func (s *OutboxService) bind(base context.Context, subject string, answered bool, call func(context.Context, []byte) (any, error)) error {
	sub, err := s.conn.subscribe(s.conn.bulk, subject, groupAggregators, func(msg *nats.Msg) {
		if answered && msg.Reply == "" {
			s.requests.WithLabelValues("unanswerable").Inc()
			return
		}
		if !s.gate.enter(len(msg.Data)) {
			s.finish(msg, nil, busy("requests"))
			return
		}
		go func() {
			defer s.gate.leave(len(msg.Data))
			ctx, cancel := context.WithTimeout(base, outboxTime)
			defer cancel()
			answer, err := call(ctx, msg.Data)
			s.finish(msg, answer, err)
		}()
	})
	if err == nil {
		s.subs = append(s.subs, sub)
	}
	return err
}

// finish answers a request.
func (s *OutboxService) finish(msg *nats.Msg, answer any, err error) {
	outcome := "ok"
	if err != nil {
		outcome = fault.KindOf(err).String()
	}
	s.requests.WithLabelValues(outcome).Inc()
	if kind := fault.KindOf(err); err != nil && (kind == fault.Internal || kind == fault.Corrupt) {
		s.log.Error("a request of a bridge failed", "subject", msg.Subject, "err", err)
	}
	if msg.Reply == "" {
		return
	}
	if sendErr := s.send(msg, answer, err); sendErr != nil {
		s.requests.WithLabelValues("unsent").Inc()
		s.log.Warn("could not answer a bridge", "subject", msg.Subject, "err", sendErr)
	}
}

func (s *OutboxService) send(msg *nats.Msg, answer any, err error) error {
	if err != nil {
		return respondProblem(msg, ProblemOf(err))
	}
	data, err := wire.Encode(answer)
	if err != nil {
		return err
	}
	if err = msg.Respond(data); !errors.Is(err, nats.ErrMaxPayload) {
		return err
	}
	return respondProblem(msg, wire.Problem{
		Code: CodeTooLarge, Kind: fault.Invalid.String(), Message: "the messages do not fit into one answer of this server; claim fewer, they come again when their lease ends",
	})
}

// Drain takes no more requests and returns when those under way are answered.
// When ctx is done first, they are cancelled.
func (s *OutboxService) Drain(ctx context.Context) error {
	err := s.conn.drain(ctx, s.subs...)
	s.gate.close(ctx, s.hurry)
	s.hurry()
	if s.conn.Connected() && ctx.Err() == nil {
		err = errors.Join(err, s.conn.Flush(ctx))
	}
	return err
}

// Metrics returns the service's collectors.
func (s *OutboxService) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.requests}
}
