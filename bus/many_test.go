package bus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bloom"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// A thousand archives, each on connections of its own: queries find every record
// on all that keep it, whether every archive is named or only those that have it
// speak, and know when everybody was heard.
func TestManyArchives(t *testing.T) {
	archives := 1000
	if testing.Short() {
		archives = 100
	}
	const subjects, copies, lookups = 40, 2, 3
	leakCheck(t)
	srv := startServer(t, server.Config{})
	ids := make(enrolled, archives)
	nodes := make([]*filtered, archives)
	for i := range ids {
		ids[i] = wire.ArchiveID(fmt.Sprintf("archive-%04d", i))
		nodes[i] = &filtered{fakeNode: newFakeNode(t, ids[i]), set: bloom.New(bloom.Params{Capacity: bloom.MinCapacity})}
		nodes[i].set.Complete()
		serveQuietly(t, srv, nodes[i])
	}
	keepers := map[string][]wire.ArchiveID{}
	for i := range subjects {
		subject := fmt.Sprint("subject ", i)
		for c := range copies {
			at := (i*7 + c*archives/2) % archives
			put := note(subject, "body")
			nodes[at].set.Add(put.Record.SHA256)
			if _, err := nodes[at].Put(t.Context(), put); err != nil {
				t.Fatal(err)
			}
			keepers[subject] = append(keepers[subject], ids[at])
		}
	}
	w := &world{server: srv, conn: connect(t, srv, "aggregator")}
	var err error
	if w.archives, err = NewArchives(w.conn, static(ids), patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.archives.Close() })
	t.Run("only those that have something speak", func(t *testing.T) {
		for subject, keepers := range keepers {
			got := gather(t, w.archives, query(subject), nil, copies)
			var from []wire.ArchiveID
			for _, r := range got {
				from = append(from, r.ArchiveID)
			}
			if !slices.Equal(slices.Sorted(slices.Values(from)), slices.Sorted(slices.Values(keepers))) {
				t.Fatalf("%s: %v answered, %v have it", subject, from, keepers)
			}
		}
	})
	t.Run("all are named", func(t *testing.T) {
		g := &receipts.Gatherer{Asker: w.archives, Roster: ids, Wait: time.Minute}
		for i := range lookups {
			findEverywhere(t, g, fmt.Sprint("subject ", i), copies)
		}
		found, err := g.Gather(t.Context(), digestOf("nobody has it"), tenantA, nil)
		if err != nil || !found.Complete || len(found.Records) != 0 || len(found.Expected) != archives {
			t.Errorf("found %+v, %v", found, err)
		}
	})
}

// findEverywhere wants the one record under subject, from so many archives, and
// all archives heard.
func findEverywhere(t *testing.T, g *receipts.Gatherer, subject string, copies int) {
	t.Helper()
	found, err := g.Gather(t.Context(), digestOf(subject), tenantA, nil)
	if err != nil || !found.Complete || len(found.Missing) != 0 || found.Replied != copies || len(found.Records) != 1 {
		t.Errorf("%s: found %d records of %d archives, complete %v, missing %v, %v",
			subject, len(found.Records), found.Replied, found.Complete, found.Missing, err)
	}
}

// Archives with stores of their own, who hear each other's hellos: 3 of them, and
// 50 in the long run. Whatever was acknowledged is found, in the same state of the
// system as in production but for the number of processes.
func TestManyRealArchives(t *testing.T) {
	archives, records := need.Rounds(3, 50), need.Rounds(60, 5000)
	const copies = 2
	leakCheck(t)
	srv := startServer(t, server.Config{})
	ids := make(enrolled, archives)
	for i := range ids {
		ids[i] = wire.ArchiveID(fmt.Sprintf("archive-%02d", i))
		serveStore(t, srv, ids[i])
	}
	conn := connect(t, srv, "aggregator")
	client, err := NewArchives(conn, static(ids), patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	work := make(chan int)
	failed := make(chan error, 16)
	for range cap(failed) {
		go func() {
			var errs []error
			for i := range work {
				for _, id := range rank(ids, digestOf(fmt.Sprint("subject ", i)))[:copies] {
					_, err := client.Put(t.Context(), id, note(fmt.Sprint("subject ", i), "body"))
					errs = append(errs, err)
				}
			}
			failed <- errors.Join(errs...)
		}()
	}
	for i := range records {
		work <- i
	}
	close(work)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	g := &receipts.Gatherer{Asker: client, Roster: ids, Wait: time.Minute}
	for i := range records {
		findEverywhere(t, g, fmt.Sprint("subject ", i), copies)
	}
	for i := range records {
		found, err := g.Gather(t.Context(), digestOf(fmt.Sprint("no subject ", i)), tenantA, nil)
		if err != nil || !found.Complete || len(found.Records) != 0 {
			t.Fatalf("found %+v, %v", found, err)
		}
	}
	t.Logf("%d records in %d archives", records, archives)
}

// serveStore makes an archive with a store of its own, as small as one can be, and
// serves it.
func serveStore(t testing.TB, srv *server.Server, id wire.ArchiveID) {
	t.Helper()
	dir := t.TempDir()
	files, err := blob.OpenStore(blob.StoreConfig{Dir: filepath.Join(dir, "files"), Create: true, DiskReserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := archive.Config{
		Dir: filepath.Join(dir, "records"), ID: id, Files: files, DiskReserve: 1,
		CacheSize: 1 << 20, MemTableSize: 1 << 20, Bloom: bloom.Params{Capacity: bloom.MinCapacity},
	}
	if err := archive.Init(cfg); err != nil {
		t.Fatal(err)
	}
	node, err := archive.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-node.Loaded()
	conn := connect(t, srv, string(id))
	service, err := ServeArchive(conn, node, files, ArchiveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(service.Drain(context.Background()), node.Close(), files.Close()); err != nil {
			t.Error(err)
		}
	})
}
