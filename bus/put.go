package bus

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Put sends a put to one archive and returns its acknowledgement: the record is
// on that archive's disk. It waits for a credit first, so that a slow archive
// slows its senders down. Faults of the archive keep their kind and code; an
// archive that nobody answers for is Transient, ARCHIVE_UNREACHABLE. After any
// other Transient fault the outcome is unknown, and the same put may be sent
// again.
func (a *Archives) Put(ctx context.Context, id wire.ArchiveID, put wire.Put) (wire.PutAck, error) {
	data, err := wire.Encode(put)
	if err != nil {
		return wire.PutAck{}, err
	}
	win := a.peer(id).puts
	credit, err := win.acquire(ctx, int64(len(data)))
	if err != nil {
		return wire.PutAck{}, fault.New(fault.Transient, CodeTimeout, "archive %s: no credit in time: %w", id, err)
	}
	defer win.release(credit)
	reply, err := a.request(ctx, id, &nats.Msg{Subject: wire.SubjectPutPrefix + string(id), Data: data}, a.cfg.RequestTimeout)
	if err != nil {
		a.metrics.puts.WithLabelValues("failed").Inc()
		return wire.PutAck{}, err
	}
	ack, err := wire.Decode[wire.PutAck](reply.Data)
	if err != nil {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: unreadable acknowledgement: %w", id, err)
	} else if want := put.Record.ID(); ack.ArchiveID != id || ack.RecordID != want {
		err = fault.New(fault.Internal, CodeBadAck, "archive %s: acknowledged record %s as archive %s; sent %s", id, ack.RecordID, ack.ArchiveID, want)
	}
	if who, ok := a.ranker.(speaker); ok && err == nil && !who.Speaks(id, ack.Boot) {
		err = fault.New(fault.Transient, CodeBadAck, "archive %s: the acknowledgement is of process %q, which is not the one that is enrolled", id, ack.Boot)
	}
	if err != nil {
		a.metrics.puts.WithLabelValues("bad-ack").Inc()
		return wire.PutAck{}, err
	}
	a.metrics.puts.WithLabelValues("acknowledged").Inc()
	if memory, ok := a.ranker.(rememberer); ok {
		memory.Acknowledged(id, ack)
	}
	return ack, nil
}
