package bus

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// onBlob takes a blob frame. Frames of one upload are handled in the order they
// came; reads are handled side by side.
func (s *ArchiveService) onBlob(ctx context.Context, msg *nats.Msg) {
	var taken bool
	switch op := msg.Header.Get(wire.HeaderOp); op {
	case wire.OpRead:
		taken = s.reads.try(func(ctx context.Context) {
			s.finish(msg, guarded(func() error { return s.read(ctx, msg) }))
		})
	case wire.OpBlock:
		taken = s.reads.try(func(ctx context.Context) {
			s.finish(msg, guarded(func() error { return s.block(ctx, msg) }))
		})
	case wire.OpHas:
		taken = s.reads.try(func(ctx context.Context) { s.finish(msg, s.has(ctx, msg)) })
	case wire.OpOpen, wire.OpData, wire.OpCommit, wire.OpAbort:
		upload := msg.Header.Get(wire.HeaderUpload)
		taken = s.frames.try(upload, len(msg.Data), func() { s.finish(msg, s.frame(ctx, msg, op, upload)) })
	default:
		s.finish(msg, fault.New(fault.Invalid, CodeMalformed, "header %s: %q is no operation on blobs", wire.HeaderOp, op))
		return
	}
	if !taken {
		s.finish(msg, busy("blob frames"))
	}
}

// finish counts a frame and answers one that failed.
func (s *ArchiveService) finish(msg *nats.Msg, err error) {
	if err == nil {
		s.metrics.frames.WithLabelValues("ok").Inc()
		return
	}
	s.metrics.frames.WithLabelValues(fault.KindOf(err).String()).Inc()
	s.refuse(msg, err)
}

// frame handles one frame of an upload and answers it, unless it returns an
// error.
func (s *ArchiveService) frame(ctx context.Context, msg *nats.Msg, op, upload string) error {
	ack := wire.BlobAck{Credit: UploadWindow}
	switch op {
	case wire.OpOpen:
		open, err := wire.Decode[wire.BlobOpen](msg.Data)
		if err != nil {
			return malformed(op, err)
		}
		profile := blob.Profile{ChunkSize: open.ChunkSize, MaxLinks: open.MaxLinks}
		if !open.Resume {
			err = s.blobs.Open(upload, profile)
		} else if ack.Received, err = s.blobs.Resume(upload, profile, open.Offset); err == nil {
			ack.Durable = s.blobs.Durable(upload)
		}
		if err != nil {
			return err
		}
	case wire.OpData:
		offset, err := strconv.ParseInt(msg.Header.Get(wire.HeaderOffset), 10, 64)
		if err != nil {
			return malformed(op, err)
		}
		if len(msg.Data) > wire.FragmentSize {
			return fault.New(fault.Invalid, CodeMalformed, "a fragment of %d bytes; at most %d are taken", len(msg.Data), wire.FragmentSize)
		}
		if ack.Received, err = s.blobs.Write(upload, offset, msg.Data); err != nil {
			return err
		}
		ack.Durable = s.blobs.Durable(upload)
		asked := msg.Header.Get(wire.HeaderSync) == "1" && ack.Durable < ack.Received
		if asked || ack.Received-ack.Durable >= SyncBytes {
			s.syncs.start(upload, msg, ack.Received, asked, s.sync)
		}
	case wire.OpCommit:
		c, err := wire.Decode[wire.BlobCommit](msg.Data)
		if err != nil {
			return malformed(op, err)
		}
		file := blob.FileRef{SHA256: c.SHA256, CID: c.CID, Size: c.Size, Profile: blob.Profile{ChunkSize: c.ChunkSize, MaxLinks: c.MaxLinks}}
		if ack.Duplicate, err = s.blobs.CommitFile(ctx, upload, file); err != nil {
			return err
		}
		ack.Received = c.Size
	case wire.OpAbort:
		if err := s.blobs.Abort(upload); err != nil {
			return err
		}
	}
	s.respond(msg, ack)
	return nil
}

func malformed(op string, err error) error {
	return fault.New(fault.Invalid, CodeMalformed, "blob frame %q: %w", op, err)
}

// has answers whether a file is here. Only aggregators may ask, by permission:
// it tells about the files of every tenant.
func (s *ArchiveService) has(ctx context.Context, msg *nats.Msg) error {
	c, err := wire.Decode[wire.BlobCommit](msg.Data)
	if err != nil {
		return malformed(wire.OpHas, err)
	}
	has, err := s.blobs.Has(ctx, c.SHA256, c.CID)
	if err != nil {
		return err
	}
	s.respond(msg, wire.BlobAck{Has: has})
	return nil
}
