package bus

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/wire"
)

// queue hands a query that came at the given time to the workers. One that finds
// no room is dropped: nobody answers it, and its asker lists this archive as
// missing.
func (s *ArchiveService) queue(msg *nats.Msg, named bool, came time.Time) {
	deadline := came.Add(timeLeft(msg.Header.Get(wire.HeaderDeadline)))
	if !s.queries.try(func(ctx context.Context) { s.answer(ctx, msg.Data, named, deadline) }) {
		s.metrics.queries.WithLabelValues("dropped").Inc()
	}
}

// names reports whether id stands in list, which is separated by commas.
func names(list string, id wire.ArchiveID) bool {
	if !strings.Contains(list, string(id)) {
		return false
	}
	for list != "" {
		var name string
		name, list, _ = strings.Cut(list, ",")
		if strings.TrimSpace(name) == string(id) {
			return true
		}
	}
	return false
}

// timeLeft reads the milliseconds of a deadline header.
func timeLeft(header string) time.Duration {
	ms, err := strconv.ParseInt(header, 10, 64)
	if err != nil || ms < 0 || ms > DefaultQueryTime.Milliseconds() {
		return DefaultQueryTime
	}
	return time.Duration(ms) * time.Millisecond
}

// answer answers one query, or stays silent.
func (s *ArchiveService) answer(ctx context.Context, data []byte, named bool, deadline time.Time) {
	if !time.Now().Before(deadline) {
		s.metrics.queries.WithLabelValues("expired").Inc() // nobody waits any more
		return
	}
	bounded := &bound{Context: ctx, at: deadline}
	defer bounded.end()
	ctx = bounded
	s.metrics.queries.WithLabelValues(s.answerOutcome(ctx, data, named)).Inc()
}

func (s *ArchiveService) answerOutcome(ctx context.Context, data []byte, named bool) string {
	q, err := wire.DecodeQuery(data)
	if err != nil {
		return "malformed"
	}
	// The correlation id becomes a subject token. A long or odd one would close
	// this archive's connection for good, so it is checked before anything else.
	if _, err := wire.ParseCorrelationID(string(q.CorrelationID)); err != nil {
		return "bad-correlation-id"
	}
	if q.Check() != nil {
		return "malformed"
	}
	reply, hit, err := s.node.Answer(ctx, q)
	switch {
	case err != nil && ctx.Err() != nil:
		return "expired"
	case err != nil:
		// Silence here would read as "nothing", and an empty reply would be a
		// lie; the asker lists this archive as missing.
		s.internal(wire.SubjectQuery, err)
		return "failed"
	case hit:
		return s.reply(q, reply, "answered")
	case named:
		return s.reply(q, wire.Reply{}, "empty")
	}
	return "silent"
}

// reply sends the pages of an answer. The NATS reply field of the query plays no
// part: where it differs from the correlation id, the id rules.
func (s *ArchiveService) reply(q wire.Query, reply wire.Reply, outcome string) string {
	reply.ArchiveID, reply.SHA256, reply.Boot = s.id, q.SHA256, s.boot
	messages, err := pages(reply, s.conn.ctl.MaxPayload()-replyHeadroom)
	if err != nil {
		s.internal(wire.SubjectQuery, err)
		return "failed"
	}
	subject := wire.SubjectReplyPrefix + string(q.CorrelationID)
	for _, data := range messages {
		if err := s.conn.ctl.Publish(subject, data); err != nil {
			s.sent(err)
			return "unsent"
		}
		s.metrics.pages.Inc()
	}
	return outcome
}
