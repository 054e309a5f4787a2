package blob

import (
	"fmt"

	"github.com/verae/archive/internal/fault"
)

// Write adds a fragment that begins at offset and returns how many bytes of the
// file are here now. offset must be that number: a gap or an overlap is Invalid,
// code BAD_OFFSET, and names what was expected. A fragment that lies wholly in
// what is here is a repetition, and is acknowledged without being looked at.
// The upload stays open after these.
//
// Any other error ends the upload: Invalid FILE_TOO_LARGE, Transient DISK_FULL,
// or an internal one. An unknown upload, or one to be resumed, is NotFound, code
// UNKNOWN_UPLOAD; one that is being resumed is Transient, UPLOAD_RESUMING. The
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
	switch {
	case !u.gone && u.reading != nil:
		return 0, stillReading(id)
	case u.gone || u.file == nil:
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
		return have, fault.New(fault.Invalid, CodeTooLarge, "blob: upload %s exceeds %d bytes, the most this store takes for one file", id, s.cfg.MaxFileSize).InField("size")
	}
	if err := s.append(u, data); err != nil {
		s.drop(u)
		return have, err
	}
	return u.dag.size, nil
}

func badOffset(id string, have int64, format string, args ...any) error {
	return fault.New(fault.Invalid, CodeBadOffset, "blob: upload %s has %d bytes and expects offset %d, but the fragment %s", id, have, have, fmt.Sprintf(format, args...)).InField("offset")
}

func unknownUpload(id string) error {
	return fault.New(fault.NotFound, CodeUnknownUpload, "blob: upload %.64q is not open here: it was aborted, left idle, refused, lost in a restart, or has to be resumed after one; resume it, or send the file in a new one from its first byte", id)
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
