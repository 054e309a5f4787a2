package bus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// copiesOf serves copies of some bytes, written in pieces of n.
func copiesOf(data []byte, n int) *copyings {
	return newCopyings(func() (wire.SnapshotHead, func(io.Writer) (int64, error), error) {
		return wire.SnapshotHead{ArchiveID: "archive-a", Feed: "b.1", KeyID: "5eed0001", Size: uint64(len(data))}, func(w io.Writer) (int64, error) {
			for at := 0; at < len(data); at += n {
				if _, err := w.Write(data[at:min(at+n, len(data))]); err != nil {
					return int64(at), err
				}
			}
			return int64(len(data)), nil
		}, nil
	})
}

func begun(t testing.TB, c *copyings) wire.SnapshotHead {
	t.Helper()
	head, err := c.begin()
	if err != nil || head.Check() != nil {
		t.Fatal(head, err, head.Check())
	}
	return head
}

func TestACopyIsReadInOrder(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), (2*wire.FragmentSize+77)/16)
	c := copiesOf(data, 1000)
	defer c.close()
	head := begun(t, c)
	var got []byte
	for uint64(len(got)) < head.Size {
		part, size, err := c.fragment(head.Session, uint64(len(got)))
		if err != nil || size != head.Size {
			t.Fatal(size, err)
		}
		again, _, err := c.fragment(head.Session, uint64(len(got)))
		if err != nil || !bytes.Equal(part, again) {
			t.Fatal("the same fragment, asked for again, is another", err)
		}
		got = append(got, part...)
	}
	if !bytes.Equal(got, data) {
		t.Error("the copy differs")
	}
	_, _, err := c.fragment(head.Session, head.Size)
	wantFault(t, err, fault.NotFound, CodeSnapshotGone)
}

func TestACopyOutOfOrderEnds(t *testing.T) {
	for _, at := range []uint64{1, wire.FragmentSize - 1, 2 * wire.FragmentSize, 1 << 52} {
		c := copiesOf(make([]byte, 4*wire.FragmentSize), 4096)
		head := begun(t, c)
		if _, _, err := c.fragment(head.Session, 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _, err := c.fragment(head.Session, at)
			wantFault(t, err, fault.NotFound, CodeSnapshotGone)
		}
		if n := c.count(); n != 0 {
			t.Errorf("%d copies are left", n)
		}
		c.close()
	}
}

// A writer that fails, or ends early, ends the copy.
func TestACopyThatCanNotBeWrittenEnds(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no")} {
		c := newCopyings(func() (wire.SnapshotHead, func(io.Writer) (int64, error), error) {
			return wire.SnapshotHead{Size: 100}, func(w io.Writer) (int64, error) {
				n, _ := w.Write(make([]byte, 50))
				return int64(n), fails
			}, nil
		})
		head, err := c.begin()
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = c.fragment(head.Session, 0)
		wantFault(t, err, fault.NotFound, CodeSnapshotGone)
		c.close()
	}
}

// Copies beyond the limit are refused until one ends, which those do that nobody
// asks for, and those that were read give way at once.
func TestCopiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := copiesOf(make([]byte, 2*wire.FragmentSize), 4096)
		defer c.close()
		var heads []wire.SnapshotHead
		for range MaxCopies {
			heads = append(heads, begun(t, c))
		}
		_, err := c.begin()
		wantFault(t, err, fault.Transient, CodeBusy)
		time.Sleep(CopyIdle - time.Second)
		for _, h := range heads[1:] {
			if _, _, err := c.fragment(h.Session, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := c.count(); n != MaxCopies-1 {
			t.Errorf("%d copies are under way after one was idle", n)
		}
		heads = append(heads[1:], begun(t, c))
		_, err = c.begin()
		wantFault(t, err, fault.Transient, CodeBusy)
		if _, _, err := c.fragment(heads[0].Session, wire.FragmentSize); err != nil {
			t.Fatal(err)
		}
		begun(t, c)
		if n := c.count(); n != MaxCopies {
			t.Errorf("%d copies", n)
		}
		_, _, err = c.fragment(heads[0].Session, wire.FragmentSize)
		wantFault(t, err, fault.NotFound, CodeSnapshotGone)
	})
}

// TestDeltasAreKeptWhileTheFilterIsCopied: a copy that takes minutes is no old one at
// its end.
func TestDeltasAreKeptWhileTheFilterIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		feed := mirror.NewFeed(mirror.FeedConfig{Archive: "archive-a", ID: "b.1", KeyID: "5eed0001", Clock: func() time.Duration { return time.Since(began) }})
		s := &mirrorService{feed: feed, copies: copiesOf(make([]byte, 20*wire.FragmentSize), 4096)}
		defer s.copies.close()
		feed.Follow()
		head := begun(t, s.copies)
		for at := uint64(0); at < head.Size; at += wire.FragmentSize {
			if _, err := s.snapshot(t.Context(), encode(t, wire.SnapshotRequest{Session: head.Session, Offset: at})); err != nil {
				t.Fatal(err)
			}
			feed.Append(at+1, []bloom.Hash{{A: at, B: 1}})
			time.Sleep(CopyIdle - time.Second)
		}
		if d, err := feed.Since(wire.DeltasRequest{Feed: "b.1"}); err != nil || d.To != 20 {
			t.Errorf("%d of 20 deltas are kept: %v", d.To, err)
		}
	})
}

