package bus

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
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
		taken = s.reads.try(func(ctx context.Context) { s.finish(msg, s.read(ctx, msg)) })
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
		if err := s.blobs.Open(upload, blob.Profile{ChunkSize: open.ChunkSize, MaxLinks: open.MaxLinks}); err != nil {
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
	case wire.OpCommit:
		c, err := wire.Decode[wire.BlobCommit](msg.Data)
		if err != nil {
			return malformed(op, err)
		}
		if ack.Duplicate, err = s.blobs.Commit(ctx, upload, c.Size, c.SHA256, c.CID); err != nil {
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

// errNoFile is the one answer to a read of what is not there and of what the
// caller may not see.
var errNoFile = fault.New(fault.NotFound, CodeNotFound, "no such file")

// read answers with the bytes of a range, verified, if the tenant may read the
// file. The right is checked first: nothing is read for a stranger. A file that
// he may read and that is not here is damage.
func (s *ArchiveService) read(ctx context.Context, msg *nats.Msg) error {
	r, err := wire.Decode[wire.BlobRead](msg.Data)
	if err != nil {
		return malformed(wire.OpRead, err)
	}
	if r.Offset < 0 || r.Length < 0 || r.Length > wire.FragmentSize {
		return fault.New(fault.Invalid, CodeMalformed, "a range of %d bytes at %d; at most %d are read at a time", r.Length, r.Offset, wire.FragmentSize)
	}
	tenant, err := wire.ParseTenantID(msg.Header.Get(wire.HeaderTenant))
	if err != nil {
		return malformed(wire.OpRead, err)
	}
	cid, err := blob.ParseCID(msg.Header.Get(wire.HeaderCID))
	if err != nil {
		return err
	}
	file, visible, err := s.node.FileOf(ctx, tenant, cid.String(), cid.Digest)
	if err != nil {
		return err
	}
	if !visible || file.CID != cid.String() { // a block of a file is not that file
		return errNoFile
	}
	data, _, err := s.blobs.Read(ctx, cid.String(), r.Offset, int(r.Length))
	if (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt)) && s.node.FileLost(file.SHA256) {
		return fault.New(fault.Corrupt, archive.CodeFileLost, "file %s is lost: no archive that was asked had its bytes: %w", cid, err)
	}
	if fault.Is(err, fault.NotFound) {
		// A record here names it, and this tenant may read it: to say that it is
		// not there would deny what was acknowledged.
		return fault.New(fault.Corrupt, blob.CodeCorrupt, "file %s is named by a record and is not here: %w", cid, err)
	}
	if err != nil {
		return err
	}
	if msg.Reply == "" {
		return nil
	}
	reply := &nats.Msg{Subject: msg.Reply, Data: data, Header: nats.Header{}}
	reply.Header.Set(wire.HeaderOffset, strconv.FormatInt(r.Offset, 10))
	s.sent(msg.RespondMsg(reply))
	return nil
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
