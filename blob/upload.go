package blob

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

const (
	maxUploadID  = 64      // characters
	spaceEvery   = 8 << 20 // bytes of an upload between looks at the free space
	bytesPerSync = 4 << 20 // bytes after which the system is asked to begin writing back
	retrySoon    = time.Second
)

// upload is a file on its way in. Its bytes go to a temporary file and through
// the importer at once. One that a restart of the store has left is dormant: it
// has its temporary file and nothing else, until its sender resumes or commits it.
type upload struct {
	id      string
	durable atomic.Int64 // bytes that survive a power cut

	mu       sync.Mutex // guards all below, over a write to disk or a commit
	gone     bool       // committed, aborted, swept or failed; the file is closed
	file     vfs.File   // nil: dormant
	*intake             // likewise
	reading  *reading   // of what a dormant one has; nil: none is under way
	syncing  *syncing   // the last sync of the file; nil: none yet
	last     time.Time  // of the last sign of life
	spaceDue int64      // received bytes at which to look at the free space
	evidence string     // directory for the damaged file in whose place this one comes; may be empty
}

// intake is what becomes of the bytes of an upload.
type intake struct {
	dag    *importer
	leaves []leafDigest
	nodes  []row
}

// leafDigest is a leaf whose place follows from its position.
type leafDigest struct {
	digest [32]byte
	length int64
}

// Open begins an upload under an id of 1 to 64 characters A-Z a-z 0-9 _ - that
// the sender chose, for a file to be imported in the profile p. Opening again
// what is open in the same profile and has received nothing is not an error, so
// that a request whose answer was lost can be repeated.
//
// Errors: Invalid BAD_UPLOAD_ID or BAD_PROFILE, Conflict UPLOAD_EXISTS,
// Transient TOO_MANY_UPLOADS or DISK_FULL.
func (s *Store) Open(id string, p Profile) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := checkUploadID(id); err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	if err := s.checkSpace(); err != nil {
		return err
	}
	u := &upload{id: id, last: s.cfg.Now()}
	u.mu.Lock() // nobody else may see it before it has a file
	defer u.mu.Unlock()
	old, err := s.register(u)
	if err != nil {
		return err
	}
	if old != nil {
		return s.reopen(old, p, u.last)
	}
	return s.begin(u, p)
}

// begin makes the temporary file of u. The caller holds u.mu.
func (s *Store) begin(u *upload, p Profile) error {
	file, err := s.cfg.FS.Create(s.path(dirTemp, u.id), vfs.WriteCategoryUnspecified)
	if err != nil {
		u.gone = true
		err = errors.Join(diskError(err), s.removeTemp(u.id))
		s.unregister(u)
		return err
	}
	u.file, u.intake = writtenBack(file), newIntake(p)
	return nil
}

// writtenBack has the system begin early to write a file back.
func writtenBack(file vfs.File) vfs.File {
	return vfs.NewSyncingFile(file, vfs.SyncingFileOptions{NoSyncOnClose: true, BytesPerSync: bytesPerSync})
}

// newIntake collects the rows of what it gets.
func newIntake(p Profile) *intake {
	in := &intake{dag: newImporter(p)}
	in.dag.onLeaf = func(d [32]byte, _, n int64) { in.leaves = append(in.leaves, leafDigest{d, n}) }
	in.dag.tree.onNode = func(d [32]byte, encoded []byte) { in.nodes = append(in.nodes, seal(nodeKey(d), encoded)) }
	return in
}

// register takes a place for u, or returns the upload that has the id.
func (s *Store) register(u *upload) (old *upload, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.uploads[u.id]; old != nil {
		return old, nil
	}
	if len(s.uploads) >= s.cfg.MaxUploads {
		return nil, fault.New(fault.Transient, CodeTooMany, "blob: %d uploads are open, as many as this store takes at once; try again when one has ended", s.cfg.MaxUploads).After(retrySoon)
	}
	s.uploads[u.id] = u
	return nil, nil
}

func (s *Store) unregister(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uploads[u.id] == u {
		delete(s.uploads, u.id)
	}
}

// reopen answers a second Open of the id of u. A dormant upload begins anew.
func (s *Store) reopen(u *upload, p Profile, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dormant() && u.reading == nil {
		u.last = now
		return s.begin(u, p)
	}
	if u.gone || u.file == nil || u.dag.size > 0 || u.dag.profile != p {
		return fault.New(fault.Conflict, CodeUploadExists, "blob: upload %s is already open and is not the same; take a new id for every upload", u.id)
	}
	u.last = now
	return nil
}

// checkUploadID also keeps ids safe as file names.
func checkUploadID(id string) error {
	ok := id != "" && len(id) <= maxUploadID
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return fault.New(fault.Invalid, CodeBadUploadID, "blob: an upload id has 1 to %d characters out of A-Z a-z 0-9 _ - (this one has %d bytes)", maxUploadID, len(id)).InField("upload")
	}
	return nil
}

func (s *Store) lookup(id string) *upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploads[id]
}

func (s *Store) allUploads() []*upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*upload, 0, len(s.uploads))
	for _, u := range s.uploads {
		all = append(all, u)
	}
	return all
}

// drop ends an upload without a trace. The caller holds u.mu.
func (s *Store) drop(u *upload) {
	if u.gone {
		return
	}
	if err := errors.Join(u.shelve(), s.removeTemp(u.id)); err != nil {
		// Not the caller's business; Sweep tries again.
		s.cfg.Log.Warn("temporary file of an upload is left over", "upload", u.id, "err", err)
	}
	// The id is free only now: an earlier successor's file would be removed.
	s.unregister(u)
}

// shelve ends an upload and leaves its temporary file. The caller holds u.mu.
func (u *upload) shelve() (err error) {
	if u.gone {
		return nil
	}
	u.gone = true
	if u.reading != nil {
		u.reading.cancel()
	}
	u.synced()
	if u.file != nil {
		err = u.file.Close()
	}
	u.file, u.intake = nil, nil
	return err
}

func (s *Store) removeTemp(id string) error {
	if err := s.cfg.FS.Remove(s.path(dirTemp, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
