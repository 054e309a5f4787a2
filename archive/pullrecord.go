package archive

import (
	"context"
	"errors"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// local returns the record if it can be read here.
func (p *Puller) local(ctx context.Context, id wire.RecordID) (rec wire.PutRecord, here bool, err error) {
	rec, err = p.node.Portable(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return wire.PutRecord{}, false, nil
	}
	return rec, err == nil, err
}

// record fetches a record from the first archive that gives the right one.
func (p *Puller) record(ctx context.Context, id wire.RecordID, from []wire.ArchiveID) (wire.PutRecord, error) {
	var errs []error
	for _, source := range from {
		rec, err := p.peers.Record(ctx, source, id)
		if err == nil {
			if err = believable(source, id, rec); err == nil {
				return rec, nil
			}
		}
		if ctx.Err() != nil {
			return wire.PutRecord{}, fault.Wrap(fault.Transient, ctx.Err())
		}
		p.report(source, id, err)
		errs = append(errs, err)
	}
	return wire.PutRecord{}, fault.New(fault.Transient, CodeNoRecord, "archive: record %s came from none of %v: %w", id, from, errors.Join(errs...))
}

// believable returns what is wrong with an answer that should be a record.
func believable(source wire.ArchiveID, id wire.RecordID, rec wire.PutRecord) error {
	if err := rec.Check(); err != nil {
		return wrongAnswer(source, "asked for record %s, got one that does not keep the rules: %w", id, err)
	}
	if got := rec.ID(); got != id {
		return wrongAnswer(source, "asked for record %s, got %s", id, got)
	}
	return nil
}

// wrongAnswer says what a peer sent that can not be true.
func wrongAnswer(source wire.ArchiveID, format string, args ...any) error {
	args = append([]any{source}, args...)
	return fault.New(fault.Corrupt, CodeWrongAnswer, "archive %s: "+format, args...)
}

// report makes known what a peer refused or got wrong. That it does not have
// what it was asked for is neither.
func (p *Puller) report(source wire.ArchiveID, what any, err error) {
	switch {
	case fault.CodeOf(err) == CodeWrongAnswer:
		p.metrics.wrong.WithLabelValues(string(source)).Inc()
		p.log.Error("an archive sent what can not be true; nothing of it was kept", "from", source, "of", what, "err", err)
	case fault.Is(err, fault.NotFound):
		p.log.Debug("an archive does not have what it was asked for", "from", source, "of", what)
	default:
		p.log.Warn("an archive did not give what it was asked for", "from", source, "of", what, "err", err)
	}
}
