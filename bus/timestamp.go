package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Defaults and bounds of TimestampConfig.
const (
	DefaultTimestampTime = 30 * time.Second
	DefaultTimestamps    = 64       // handled at the same time
	maxTimestampBytes    = 64 << 20 // of their bodies together
)

// TimestampHandler answers middleware. Both methods take and return JSON bodies
// of the contract, and may be called from many goroutines.
type TimestampHandler interface {
	Submit(ctx context.Context, body []byte) ([]byte, error)
	Lookup(ctx context.Context, body []byte) ([]byte, error)
}

// TimestampConfig configures the service for middleware.
type TimestampConfig struct {
	// Timeout bounds one request. Default DefaultTimestampTime.
	Timeout time.Duration
	// Most requests are handled at the same time; others are refused with BUSY.
	// Default DefaultTimestamps.
	Most int
	// Log gets what no caller is told; nil discards.
	Log *slog.Logger
}

// TimestampService serves verae.timestamp.submit and verae.timestamp.lookup.
type TimestampService struct {
	conn     *Conn
	cfg      TimestampConfig
	log      *slog.Logger
	gate     *gate
	hurry    context.CancelFunc     // cancels requests when a drain is out of time
	requests *prometheus.CounterVec // by outcome
	subs     []*nats.Subscription
}

// ServeTimestamp offers h to middleware on conn. All aggregators share a queue
// group: one of them gets each request. An answer is what h returned, or a
// wire.Problem, which the header Verae-Problem marks; both are plain messages,
// so any NATS client can ask. When it returns, requests are heard.
func ServeTimestamp(conn *Conn, h TimestampHandler, cfg TimestampConfig) (*TimestampService, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimestampTime)
	cfg.Most = cmp.Or(cfg.Most, DefaultTimestamps)
	base, hurry := context.WithCancel(context.Background())
	s := &TimestampService{
		conn: conn, cfg: cfg, log: orDiscard(cfg.Log),
		gate: newGate(cfg.Most, maxTimestampBytes), hurry: hurry,
		requests: counters("timestamp_requests_total", "Requests of middleware over NATS.", "outcome", nil),
	}
	err := errors.Join(
		s.bind(base, wire.SubjectSubmit, h.Submit),
		s.bind(base, wire.SubjectLookup, h.Lookup),
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

func (s *TimestampService) bind(base context.Context, subject string, call func(context.Context, []byte) ([]byte, error)) error {
	sub, err := s.conn.subscribe(s.conn.bulk, subject, groupAggregators, func(msg *nats.Msg) {
		if !s.gate.enter(len(msg.Data)) {
			s.finish(msg, nil, busy("requests"))
			return
		}
		go func() {
			defer s.gate.leave(len(msg.Data))
			ctx, cancel := context.WithTimeout(base, s.cfg.Timeout)
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

// finish answers a request. A request without a reply subject was carried out
// all the same.
func (s *TimestampService) finish(msg *nats.Msg, answer []byte, err error) {
	outcome := "ok"
	if err != nil {
		outcome = fault.KindOf(err).String()
	}
	s.requests.WithLabelValues(outcome).Inc()
	if kind := fault.KindOf(err); err != nil && (kind == fault.Internal || kind == fault.Corrupt) {
		s.log.Error("a request of middleware failed", "subject", msg.Subject, "err", err)
	}
	if msg.Reply == "" {
		return
	}
	if sendErr := s.send(msg, answer, err); sendErr != nil {
		s.requests.WithLabelValues("unsent").Inc()
		s.log.Warn("could not answer middleware", "subject", msg.Subject, "err", sendErr)
	}
}

// send sends the answer, or the problem. An answer that does not fit into a
// message is a problem that says so: the caller must not wait for nothing.
func (s *TimestampService) send(msg *nats.Msg, answer []byte, err error) error {
	if err != nil {
		return respondProblem(msg, ProblemOf(err))
	}
	err = msg.Respond(answer)
	if !errors.Is(err, nats.ErrMaxPayload) {
		return err
	}
	return respondProblem(msg, wire.Problem{
		Code: CodeTooLarge, Kind: fault.Internal.String(),
		Message: fmt.Sprintf("the answer has %d bytes and does not fit into a message of this server; fetch it over HTTP", len(answer)),
	})
}

// Drain takes no more requests and returns when those under way are answered.
// When ctx is done first, they are cancelled.
func (s *TimestampService) Drain(ctx context.Context) error {
	err := s.conn.drain(ctx, s.subs...)
	s.gate.close(ctx, s.hurry)
	s.hurry()
	if s.conn.Connected() && ctx.Err() == nil {
		err = errors.Join(err, s.conn.Flush(ctx))
	}
	return err
}

// Metrics returns the service's collectors.
func (s *TimestampService) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.requests}
}
