package blob

import (
	"errors"
	"fmt"
	"os"
	"sync"
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
// the importer at once.
type upload struct {
	id string

	mu       sync.Mutex // guards all below, over a write to disk or a commit
	gone     bool       // committed, aborted, swept or failed; the file is closed
	file     vfs.File
	dag      *importer
	leaves   []leafDigest
	nodes    []row
	last     time.Time // of the last sign of life
	spaceDue int64     // received bytes at which to look at the free space
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
		return old.reopen(p)
	}
	file, err := s.cfg.FS.Create(s.path(dirTemp, id), vfs.WriteCategoryUnspecified)
	if err != nil {
		u.gone = true
		err = errors.Join(diskError(err), s.removeTemp(id))
		s.unregister(u)
		return err
	}
	u.file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{NoSyncOnClose: true, BytesPerSync: bytesPerSync})
	u.dag = newImporter(p)
	u.dag.onLeaf = func(d [32]byte, _, n int64) { u.leaves = append(u.leaves, leafDigest{d, n}) }
	u.dag.tree.onNode = func(d [32]byte, encoded []byte) { u.nodes = append(u.nodes, seal(nodeKey(d), encoded)) }
	return nil
}

// register takes a place for u, or returns the upload that has the id.
func (s *Store) register(u *upload) (old *upload, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.uploads[u.id]; old != nil {
		return old, nil
	}
	if len(s.uploads) >= s.cfg.MaxUploads {
		return nil, fault.New(fault.Transient, codeTooMany, "blob: %d uploads are open, as many as this store takes at once; try again when one has ended", s.cfg.MaxUploads).After(retrySoon)
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

// reopen answers a second Open of the id of u.
func (u *upload) reopen(p Profile) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone || u.dag.size > 0 || u.dag.profile != p {
		return fault.New(fault.Conflict, codeExists, "blob: upload %s is already open and is not the same; take a new id for every upload", u.id)
	}
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
		return fault.New(fault.Invalid, codeUploadID, "blob: an upload id has 1 to %d characters out of A-Z a-z 0-9 _ - (this one has %d bytes)", maxUploadID, len(id)).InField("upload")
	}
	return nil
}

// Write adds a fragment that begins at offset and returns how many bytes of the
// file are here now. offset must be that number: a gap or an overlap is Invalid,
// code BAD_OFFSET, and names what was expected. A fragment that lies wholly in
// what is here is a repetition, and is acknowledged without being looked at.
// The upload stays open after these.
//
// Any other error ends the upload: Invalid FILE_TOO_LARGE, Transient DISK_FULL,
// or an internal one. An unknown upload is NotFound, code UNKNOWN_UPLOAD. The
// fragment belongs to Write, which may use it as scratch space.
func (s *Store) Write(id string, offset int64, data []byte) (received int64, err error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	u := s.lookup(id)
	if u == nil {
		return 0, unknownUpload(id)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
		return 0, unknownUpload(id)
	}
	u.last = s.cfg.Now()
	have, end := u.dag.size, offset+int64(len(data))
	switch {
	case offset < 0 || end < offset:
		return have, badOffset(id, have, "begins at %d", offset)
	case offset > have:
		return have, badOffset(id, have, "leaves a gap of %d bytes before it", offset-have)
	case end <= have:
		return have, nil
	case offset < have:
		return have, badOffset(id, have, "overlaps %d bytes of them and has more", have-offset)
	case end > s.cfg.MaxFileSize:
		s.drop(u)
		return have, fault.New(fault.Invalid, codeTooLarge, "blob: upload %s exceeds %d bytes, the most this store takes for one file", id, s.cfg.MaxFileSize).InField("size")
	}
	if err := s.append(u, data); err != nil {
		s.drop(u)
		return have, err
	}
	return u.dag.size, nil
}

func badOffset(id string, have int64, format string, args ...any) error {
	return fault.New(fault.Invalid, codeOffset, "blob: upload %s has %d bytes and expects offset %d, but the fragment %s", id, have, have, fmt.Sprintf(format, args...)).InField("offset")
}

func unknownUpload(id string) error {
	return fault.New(fault.NotFound, codeUnknown, "blob: upload %.64q is not open here: it was aborted, left idle, refused, or lost in a restart; open it again and send the file from its first byte", id)
}

func (s *Store) append(u *upload, data []byte) error {
	if u.dag.size >= u.spaceDue {
		if err := s.checkSpace(); err != nil {
			return err
		}
		u.spaceDue = u.dag.size + spaceEvery
	}
	u.dag.write(data)
	n, err := u.file.Write(data)
	if err != nil {
		return diskError(err)
	}
	s.stats.received.Add(uint64(n))
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
	u.gone = true
	if err := errors.Join(u.file.Close(), s.removeTemp(u.id)); err != nil {
		// Not the caller's business; Sweep and the next open try again.
		s.cfg.Log.Warn("temporary file of an upload is left over", "upload", u.id, "err", err)
	}
	u.file, u.leaves, u.nodes = nil, nil, nil
	// The id is free only now: an earlier successor's file would be removed.
	s.unregister(u)
}

func (s *Store) removeTemp(id string) error {
	if err := s.cfg.FS.Remove(s.path(dirTemp, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Abort ends an upload and removes its bytes. An unknown upload is not an error:
// what the sender wants is so already. A commit under way is not undone.
func (s *Store) Abort(id string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if u := s.lookup(id); u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		s.drop(u)
	}
	return nil
}

// Sweep aborts the uploads of which nothing was heard for longer than idle, and
// returns how many there were. Uploads busy with a write or a commit are not
// idle. It also removes temporary files whose removal failed before.
func (s *Store) Sweep(idle time.Duration) (int, error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	swept, limit := 0, s.cfg.Now().Add(-idle)
	for _, u := range s.allUploads() {
		if !u.mu.TryLock() {
			continue
		}
		if !u.gone && u.last.Before(limit) {
			s.drop(u)
			swept++
		}
		u.mu.Unlock()
	}
	return swept, s.removeLeftovers()
}

func (s *Store) removeLeftovers() error {
	names, err := s.cfg.FS.List(s.path(dirTemp))
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	s.mu.Lock() // so that no upload begins under a name that is being removed
	defer s.mu.Unlock()
	for _, name := range names {
		if s.uploads[name] == nil {
			err = errors.Join(err, s.removeTemp(name))
		}
	}
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	return nil
}
