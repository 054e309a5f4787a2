package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// store puts a file and its record on the sites.
func (w *world) store(t testing.TB, data []byte, sites ...*site) wire.BlobCommit {
	t.Helper()
	file := describe(data)
	for _, s := range sites {
		s.blobs.mu.Lock()
		s.blobs.files[file.CID] = data
		s.blobs.mu.Unlock()
		put := wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
			Kind: wire.KindFile, SHA256: file.SHA256, TenantID: tenantA,
			File: &wire.File{Size: file.Size, SHA256: file.SHA256, CID: file.CID},
		}}
		if _, err := s.node.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func TestReadFileYieldsExactlyTheFile(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	for _, size := range []int{0, 1, wire.FragmentSize, wire.FragmentSize + 1, 3<<20 + 5} {
		data := content(size)
		file := w.store(t, data, w.sites[0])
		r, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
		if err != nil {
			t.Fatal(size, err)
		}
		if err := iotest.TestReader(r, data); err != nil {
			t.Error(size, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadFileTurnsToTheNextHolder(t *testing.T) {
	for name, broken := range map[string]func(off int64) error{
		"corrupt":     func(int64) error { return fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf") },
		"in the rear": func(off int64) error { return failFrom(off, 1<<20, fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf")) },
		"missing":     func(int64) error { return fault.New(fault.NotFound, "UNKNOWN_CID", "none") },
		"internal":    func(int64) error { return errors.New("disk") },
		"hangs":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			cfg, hang := patient, make(chan struct{})
			if broken == nil {
				cfg.RequestTimeout = 2 * time.Second
				broken = func(int64) error { <-hang; return errors.New("late") }
			}
			w := startWorld(t, 2, cfg, func(i int, s *site) {
				if i == 0 {
					s.blobs.onRead = broken
				}
			})
			t.Cleanup(func() { close(hang) })
			data := content(2 << 20)
			file := w.store(t, data, w.sites...)
			ids := append([]wire.ArchiveID{"archive-gone"}, w.ids...)
			r, err := w.archives.ReadFile(t.Context(), ids, tenantA, file.CID, 0, file.Size)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
}

func failFrom(off, from int64, err error) error {
	if off >= from {
		return err
	}
	return nil
}

// A file that breaks off in the middle is an error, never a shorter file.
func TestReadFileNeverEndsEarly(t *testing.T) {
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.blobs.onRead = func(off int64) error {
			return failFrom(off, 1<<20, fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf"))
		}
	})
	file := w.store(t, content(2<<20), w.sites[0])
	r, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	wantFault(t, err, fault.Corrupt, "BLOB_CORRUPT")
	if len(got) != 1<<20 {
		t.Errorf("%d good bytes before the error", len(got))
	}
	if _, again := r.Read(make([]byte, 1)); again == nil || again == io.EOF {
		t.Errorf("reading on gives %v", again)
	}
}

// What is not his looks to a tenant exactly like what is not there.
func TestStrangersFileLooksLikeNone(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	file := w.store(t, content(10), w.sites[0])
	nowhere := describe([]byte("nowhere"))
	read := func(tenant wire.TenantID, cid string) *nats.Msg {
		msg := frame("archive-a", wire.OpRead, "", encode(t, wire.BlobRead{Length: 1}))
		msg.Header.Set(wire.HeaderTenant, string(tenant))
		msg.Header.Set(wire.HeaderCID, cid)
		reply, err := w.conn.bulk.RequestMsgWithContext(t.Context(), msg)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	stranger, missing := read(tenantB, file.CID), read(tenantB, nowhere.CID)
	if !bytes.Equal(stranger.Data, missing.Data) || fmt.Sprint(stranger.Header) != fmt.Sprint(missing.Header) {
		t.Errorf("%v %s\n%v %s", stranger.Header, stranger.Data, missing.Header, missing.Data)
	}
	for _, tenant := range []wire.TenantID{tenantA, tenantB} {
		_, err := w.archives.ReadFile(t.Context(), w.ids, tenant, nowhere.CID, 0, 1)
		wantFault(t, err, fault.NotFound, CodeNotFound)
	}
	if _, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, 10); err != nil {
		t.Error(err)
	}
}

// A file that a record of the archive names and that is not there is damage to
// who may read it, and nothing to others.
func TestNamedFileThatIsGoneIsDamage(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	file := w.store(t, content(10), w.sites[0])
	w.sites[0].blobs.mu.Lock()
	clear(w.sites[0].blobs.files)
	w.sites[0].blobs.mu.Unlock()
	_, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
	wantFault(t, err, fault.Corrupt, blob.CodeCorrupt)
	_, err = w.archives.ReadFile(t.Context(), w.ids, tenantB, file.CID, 0, file.Size)
	wantFault(t, err, fault.NotFound, CodeNotFound)
	// One that is known to be lost is told as that.
	w.sites[0].node.mu.Lock()
	w.sites[0].node.lost = map[[32]byte]bool{file.SHA256: true}
	w.sites[0].node.mu.Unlock()
	_, err = w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
	wantFault(t, err, fault.Corrupt, archive.CodeFileLost)
	_, err = w.archives.ReadFile(t.Context(), w.ids, tenantB, file.CID, 0, file.Size)
	wantFault(t, err, fault.NotFound, CodeNotFound)
}

// A block of somebody's file, or a file whose bytes are a node of another file's
// tree, has the digest and is still not the file of that name.
func TestFileIsReadableByItsOwnCIDOnly(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	file := w.store(t, content(10), w.sites[0])
	cid, err := blob.ParseCID(file.CID)
	if err != nil {
		t.Fatal(err)
	}
	cid.Raw = !cid.Raw
	w.sites[0].blobs.files[cid.String()] = content(10) // somebody's file, without a record for this tenant
	_, err = w.archives.ReadFile(t.Context(), w.ids, tenantA, cid.String(), 0, 10)
	wantFault(t, err, fault.NotFound, CodeNotFound)
}

func TestReadFileSumsUpWhyNobodyCould(t *testing.T) {
	corrupt := fault.New(fault.Corrupt, "BLOB_CORRUPT", "c")
	lost := fault.New(fault.Corrupt, "FILE_LOST", "l")
	gone := fault.New(fault.Transient, CodeUnreachable, "g")
	none := fault.New(fault.NotFound, CodeNotFound, "n")
	for name, tc := range map[string]struct {
		errs []error
		kind fault.Kind
		code string
	}{
		"no holder":        {nil, fault.Transient, CodeNoArchive},
		"not there":        {[]error{none, none}, fault.NotFound, CodeNotFound},
		"perhaps at other": {[]error{gone, none}, fault.Transient, CodeUnreachable},
		"damaged":          {[]error{corrupt, gone, none}, fault.Corrupt, "BLOB_CORRUPT"},
		"damaged last":     {[]error{none, gone, corrupt}, fault.Corrupt, "BLOB_CORRUPT"},
		"lost":             {[]error{none, lost, none}, fault.Corrupt, "FILE_LOST"},
		"lost or silent":   {[]error{lost, gone}, fault.Transient, CodeUnreachable},
		"silent or lost":   {[]error{gone, lost}, fault.Transient, CodeUnreachable},
		"lost and damaged": {[]error{lost, corrupt, lost}, fault.Corrupt, "BLOB_CORRUPT"},
	} {
		t.Run(name, func(t *testing.T) { wantFault(t, readFault("cid", tc.errs), tc.kind, tc.code) })
	}
}

// A holder that answers with other bytes than asked for is turned away from.
func TestShortOrMisplacedRangesAreRefused(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	data := content(100)
	file := w.store(t, data, w.sites[0])
	for name, answer := range map[string]*nats.Msg{
		"short":     {Data: data[:99], Header: nats.Header{wire.HeaderOffset: {"0"}}},
		"long":      {Data: append(data, 0), Header: nats.Header{wire.HeaderOffset: {"0"}}},
		"elsewhere": {Data: data, Header: nats.Header{wire.HeaderOffset: {"1"}}},
		"unplaced":  {Data: data},
	} {
		sub, err := w.conn.bulk.Subscribe(wire.SubjectBlobPrefix+"archive-x", func(m *nats.Msg) {
			m.RespondMsg(&nats.Msg{Data: answer.Data, Header: answer.Header})
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.archives.ReadFile(t.Context(), []wire.ArchiveID{"archive-x"}, tenantA, file.CID, 0, file.Size)
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: got %v", name, err)
		}
		r, err := w.archives.ReadFile(t.Context(), []wire.ArchiveID{"archive-x", "archive-a"}, tenantA, file.CID, 0, file.Size)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		r.Close()
		sub.Unsubscribe()
	}
}

func TestClosingAReaderEndsWhatIsUnderWay(t *testing.T) {
	block := make(chan struct{})
	w := startWorld(t, 1, ArchivesConfig{RequestTimeout: time.Hour}, func(_ int, s *site) {
		s.blobs.onRead = func(off int64) error {
			if off > 0 {
				<-block
			}
			return nil
		}
	})
	t.Cleanup(func() { close(block) })
	file := w.store(t, content(4<<20), w.sites[0])
	r, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read after close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err = w.archives.ReadFile(ctx, w.ids, tenantA, file.CID, 0, file.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancel: %v", err)
	}
}

func TestCopyHealsALostFile(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	data := content(3<<20 + 1)
	file := w.store(t, data, w.sites[0])
	for range 2 { // the second time it is there already
		if err := w.archives.Copy(t.Context(), "archive-a", "archive-b", tenantA, file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(w.sites[1].blobs.file(file.CID), data) {
		t.Error("the copy differs")
	}
	if n := count(w.archives.metrics.lanes.WithLabelValues("complete")); n != 1 {
		t.Errorf("%d uploads, want 1", n)
	}
}

// A copy has the CID of the file only in the profile of it.
func TestCopyIsMadeInTheFilesProfile(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	data := content(1<<20 + 1)
	file := w.store(t, data, w.sites[0])
	legacy := describeIn(data, blob.Legacy)
	legacy.ChunkSize, legacy.MaxLinks = blob.Legacy.ChunkSize, blob.Legacy.MaxLinks
	w.sites[0].blobs.files[legacy.CID] = data // a second root of the same bytes
	put := wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
		Kind: wire.KindFile, SHA256: legacy.SHA256, TenantID: tenantA, File: &wire.File{Size: legacy.Size, SHA256: legacy.SHA256, CID: legacy.CID},
	}}
	if _, err := w.sites[0].node.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	for _, f := range []wire.BlobCommit{file, legacy} {
		if err := w.archives.Copy(t.Context(), "archive-a", "archive-b", tenantA, f); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(w.sites[1].blobs.file(f.CID), data) {
			t.Errorf("the copy of %s differs", f.CID)
		}
	}
}

func TestFailedCopyLeavesNothing(t *testing.T) {
	w := startWorld(t, 2, patient, func(i int, s *site) {
		s.blobs.onRead = func(off int64) error {
			return failFrom(off, 1<<20, fault.New(fault.Corrupt, "BLOB_CORRUPT", "leaf"))
		}
	})
	file := w.store(t, content(2<<20), w.sites[0])
	err := w.archives.Copy(t.Context(), "archive-a", "archive-b", tenantA, file)
	wantFault(t, err, fault.Corrupt, "BLOB_CORRUPT")
	eventually(t, "the upload is dropped", func() bool { return w.sites[1].blobs.openUploads() == 0 })
	err = w.archives.Copy(t.Context(), "archive-a", "archive-b", tenantB, file)
	wantFault(t, err, fault.NotFound, CodeNotFound)
	err = w.archives.Copy(t.Context(), "archive-a", "archive-z", tenantA, file)
	wantFault(t, err, fault.Transient, CodeUnreachable)
}
