package archive

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/boottime"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// TestMirrorKnowsWhatWasAcknowledged: a copy of the filter views that is taken while
// records come, and follows the feed under a lease, never denies a viewer what was
// acknowledged before it was asked, also while the base is rebuilt, and denies what
// is not there.
func TestMirrorKnowsWhatWasAcknowledged(t *testing.T) {
	c := filterConfig(vfs.NewMem())
	mustInit(t, c)
	n := mustOpen(t, c)
	m := mirror.NewMirror(mirror.MirrorConfig{Holder: "aggregator"})
	deltas := make(chan wire.Delta, 1<<16)
	n.Feed().SetSend(func(d wire.Delta) { deltas <- d })
	follow := func() error {
		head, write, err := n.ViewsSnapshot()
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if size, err := write(&text); err != nil || uint64(size) != head.Size {
			return fmt.Errorf("%d bytes, %d announced: %w", size, head.Size, err)
		}
		set, _, err := bloom.ReadSnapshot(&text, int64(head.Size), bloom.Params{Secret: n.secret})
		if err != nil {
			return err
		}
		set.Complete()
		m.Load(set, head)
		return nil
	}
	catchUp := func() error {
		for {
			feed, at := m.Position()
			d, err := n.Feed().Since(wire.DeltasRequest{Feed: feed, After: at})
			if err != nil || d.To == d.From {
				return err
			}
			if _, err := m.Apply(d); err != nil {
				return err
			}
		}
	}
	var asked, trusted atomic.Int64
	var writers, holder sync.WaitGroup
	stop := make(chan struct{})
	const each = 400
	for w := range 4 {
		writers.Go(func() {
			for i := range each {
				r := recordAt(4*i + w)
				if _, err := n.Put(t.Context(), wire.Put{Record: r}); err != nil {
					t.Error(err)
					return
				}
				for _, viewer := range viewersOf(r) {
					asked.Add(1)
					if m.Trusted() {
						trusted.Add(1)
					}
					if _, absent := m.Absent(mirror.Pair(n.secret.Key, viewer, r.SHA256)); absent {
						t.Errorf("record %d is denied to %s by a trusted mirror", 4*i+w, viewer)
					}
				}
			}
		})
	}
	holder.Go(func() {
		if err := follow(); err != nil {
			t.Error(err)
			return
		}
		for renew := 0; ; renew++ {
			if renew%64 == 0 {
				if err := catchUp(); err != nil {
					t.Error(err)
					return
				}
				feed, at := m.Position()
				sent, id := boottime.Now(), m.Holder()
				g, err := n.Feed().Lease(wire.LeaseRequest{Holder: id, Feed: feed, At: at})
				if err == nil {
					m.Granted(id, sent, g)
				} else if fault.CodeOf(err) != "LEASE_BEHIND" {
					t.Error(err)
				}
			}
			select {
			case d := <-deltas:
				at, err := m.Apply(d)
				if fault.CodeOf(err) == "MIRROR_GAP" {
					err = catchUp()
					_, at = m.Position()
				}
				if err != nil {
					t.Error(err)
				}
				n.Feed().Ack(wire.DeltaAck{Holder: m.Holder(), Feed: d.Feed, At: at})
			case <-stop:
				return
			}
		}
	})
	writers.Wait()
	close(stop)
	holder.Wait()
	if trusted.Load() == 0 {
		t.Errorf("of %d questions none was asked of a trusted mirror", asked.Load())
	}
	must1(t, catchUp())
	if _, absent := m.Absent(mirror.Pair(n.secret.Key, "dave", digest("not there"))); !absent && m.Trusted() {
		t.Error("the mirror denies nothing")
	}
	mustClose(t, n)
}
