package bus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Has reports which records an archive can read now, in the order of ids; at most
// wire.MaxSyncIDs.
func (a *Archives) Has(ctx context.Context, id wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	have, err := demand[wire.SyncHave](ctx, a, id, wire.SubjectSyncPrefix, wire.OpHas, wire.SyncHas{IDs: ids}, a.cfg.RequestTimeout)
	if err == nil && len(have.Have) != len(ids) {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: told of %d records, asked about %d", id, len(have.Have), len(ids))
	}
	return have.Have, err
}

// Pull has an archive fetch records, and the files they name, from others; at
// most wire.MaxPullIDs. It returns the outcome of each in the order of ids: nil
// says that the record rests there.
func (a *Archives) Pull(ctx context.Context, to wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]error, error) {
	from = from[:min(len(from), wire.MaxPullSources)]
	pulled, err := demand[wire.CtlPulled](ctx, a, to, wire.SubjectCtlPrefix, wire.OpPull, wire.CtlPull{IDs: ids, From: from}, a.cfg.CommitTimeout)
	if err != nil {
		return nil, err
	}
	if len(pulled.Results) != len(ids) {
		return nil, fault.New(fault.Internal, CodeBadAck, "archive %s: pulled %d records, asked for %d", to, len(pulled.Results), len(ids))
	}
	out := make([]error, len(ids))
	for i, p := range pulled.Results {
		switch {
		case p.ID != ids[i]:
			return nil, fault.New(fault.Internal, CodeBadAck, "archive %s: pulled record %s, asked for %s", to, p.ID, ids[i])
		case p.Problem != nil:
			out[i] = FaultOf(*p.Problem, "archive "+string(to))
		}
	}
	return out, nil
}

// demand asks an archive on its sync or ctl subject.
func demand[T any](ctx context.Context, a *Archives, id wire.ArchiveID, subject, op string, question any, timeout time.Duration) (answer T, err error) {
	data, err := wire.Encode(question)
	if err != nil {
		return answer, err
	}
	msg := &nats.Msg{Subject: subject + string(id), Data: data, Header: nats.Header{}}
	msg.Header.Set(wire.HeaderOp, op)
	reply, err := a.request(ctx, id, msg, timeout)
	if err != nil {
		return answer, err
	}
	if answer, err = wire.Decode[T](reply.Data); err != nil {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: unreadable answer to %s: %w", id, op, err)
	}
	return answer, err
}
