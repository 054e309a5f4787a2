package bus

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// steady has the times that an aggregator has.
var steady = ArchivesConfig{StallTimeout: DefaultStallTimeout, UploadIdle: DefaultUploadIdle, AwayTimeout: DefaultAwayTimeout}

const frag = wire.FragmentSize

// dataAt reports whether msg is the fragment of an upload at an offset, with bytes.
func dataAt(msg *nats.Msg, offset int) bool {
	return msg.Header.Get(wire.HeaderOp) == wire.OpData && msg.Header.Get(wire.HeaderOffset) == strconv.Itoa(offset) && len(msg.Data) > 0
}

// TestUploadOutlivesRestartsOfAnArchive, wherever it stands, when the upload needs
// that archive: of its process, and of its machine.
func TestUploadOutlivesRestartsOfAnArchive(t *testing.T) {
	const size = 11<<20 + 5
	for name, restarts := range map[string][]int{
		"at the first byte":      {0},
		"before the first sync":  {2 * frag},
		"between syncs":          {36 * frag},
		"at the last fragment":   {44 * frag},
		"twice":                  {frag, 40 * frag},
		"twice at the same byte": {40 * frag, 40 * frag},
	} {
		for _, power := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, power=%v", name, power), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := startNet(t, steady, "archive-a", "archive-b")
					left := slices.Clone(restarts)
					n.onFrame = func(p *netPeer, msg *nats.Msg) []*nats.Msg {
						if p.id == "archive-b" && len(left) > 0 && dataAt(msg, left[0]) {
							left = left[1:]
							n.running.Go(func() {
								if power {
									p.cut()
								} else {
									p.stop()
								}
								time.Sleep(20 * time.Second)
								p.start(false)
							})
							return nil // the fragment was under way
						}
						return []*nats.Msg{msg}
					}
					data := content(size)
					u := n.open(t.Context(), 2, blob.Legacy)
					defer u.Abort()
					if _, err := u.Write(data); err != nil {
						t.Fatal(err)
					}
					on, err := u.Finish(t.Context())
					if err != nil || len(on) != 2 || len(left) > 0 {
						t.Fatal(on, err, left)
					}
					if n := testutil.ToFloat64(n.archives.metrics.resumed); n < 1 {
						t.Errorf("resumed %v times", n)
					}
					for _, p := range n.peers {
						p.cut() // what Finish returned for is on disk, also before the commit
						p.start(false)
						if err := p.commit(u, data, blob.Legacy); err != nil {
							t.Errorf("%s: %v", p.id, err)
						}
					}
				})
			})
		}
	}
}

// TestUploadOutlivesALossyNet: fragments and answers are lost, repeated and
// reordered, and the file is the same.
func TestUploadOutlivesALossyNet(t *testing.T) {
	for seed := range need.Rounds(6, 200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			n := startNet(t, steady, "archive-a", "archive-b")
			held := map[*netPeer]*nats.Msg{}
			spoil := func(p *netPeer, msg *nats.Msg) []*nats.Msg {
				out := []*nats.Msg{msg}
				switch r.IntN(12) {
				case 0:
					out = nil
				case 1:
					again := *msg
					again.Data = bytes.Clone(msg.Data)
					out = append(out, &again)
				case 2:
					if held[p] == nil {
						held[p] = msg
						return nil
					}
				}
				if late := held[p]; late != nil {
					held[p] = nil
					out = append(out, late)
				}
				return out
			}
			n.onFrame, n.onReply = spoil, func(p *netPeer, msg *nats.Msg) []*nats.Msg {
				if r.IntN(8) == 0 {
					return nil
				}
				return []*nats.Msg{msg}
			}
			data := content(3<<20 + seed)
			u := n.open(t.Context(), 2, blob.Default)
			defer u.Abort()
			_, err := u.Write(data)
			if err == nil {
				_, err = u.Finish(t.Context())
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			synctest.Wait()
			for _, p := range n.peers {
				if err := p.commit(u, data, blob.Default); err != nil {
					t.Errorf("seed %d: %s: %v", seed, p.id, err)
				}
			}
		})
	}
}

// TestHowLongAnArchiveIsWaitedFor that went away in the middle.
func TestHowLongAnArchiveIsWaitedFor(t *testing.T) {
	const size = 12 << 20
	for name, tc := range map[string]struct {
		least  int
		away   time.Duration // 0: for ever
		pause  time.Duration // of the writer, before the second half
		empty  bool          // it comes back with another disk
		copies int           // 0: the upload fails
		least2 time.Duration // that the upload takes
		most   time.Duration
	}{
		"needed, back in time":              {2, 50 * time.Second, 0, false, 2, 50 * time.Second, 52 * time.Second},
		"needed, and never back":            {2, 0, 0, false, 0, DefaultUploadIdle, DefaultUploadIdle + 2*time.Second},
		"needed, back without its disk":     {2, time.Second, 0, true, 0, time.Second, 3 * time.Second},
		"needed, lost before any sync":      {2, time.Second, 0, true, 2, time.Second, 3 * time.Second},
		"spared, back at once":              {1, 2 * time.Second, 0, false, 2, 2 * time.Second, 4 * time.Second},
		"spared, and others wait":           {1, 0, 0, false, 1, DefaultAwayTimeout, DefaultAwayTimeout + 2*time.Second},
		"spared, and the sender takes long": {1, 30 * time.Second, 40 * time.Second, false, 2, 40 * time.Second, 41 * time.Second},
		"spared, back without its disk":     {1, time.Second, 0, true, 1, time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNet(t, steady, "archive-a", "archive-b")
				gone, at := false, 6*frag
				if tc.empty && tc.copies < 2 {
					at = 44 * frag // some of it was on disk
				}
				n.onFrame = func(p *netPeer, msg *nats.Msg) []*nats.Msg {
					if p.id == "archive-b" && dataAt(msg, at) && !gone {
						gone = true
						n.running.Go(func() {
							p.stop()
							if tc.away == 0 {
								return
							}
							time.Sleep(tc.away)
							if tc.empty {
								p.disk = vfs.NewCrashableMem()
							}
							p.start(tc.empty)
						})
						return nil
					}
					return []*nats.Msg{msg}
				}
				data := content(size)
				u := n.open(t.Context(), tc.least, blob.Default)
				defer u.Abort()
				start := time.Now()
				_, err := u.Write(data[:40*frag])
				synctest.Wait() // the first sync has ended
				time.Sleep(tc.pause)
				if err == nil {
					_, err = u.Write(data[40*frag:])
				}
				on, err2 := u.Finish(t.Context())
				took := time.Since(start)
				if tc.copies == 0 {
					wantFault(t, cmp.Or(err, err2), fault.Transient, CodeNoArchive)
				} else if err != nil || err2 != nil || len(on) != tc.copies {
					t.Fatal(on, err, err2)
				}
				if took < tc.least2 || took > tc.most {
					t.Errorf("took %v, want %v to %v", took, tc.least2, tc.most)
				}
				for _, id := range on {
					if err := n.peers[id].commit(u, data, blob.Default); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		})
	}
}

