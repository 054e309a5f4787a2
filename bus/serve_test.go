package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestServeRefusesANodeWithoutAnID(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "archive")
	for _, id := range []wire.ArchiveID{"", "UPPER", "a.b"} {
		_, err := ServeArchive(c, newFakeNode(t, id), newFakeBlobs(t), ArchiveConfig{})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

func TestServeOnAClosedConnectionLeavesNothing(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	c := connect(t, s, "archive-a")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ServeArchive(c, newFakeNode(t, "archive-a"), newFakeBlobs(t), ArchiveConfig{}); err == nil {
		t.Error("served on a closed connection")
	}
	if _, err := NewArchives(c, static{}, ArchivesConfig{}); err == nil {
		t.Error("a client on a closed connection")
	}
	if _, err := ServeTimestamp(c, &fakeStamp{}, TimestampConfig{}); err == nil {
		t.Error("a service on a closed connection")
	}
}

// Hellos come at start, at every interval, at a change, and tell of the drain
// last.
func TestHellosTellTheStateUntilTheEnd(t *testing.T) {
	leakCheck(t)
	srv := startServer(t, server.Config{})
	watcher := connect(t, srv, "aggregator")
	var mu sync.Mutex
	var states []string
	if _, err := watcher.listen(wire.SubjectHelloPrefix+"*", "", func(m *nats.Msg) {
		h, ok := parseHello(m.Subject, m.Data)
		if !ok {
			t.Errorf("malformed hello %s", m.Data)
		}
		mu.Lock()
		defer mu.Unlock()
		states = append(states, h.State)
	}); err != nil {
		t.Fatal(err)
	}
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), states...)
	}
	w := &world{server: srv}
	s := &site{node: newFakeNode(t, "archive-a"), blobs: newFakeBlobs(t)}
	w.serve(t, s)
	eventually(t, "hellos come by themselves", func() bool { return len(seen()) >= 3 })
	s.service.SetState(wire.StateReadonly)
	eventually(t, "the change is told", func() bool { return seen()[len(seen())-1] == wire.StateReadonly })
	n := len(seen())
	if err := s.conn.ctl.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a reconnect is followed by a hello", func() bool { return len(seen()) > n })
	if err := s.service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drain is told last", func() bool { return seen()[len(seen())-1] == wire.StateDraining })
}

// Whatever was acknowledged is stored, whatever was stored is acknowledged, and
// what came too late is refused: nobody waits for an answer that never comes.
func TestDrainLosesNothing(t *testing.T) {
	w := startWorld(t, 1, ArchivesConfig{RequestTimeout: time.Minute}, func(_ int, s *site) {
		s.node.onPut = func(context.Context) error { time.Sleep(time.Millisecond); return nil }
	})
	node := w.sites[0].node
	var wg sync.WaitGroup
	var acked atomic.Int64
	for g := range 32 {
		wg.Go(func() {
			for i := 0; ; i++ {
				put := note(fmt.Sprint(g, "-", i), "body")
				_, err := w.archives.Put(t.Context(), "archive-a", put)
				if err != nil {
					if !fault.Is(err, fault.Transient) || fault.CodeOf(err) == CodeTimeout {
						t.Errorf("got %v", err)
					}
					if node.holds(put.Record.ID()) {
						t.Error("stored and not acknowledged")
					}
					return
				}
				if !node.holds(put.Record.ID()) {
					t.Error("acknowledged and not stored")
				}
				acked.Add(1)
			}
		})
	}
	eventually(t, "puts are under way", func() bool { return acked.Load() > 200 })
	if err := w.sites[0].service.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if node.inPut.Load() != 0 {
		t.Error("the node is still busy after the drain")
	}
	wg.Wait()
	if int64(node.stored()) != acked.Load() {
		t.Errorf("%d stored, %d acknowledged", node.stored(), acked.Load())
	}
}

