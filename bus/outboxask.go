package bus

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// ClaimOCR claims messages of OCR jobs from the aggregator. Whoever claims them
// publishes each with the bytes and the id that it has, and reports it with
// DoneOCR once the broker has confirmed it and did not return it; the others come
// again when their lease ends. Refusals keep their kind and code; an aggregator
// that nobody hears is Transient. ctx must have a deadline.
func (c *Conn) ClaimOCR(ctx context.Context, claim wire.OutboxClaim) (wire.OutboxItems, error) {
	return askOutbox[wire.OutboxItems](ctx, c, wire.SubjectOCRClaim, claim)
}

// DoneOCR reports messages as published. It may be repeated, and is after any
// Transient fault.
func (c *Conn) DoneOCR(ctx context.Context, done wire.OutboxDone) (wire.OutboxCount, error) {
	return askOutbox[wire.OutboxCount](ctx, c, wire.SubjectOCRDone, done)
}

func askOutbox[T any](ctx context.Context, c *Conn, subject string, request any) (answer T, err error) {
	data, err := wire.Encode(request)
	if err != nil {
		return answer, err
	}
	reply, err := c.bulk.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: data})
	if err != nil {
		return answer, sendFault(err, "the outbox")
	}
	if err := replyFault(reply, "the outbox"); err != nil {
		return answer, err
	}
	if answer, err = wire.Decode[T](reply.Data); err != nil {
		return answer, fault.New(fault.Internal, CodeBadAck, "the outbox: unreadable answer: %w", err)
	}
	return answer, nil
}
