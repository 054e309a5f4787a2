package bus

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Witness is the witness of an archive; see archive.Witness.
type Witness interface {
	Add(r wire.WitnessRequest) (wire.WitnessReply, error)
}

// onWitness shows the archive's witness a checkpoint.
func (s *ArchiveService) onWitness(msg *nats.Msg) {
	r, err := wire.Decode[wire.WitnessRequest](msg.Data)
	if err != nil {
		s.refuse(msg, fault.New(fault.Invalid, CodeMalformed, "witness: %w", err))
		return
	}
	reply, err := s.witness.Add(r)
	if err != nil {
		s.refuse(msg, err)
		return
	}
	s.respond(msg, reply)
}

// Show shows a checkpoint of a ledger to one archive. Its refusals keep their
// kind and code; an archive that does not witness is Transient,
// ARCHIVE_UNREACHABLE.
func (a *Archives) Show(ctx context.Context, id wire.ArchiveID, r wire.WitnessRequest) (wire.WitnessReply, error) {
	data, err := wire.Encode(r)
	if err != nil {
		return wire.WitnessReply{}, err
	}
	reply, err := a.request(ctx, id, &nats.Msg{Subject: wire.SubjectWitnessPrefix + string(id), Data: data}, a.cfg.RequestTimeout)
	if err != nil {
		return wire.WitnessReply{}, err
	}
	answer, err := wire.Decode[wire.WitnessReply](reply.Data)
	if err != nil {
		return wire.WitnessReply{}, fault.New(fault.Internal, CodeBadAck, "archive %s: unreadable answer of its witness: %w", id, err)
	}
	if answer.ArchiveID != id {
		return wire.WitnessReply{}, fault.New(fault.Internal, CodeBadAck, "archive %s: its witness answers as %q", id, answer.ArchiveID)
	}
	return answer, nil
}