func TestDrainIsHurriedByItsContext(t *testing.T) {
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s.node.onPut = wait
		s.node.onAnswer = func(ctx context.Context, _ wire.Query) error { return wait(ctx) }
	})
	failed := make(chan error, 1)
	go func() {
		_, err := w.archives.Put(t.Context(), "archive-a", note("x", "b"))
		failed <- err
	}()
	eventually(t, "the put is under way", func() bool { return w.sites[0].node.inPut.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.sites[0].service.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantFault(t, <-failed, fault.Transient, CodeTimeout) // the put was cancelled, and its sender told
}

// An archive restarts under the same id: whoever waits is served by the next one.
func TestArchiveComesBackOnANewConnection(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	s := w.sites[0]
	for i := range 3 {
		if _, err := w.archives.Put(t.Context(), "archive-a", note(fmt.Sprint(i), "b")); err != nil {
			t.Fatal(err)
		}
		if err := s.service.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.conn.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := w.archives.Put(t.Context(), "archive-a", note("down", "b"))
		wantFault(t, err, fault.Transient, CodeUnreachable)
		s.node.SetState(wire.StateUp)
		w.serve(t, s)
	}
}

// Frames of one upload keep their order, and a slow one does not hold up others.
func TestUploadsDoNotWaitForEachOther(t *testing.T) {
	block, stuck := make(chan struct{}), make(chan struct{})
	w := startWorld(t, 1, ArchivesConfig{RequestTimeout: time.Hour}, func(_ int, s *site) {
		s.blobs.onWrite = func(id string, _ int64) error {
			if id == "slow" {
				close(stuck)
				<-block
			}
			return nil
		}
	})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release)
	open := func(id string) {
		if _, err := w.archives.request(t.Context(), "archive-a", frame("archive-a", wire.OpOpen, id,
			encode(t, wire.BlobOpen{ChunkSize: blob.Default.ChunkSize, MaxLinks: blob.Default.MaxLinks})), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	write := func(id, off, data string) error {
		msg := frame("archive-a", wire.OpData, id, []byte(data))
		msg.Header.Set(wire.HeaderOffset, off)
		_, err := w.archives.request(t.Context(), "archive-a", msg, time.Hour)
		return err
	}
	open("slow")
	open("quick")
	slow := make(chan error, 1)
	go func() { slow <- write("slow", "0", "x") }()
	<-stuck
	if err := write("quick", "0", "hello"); err != nil {
		t.Fatal(err)
	}
	// More frames of one upload than may wait are refused, and say so.
	for i := 0; ; i++ {
		if i > 10*MaxUploadFrames {
			t.Fatal("the queue of one upload has no bound")
		}
		msg := frame("archive-a", wire.OpAbort, "slow", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		reply, err := w.conn.bulk.RequestMsgWithContext(ctx, msg)
		cancel()
		if err == nil {
			wantFault(t, replyFault(reply, "archive"), fault.Transient, CodeBusy)
			break
		}
	}
	release()
	if err := <-slow; err != nil {
		t.Error(err)
	}
	eventually(t, "the queues are gone", func() bool {
		frames := w.sites[0].service.frames
		frames.mu.Lock()
		defer frames.mu.Unlock()
		return len(frames.queues) == 0
	})
}

func TestWorkersRunWhatTheyTookAndNothingAfterClose(t *testing.T) {
	w := startWorkers(2, 3)
	block := make(chan struct{})
	var ran atomic.Int64
	task := func(context.Context) { <-block; ran.Add(1) }
	for range 2 {
		if !w.try(task) {
			t.Fatal("no room in an empty queue")
		}
	}
	eventually(t, "both workers are busy", func() bool { return len(w.tasks) == 0 })
	for range 3 {
		if !w.try(task) {
			t.Fatal("no room below the bound")
		}
	}
	if w.try(task) {
		t.Error("one more than the queue holds")
	}
	go close(block)
	w.close(t.Context())
	if ran.Load() != 5 {
		t.Errorf("%d of 5 tasks ran", ran.Load())
	}
	if w.try(task) {
		t.Error("a task was taken after close")
	}
	w.close(t.Context())
}

func TestGateBoundsNumberAndBytes(t *testing.T) {
	g := newGate(2, 100)
	if !g.enter(60) || g.enter(41) || !g.enter(40) {
		t.Error("bytes are not bounded")
	}
	g.leave(60)
	if !g.enter(1) || g.enter(1) {
		t.Error("the number is not bounded")
	}
	g.leave(40)
	g.leave(1)
	g.close(t.Context(), func() { t.Error("hurried without need") })
	if g.enter(0) {
		t.Error("entered a closed gate")
	}
}