// TestDeltasThatWaitAreBounded: by their bytes, also when they are few.
func TestDeltasThatWaitAreBounded(t *testing.T) {
	s := &mirrorService{deltas: make(chan wire.Delta, MaxQueuedDeltas), sent: counters("archive_deltas_total", "", "outcome", nil)}
	large := wire.Delta{Hashes: make([]byte, wire.HashSize*wire.MaxDeltaHashes)}
	for range 2 * MaxQueuedDeltaBytes / len(large.Hashes) {
		s.send(large)
	}
	if n := len(s.deltas) * len(large.Hashes); n != MaxQueuedDeltaBytes {
		t.Errorf("%d bytes wait", n)
	}
	if n := count(s.sent.WithLabelValues("dropped")); n != MaxQueuedDeltaBytes/len(large.Hashes) {
		t.Errorf("%d deltas were dropped", n)
	}
}

func TestClosingEndsCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := copiesOf(make([]byte, 1<<20), 4096)
		head := begun(t, c)
		c.close() // returns when the writer has ended
		_, _, err := c.fragment(head.Session, 0)
		wantFault(t, err, fault.NotFound, CodeSnapshotGone)
		if _, err := c.begin(); err == nil {
			t.Error("a copy was begun after the end")
		}
	})
}

// An archive without a filter that can be mirrored refuses, as with every part
// that it does not have; and what it serves over NATS keeps to the limits.
func TestMirrorsOverNATS(t *testing.T) {
	leakCheck(t)
	srv := startServer(t, server.Config{})
	ask := func(id wire.ArchiveID, op string, v any) (*nats.Msg, error) {
		nc := connect(t, srv, "asker")
		return asking(t.Context(), nc.ctl, id, op, v, 10*time.Second)
	}
	plain := newFakeNode(t, "archive-b")
	conn := connect(t, srv, "archive-b")
	service, err := ServeSync(conn, SyncConfig{Node: syncedFake{plain}, Blobs: newFakeBlobs(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Drain(context.Background())
	for _, op := range []string{wire.OpLease, wire.OpDeltas, wire.OpSnapshot} {
		_, err := ask("archive-b", op, wire.SnapshotRequest{})
		wantFault(t, err, fault.Invalid, CodeMalformed)
	}

	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	g := &gallery{t: t, server: srv}
	site := g.serve(a)
	reply, err := ask("archive-a", wire.OpSnapshot, wire.SnapshotRequest{})
	head, err := answered[wire.SnapshotHead](reply, err, "archive-a")
	if err != nil || head.Size == 0 {
		t.Fatalf("%+v, %v", head, err)
	}
	size := strconv.FormatUint(head.Size, 10)
	for at := uint64(0); at < head.Size; {
		reply, err := ask("archive-a", wire.OpSnapshot, wire.SnapshotRequest{Session: head.Session, Offset: at})
		if err != nil {
			t.Fatal(err)
		}
		if h := reply.Header; h.Get(wire.HeaderOffset) != strconv.FormatUint(at, 10) || h.Get(wire.HeaderSize) != size || len(reply.Data) > wire.FragmentSize {
			t.Fatalf("at %d: %d bytes, %v", at, len(reply.Data), h)
		}
		at += uint64(len(reply.Data))
	}
	reply, err = ask("archive-a", wire.OpLease, wire.LeaseRequest{Holder: "asker.1", Feed: head.Feed, At: head.At})
	if g, err := answered[wire.LeaseGrant](reply, err, "archive-a"); err != nil || g.LeaseMs != testLease.Milliseconds() || g.Feed != head.Feed {
		t.Errorf("%+v, %v", g, err)
	}
	reply, err = ask("archive-a", wire.OpDeltas, wire.DeltasRequest{Feed: head.Feed, After: head.At})
	if d, err := answered[wire.Delta](reply, err, "archive-a"); err != nil || d.From != head.At || d.To != head.At {
		t.Errorf("%+v, %v", d, err)
	}
	begin := func() { _, _ = ask("archive-a", wire.OpSnapshot, wire.SnapshotRequest{}) }
	for range MaxCopies {
		begin()
	}
	_, err = ask("archive-a", wire.OpSnapshot, wire.SnapshotRequest{})
	wantFault(t, err, fault.Transient, CodeBusy)
	if _, err := ask("archive-a", wire.OpLease, wire.LeaseRequest{Holder: "asker.1", Feed: head.Feed, Release: true}); err != nil || !a.feed.Idle() {
		t.Errorf("release: %v, idle %v", err, a.feed.Idle())
	}
	site.drain(t)
	if n := site.sync.mirrors.copies.count(); n != 0 {
		t.Errorf("%d copies are left after the drain", n)
	}
}

// syncedFake is a node that other archives may ask, and nobody mirrors.
type syncedFake struct{ *fakeNode }

func (syncedFake) HasRecords(context.Context, []wire.RecordID) ([]bool, error) { return nil, nil }

func (syncedFake) Portable(context.Context, wire.RecordID) (wire.PutRecord, error) {
	return wire.PutRecord{}, errors.New("not here")
}

func (syncedFake) RecordIDs(context.Context, uint64, int) (wire.SyncPage, error) {
	return wire.SyncPage{}, nil
}