// TestManyUploadsStayWithinTheirMemory runs 64 at once, half of them aborted, to
// archives that sync slowly.
func TestManyUploadsStayWithinTheirMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNet(t, steady, "archive-a", "archive-b")
		all := make([]*upload, 64)
		for i := range all {
			all[i] = n.open(t.Context(), 2, blob.Default)
		}
		most := 0
		n.onReply = func(_ *netPeer, msg *nats.Msg) []*nats.Msg {
			held := 0
			for _, u := range all {
				held += u.room.holds()
			}
			most = max(most, held)
			return []*nats.Msg{msg}
		}
		data := content(2 << 20)
		var wg sync.WaitGroup
		for i, u := range all {
			wg.Go(func() {
				if _, err := u.Write(data[:len(data)-i]); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					u.Abort()
					return
				}
				if on, err := u.Finish(t.Context()); err != nil || len(on) != 2 {
					t.Error(on, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if bound := len(all)*roomOwn + cap(n.archives.shared); most > bound || most == 0 {
			t.Errorf("%d fragments were held, bound %d", most, bound)
		}
		for i, u := range all {
			if u.room.holds() != 0 || u.running != 0 {
				t.Errorf("upload %d holds %d fragments, %d lanes", i, u.room.holds(), u.running)
			}
		}
		if shared := len(n.archives.shared); shared != 0 {
			t.Errorf("%d places are not given back", shared)
		}
		for _, p := range n.peers {
			if open := p.store.Stats().OpenUploads; open != len(all)/2 {
				t.Errorf("%s: %d uploads are open", p.id, open)
			}
			win := n.archives.peer(p.id).blobs
			if win.bytes != win.most || win.waiting.Len() != 0 {
				t.Errorf("%s: credits are not all back: %+v", p.id, win)
			}
		}
	})
}

// TestRoomIsSharedFairly: an upload has its own part whatever the others hold.
func TestRoomIsSharedFairly(t *testing.T) {
	shared := newShared()
	var greedy []*room
	for len(shared) < cap(shared) {
		r := newRoom(shared)
		greedy = append(greedy, r)
		for r.try() {
		}
		if r.holds() > roomMost {
			t.Fatalf("one upload holds %d fragments", r.holds())
		}
	}
	late := newRoom(shared)
	for i := range roomOwn {
		if !late.try() {
			t.Fatalf("no own place %d", i)
		}
	}
	if late.try() {
		t.Fatal("more than there is")
	}
	if late.limit() != roomOwn {
		t.Errorf("limit %d", late.limit())
	}
	ended := make(chan struct{})
	taken := make(chan bool)
	for _, give := range []*room{late, greedy[0]} { // its own, and one of another
		go func() { taken <- late.take(ended) }()
		give.free()
		if !<-taken {
			t.Error("not taken")
		}
	}
	go func() { taken <- late.take(ended) }()
	close(ended)
	if <-taken {
		t.Error("taken after the end")
	}
	for _, r := range append(greedy, late) {
		for r.holds() > 0 {
			r.free()
		}
	}
	if len(shared) != 0 {
		t.Errorf("%d places are not given back", len(shared))
	}
}

// TestRestartBetweenFinishAndCommit: a small file, which is not synced before its
// commit, outlives a restart of the process, and is known to be lost with the power.
func TestRestartBetweenFinishAndCommit(t *testing.T) {
	for _, power := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := startNet(t, steady, "archive-a")
			u := n.open(t.Context(), 1, blob.Legacy)
			data := content(300_000)
			if _, err := u.Write(data); err != nil {
				t.Fatal(err)
			}
			if on, err := u.Finish(t.Context()); err != nil || len(on) != 1 {
				t.Fatal(on, err)
			}
			p := n.peers["archive-a"]
			if power {
				p.cut()
			} else {
				p.stop()
			}
			p.start(false)
			err := p.commit(u, data, blob.Legacy)
			if power {
				wantFault(t, err, fault.NotFound, CodeUnknownUpload)
			} else if err != nil {
				t.Error(err)
			}
			if open := p.store.Stats().OpenUploads; open != 0 {
				t.Errorf("%d uploads are left", open)
			}
		})
	}
}
