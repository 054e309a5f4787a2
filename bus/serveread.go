package bus

import (
	"context"
	"runtime/debug"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// errNoFile is the one answer to a read of what is not there and of what the
// caller may not see.
var errNoFile = fault.New(fault.NotFound, CodeNotFound, "no such file")

// reading is a request for bytes.
type reading struct {
	wire.BlobRead
	viewer wire.TenantID
	cid    blob.CID
}

func parseReading(op string, msg *nats.Msg) (r reading, err error) {
	if r.BlobRead, err = wire.Decode[wire.BlobRead](msg.Data); err != nil {
		return r, malformed(op, err)
	}
	if r.Offset < 0 || r.Length < 0 || r.Length > wire.FragmentSize {
		return r, fault.New(fault.Invalid, CodeMalformed, "a range of %d bytes at %d; at most %d are read at a time", r.Length, r.Offset, wire.FragmentSize)
	}
	if r.viewer, err = wire.ParseViewer(msg.Header.Get(wire.HeaderTenant)); err != nil {
		return r, malformed(op, err)
	}
	r.cid, err = blob.ParseCID(msg.Header.Get(wire.HeaderCID))
	return r, err
}

// read answers with the bytes of a range, verified, if the viewer may read the
// file. The right is checked first: nothing is read for a stranger. A file that
// he may read and that is not here is damage.
func (s *ArchiveService) read(ctx context.Context, msg *nats.Msg) error {
	r, err := parseReading(wire.OpRead, msg)
	if err != nil {
		return err
	}
	file, visible, err := s.node.FileOf(ctx, r.viewer, r.cid.String(), r.cid.Digest)
	if err != nil {
		return err
	}
	if !visible || file.CID != r.cid.String() { // a block of a file is not that file
		return errNoFile
	}
	data, _, err := s.blobs.Read(ctx, r.cid.String(), r.Offset, int(r.Length))
	if err != nil {
		return s.unreadable(file, err)
	}
	s.respondBytes(msg, r.Offset, data, nil)
	return nil
}

// block answers with the bytes of a range of a block, verified, if the viewer may
// read a file that has it.
func (s *ArchiveService) block(ctx context.Context, msg *nats.Msg) error {
	r, err := parseReading(wire.OpBlock, msg)
	if err != nil {
		return err
	}
	file, visible, err := s.node.FileOf(ctx, r.viewer, "", r.cid.Digest)
	if err != nil {
		return err
	}
	if !visible {
		return errNoFile
	}
	data, size, err := s.blobs.ReadBlock(ctx, file.CID, r.cid.Digest, r.Offset, int(r.Length))
	if err != nil {
		return s.unreadable(file, err)
	}
	more := nats.Header{}
	more.Set(wire.HeaderSize, strconv.FormatInt(size, 10))
	if r.Length == 0 { // told once, with the size
		// Also to a tenant who has the block in a file of his own: caches that
		// others share may keep what is everybody's.
		if _, public, err := s.node.FileOf(ctx, wire.Public, "", r.cid.Digest); err == nil && public {
			more.Set(wire.HeaderPublic, "true")
		}
	}
	s.respondBytes(msg, r.Offset, data, more)
	return nil
}

// unreadable is what a viewer is told of a file that a record here names, that he
// may read, and that could not be read: to say that it is not there would deny
// what was acknowledged.
func (s *ArchiveService) unreadable(file wire.File, err error) error {
	gone := fault.Is(err, fault.NotFound)
	if (gone || fault.Is(err, fault.Corrupt)) && s.node.FileLost(file.SHA256) {
		return fault.New(fault.Corrupt, archive.CodeFileLost, "file %s is lost: no archive that was asked had its bytes: %w", file.CID, err)
	}
	if gone {
		return fault.New(fault.Corrupt, blob.CodeCorrupt, "file %s is named by a record and is not here: %w", file.CID, err)
	}
	return err
}

// respondBytes answers with bytes and where they are from.
func (s *ArchiveService) respondBytes(msg *nats.Msg, off int64, data []byte, header nats.Header) {
	if msg.Reply == "" {
		return
	}
	reply := &nats.Msg{Subject: msg.Reply, Data: data, Header: header}
	if header == nil {
		reply.Header = nats.Header{}
	}
	reply.Header.Set(wire.HeaderOffset, strconv.FormatInt(off, 10))
	s.sent(msg.RespondMsg(reply))
}

// guarded does something for somebody else, whose request must not end the process
// of all when it meets a fault of ours.
func guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Internal, "", "bus: panic: %v: %s", p, debug.Stack())
		}
	}()
	return do()
}
