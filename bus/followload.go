package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// How long an archive is waited for.
const (
	leaseTimeout    = time.Second
	deltasTimeout   = 2 * time.Second
	fragmentTimeout = 5 * time.Second
	fragmentTries   = 3
)

// tell sends something that is not answered to an archive.
func (m *Mirrors) tell(id wire.ArchiveID, op string, v any) error {
	msg, err := ctlMsg(id, op, v)
	if err != nil {
		return err
	}
	return sendFault(m.conn.ctl.PublishMsg(msg), "archive "+string(id))
}

func ctlMsg(id wire.ArchiveID, op string, v any) (*nats.Msg, error) {
	data, err := wire.Encode(v)
	if err != nil {
		return nil, err
	}
	msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + string(id), Data: data, Header: nats.Header{}}
	msg.Header.Set(wire.HeaderOp, op)
	return msg, nil
}

// asking sends a question to an archive over one of the connections.
func asking(ctx context.Context, nc *nats.Conn, id wire.ArchiveID, op string, v any, timeout time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from := "archive " + string(id)
	msg, err := ctlMsg(id, op, v)
	if err != nil {
		return nil, err
	}
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, sendFault(err, from)
	}
	return reply, replyFault(reply, from)
}

// answered reads the answer to a question.
func answered[T checked](reply *nats.Msg, err error, id wire.ArchiveID) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if v, err = wire.Decode[T](reply.Data); err == nil {
		err = v.Check()
	}
	if err != nil {
		return v, fault.New(fault.Corrupt, CodeBadAck, "archive %s: its answer can not be read: %w", id, err)
	}
	return v, nil
}

// fetch copies the filter of an archive, as it is seen.
func (f *follower) fetch(ctx context.Context, seen sight) (*copied, error) {
	m := f.m
	reply, err := asking(ctx, m.conn.bulk, f.id, wire.OpSnapshot, wire.SnapshotRequest{}, fragmentTimeout)
	head, err := answered[wire.SnapshotHead](reply, err, f.id)
	if err != nil {
		return nil, err
	}
	if head.ArchiveID != f.id || head.KeyID != m.keyID || !feedOf(seen.boot, head.Feed) {
		return nil, fault.New(fault.Transient, CodeBadAck, "archive %s: asked for the filter of its process %q under key %s, it gave that of %q, feed %q, under key %s",
			f.id, seen.boot, m.keyID, head.ArchiveID, head.Feed, head.KeyID)
	}
	room := m.reserve(head.Size)
	if room == 0 {
		return nil, fault.New(fault.Conflict, codeNoRoom, "bus: the mirror of archive %s takes %d bytes, and there is no such room; raise MIRROR_MAX_BYTES", f.id, head.Size)
	}
	source := &copyReader{ctx: ctx, conn: m.conn, id: f.id, head: head}
	set, got, err := bloom.ReadSnapshot(source, int64(head.Size), bloom.Params{Secret: m.cfg.Secret, MaxBytes: room})
	if err != nil {
		m.release(room)
		return nil, fmt.Errorf("bus: the filter of archive %s: %w", f.id, err)
	}
	if got.CorruptChunks > 0 {
		m.log.Warn("a part of a filter was damaged on its way: it is wrong more often, and denies nothing", "archive", f.id, "chunks", got.CorruptChunks)
	}
	set.Complete()
	c := &copied{set: set, boot: seen.boot, feed: head.Feed, reserved: room, gens: set.Generations()}
	c.mirror = mirror.NewMirror(mirror.MirrorConfig{Holder: fmt.Sprintf("%s-%d", m.cfg.Holder, m.names.Add(1)), Clock: m.cfg.Clock})
	c.mirror.Load(set, head)
	c.lapsed.Store(true) // what came while it was copied is asked for
	return c, nil
}

// codeNoRoom is in the fault of a filter that is too large; nobody else sees it.
const codeNoRoom = "MIRROR_NO_ROOM"

// feedOf reports whether a feed is of a process.
func feedOf(boot, feed string) bool { return boot != "" && strings.HasPrefix(feed, boot+".") }

// A copyReader reads the copy of a filter, fragment by fragment.
type copyReader struct {
	ctx  context.Context
	conn *Conn
	id   wire.ArchiveID
	head wire.SnapshotHead
	at   uint64 // behind data
	data []byte // not read yet
}

// Read implements io.Reader.
func (r *copyReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// fill asks for the next fragment. An answer that was lost is asked for again.
func (r *copyReader) fill() (err error) {
	for range fragmentTries {
		if r.data, err = r.ask(); err == nil {
			r.at += uint64(len(r.data))
			return nil
		}
		if !fault.Is(err, fault.Transient) || r.ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (r *copyReader) ask() ([]byte, error) {
	q := wire.SnapshotRequest{Session: r.head.Session, Offset: r.at}
	reply, err := asking(r.ctx, r.conn.bulk, r.id, wire.OpSnapshot, q, fragmentTimeout)
	if err != nil {
		return nil, err
	}
	at, size := reply.Header.Get(wire.HeaderOffset), reply.Header.Get(wire.HeaderSize)
	want := min(wire.FragmentSize, r.head.Size-r.at)
	if at != strconv.FormatUint(r.at, 10) || size != strconv.FormatUint(r.head.Size, 10) || uint64(len(reply.Data)) != want || want == 0 {
		return nil, fault.New(fault.Corrupt, CodeBadAck, "archive %s: asked for %d bytes at %d of its filter, it sent %d at %q of %q",
			r.id, want, r.at, len(reply.Data), at, size)
	}
	return reply.Data, nil
}
