package bus

import (
	"bytes"
	"context"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// onPut takes a put that names this archive.
func (s *ArchiveService) onPut(ctx context.Context, msg *nats.Msg) { s.take(ctx, msg, s.put) }

// onBarePut takes a put that names no archive, as a peer sends it that knows
// only the original contract: the owners of its digest store it, the others say
// nothing.
func (s *ArchiveService) onBarePut(ctx context.Context, msg *nats.Msg) {
	s.take(ctx, msg, s.putIfOwner)
}

// take handles a put on a goroutine of its own, so that many wait for one group
// commit together.
func (s *ArchiveService) take(ctx context.Context, msg *nats.Msg, handle func(context.Context, *nats.Msg)) {
	if !s.puts.enter(len(msg.Data)) {
		s.metrics.puts.WithLabelValues("busy").Inc()
		s.refuse(msg, busy("puts"))
		return
	}
	go func() {
		defer s.puts.leave(len(msg.Data))
		handle(ctx, msg)
	}()
}

// busy is the refusal of what a bounded queue has no room for.
func busy(what string) error {
	return fault.New(fault.Transient, CodeBusy, "too many %s are under way", what).After(retryBusy)
}

func (s *ArchiveService) put(ctx context.Context, msg *nats.Msg) {
	put, ok := s.decodePut(msg)
	if !ok {
		return
	}
	s.store(ctx, msg, put)
}

func (s *ArchiveService) putIfOwner(ctx context.Context, msg *nats.Msg) {
	put, ok := s.decodePut(msg)
	if !ok {
		return
	}
	if err := bareKind(&put.Record); err != nil {
		s.metrics.puts.WithLabelValues("malformed").Inc()
		s.refuse(msg, err)
		return
	}
	if !s.owns(put.Record.SHA256) {
		s.metrics.puts.WithLabelValues("not-owner").Inc()
		return
	}
	s.store(ctx, msg, put)
}

// bareKind refuses what nobody but an aggregator may have recorded. On the bare
// subject anybody puts who may publish there: private metadata in clear would be
// kept for ever, a control record would steer what is not its sender's, and a
// file's bytes come through an aggregator.
func bareKind(r *wire.PutRecord) error {
	switch {
	case r.Kind == wire.KindPrivateMetadata && !bytes.HasPrefix(r.Body, []byte(wire.SealedMagic)):
		return fault.New(fault.Invalid, CodeMalformed, "put: body: private metadata is stored only sealed: send it through %s", wire.SubjectSubmit)
	case r.Kind == wire.KindFile || r.Kind.Control():
		return fault.New(fault.Invalid, CodeMalformed, "put: kind: records of kind %q are not taken on this subject", r.Kind)
	}
	return nil
}

func (s *ArchiveService) decodePut(msg *nats.Msg) (wire.Put, bool) {
	put, err := wire.DecodePut(msg.Data)
	if err == nil {
		err = put.Check()
	}
	if err != nil {
		s.metrics.puts.WithLabelValues("malformed").Inc()
		s.refuse(msg, fault.New(fault.Invalid, CodeMalformed, "put: %w", err))
		return put, false
	}
	return put, true
}

// store stores the record and answers when it is on disk.
func (s *ArchiveService) store(ctx context.Context, msg *nats.Msg, put wire.Put) {
	ack, err := s.node.Put(ctx, put)
	switch {
	case err != nil:
		s.metrics.puts.WithLabelValues(fault.KindOf(err).String()).Inc()
		s.refuse(msg, err)
	case ack.Duplicate:
		s.metrics.puts.WithLabelValues("duplicate").Inc()
		s.respond(msg, ack)
	default:
		s.metrics.puts.WithLabelValues("stored").Inc()
		s.respond(msg, ack)
	}
}
