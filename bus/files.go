package bus

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// CommitUpload tells one archive that an upload is complete and what file it
// must be. On a nil error the file is on that archive's disk; committing a file
// that is there is no error. The archive checks size, digest and CID itself: a
// difference is Conflict or Invalid, an upload it does not know NotFound,
// UNKNOWN_UPLOAD. After a Transient fault the outcome is unknown, and the same
// commit may be sent again.
func (a *Archives) CommitUpload(ctx context.Context, id wire.ArchiveID, uploadID string, commit wire.BlobCommit) error {
	data, err := wire.Encode(commit)
	if err != nil {
		return err
	}
	reply, err := a.request(ctx, id, frame(id, wire.OpCommit, uploadID, data), a.cfg.CommitTimeout)
	if err != nil {
		return err
	}
	_, err = decodeAck(id, reply)
	return err
}

// AbortUpload tells one archive to drop an upload. An upload that the archive
// does not know, or has committed, is no error and stays as it is.
func (a *Archives) AbortUpload(ctx context.Context, id wire.ArchiveID, uploadID string) error {
	_, err := a.request(ctx, id, frame(id, wire.OpAbort, uploadID, nil), a.cfg.RequestTimeout)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// HasFile reports whether one archive has the bytes of a file.
func (a *Archives) HasFile(ctx context.Context, id wire.ArchiveID, file wire.BlobCommit) (bool, error) {
	data, err := wire.Encode(file)
	if err != nil {
		return false, err
	}
	reply, err := a.request(ctx, id, frame(id, wire.OpHas, "", data), a.cfg.RequestTimeout)
	if err != nil {
		return false, err
	}
	ack, err := decodeAck(id, reply)
	return ack.Has, err
}

// Copy brings a file from one archive to another: the first verifies each block
// that it reads, the second the whole, and the file is committed there on a nil
// error. tenant is one that may read the file. It heals a lost copy; a file that
// is there already is not sent again.
func (a *Archives) Copy(ctx context.Context, from, to wire.ArchiveID, tenant wire.TenantID, file wire.BlobCommit) error {
	has, err := a.HasFile(ctx, to, file)
	if err != nil || has {
		return err
	}
	src, err := a.ReadFile(ctx, []wire.ArchiveID{from}, tenant, file.CID, 0, file.Size)
	if err != nil {
		return err
	}
	defer src.Close()
	u, err := a.openUpload(ctx, []wire.ArchiveID{to}, profileOf(file), 1, 1)
	if err != nil {
		return err
	}
	if err := a.fill(ctx, u, src); err != nil {
		u.Abort()
		return err
	}
	if err := a.CommitUpload(ctx, to, u.ID(), file); err != nil {
		u.Abort()
		return err
	}
	return nil
}

// profileOf is the profile of a file that is uploaded anew.
func profileOf(file wire.BlobCommit) blob.Profile {
	return cmp.Or(blob.Profile{ChunkSize: file.ChunkSize, MaxLinks: file.MaxLinks}, blob.Default)
}

// fill sends all of src.
func (a *Archives) fill(ctx context.Context, u *upload, src io.Reader) error {
	if _, err := io.Copy(u, src); err != nil {
		return err
	}
	_, err := u.Finish(ctx)
	return err
}

// readFault sums up why no holder of a file could give a range. One that was
// found damaged somewhere is not "not there", and lost only if none of them may
// have it still.
func readFault(cid string, errs []error) error {
	kind, code := fault.NotFound, CodeNotFound
	for _, err := range errs {
		switch k := fault.KindOf(err); {
		case k == fault.NotFound:
		case fault.CodeOf(err) == archive.CodeFileLost:
			if kind == fault.NotFound {
				kind, code = k, archive.CodeFileLost
			}
		case k == fault.Corrupt:
			kind, code = k, fault.CodeOf(err)
		default:
			if kind != fault.Corrupt || code == archive.CodeFileLost {
				kind, code = k, fault.CodeOf(err)
			}
		}
	}
	if len(errs) == 0 {
		kind, code = fault.Transient, CodeNoArchive
	}
	return fault.New(kind, code, "bus: read %s: %w", cid, errors.Join(errs...))
}

// frame builds a request on the blob subject of an archive.
func frame(id wire.ArchiveID, op, uploadID string, data []byte) *nats.Msg {
	msg := &nats.Msg{Subject: wire.SubjectBlobPrefix + string(id), Data: data, Header: nats.Header{}}
	msg.Header.Set(wire.HeaderOp, op)
	if uploadID != "" {
		msg.Header.Set(wire.HeaderUpload, uploadID)
	}
	return msg
}

func decodeAck(id wire.ArchiveID, reply *nats.Msg) (wire.BlobAck, error) {
	ack, err := wire.Decode[wire.BlobAck](reply.Data)
	if err != nil {
		return ack, fault.New(fault.Internal, CodeBadAck, "archive %s: unreadable acknowledgement: %w", id, err)
	}
	return ack, nil
}
