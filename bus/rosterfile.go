package bus

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// The roster's file is one JSON object. Sum is the SHA-256, in hex, of the same
// object encoded with an empty sum; a file that does not match it is refused,
// because an archive that vanished from the roster would make an incomplete
// answer look complete.
const (
	rosterMagic  = "verae-roster"
	rosterFormat = 1       // raised when a reader of the old format would misread the new
	maxRosterLen = 1 << 20 // bytes of the file

	// MaxEnrolled is the largest number of archives one roster holds.
	MaxEnrolled = 1024
)

type rosterFile struct {
	Magic    string        `json:"magic"`
	Format   int           `json:"format"`
	Version  uint64        `json:"version"` // rises by one with every change
	Archives []rosterEntry `json:"archives"`
	Retired  []rosterEntry `json:"retired,omitempty"` // left for good; not enrolled again by a hello
	Sum      string        `json:"sum"`
}

type rosterEntry struct {
	ID       wire.ArchiveID `json:"id"`
	Key      string         `json:"key"`      // Ed25519 public key, standard base64
	Enrolled uint64         `json:"enrolled"` // the version that brought it in

	Generation int    `json:"generation,omitzero"` // the accepted one; absent: 1
	Retired    uint64 `json:"retired,omitzero"`    // the version that retired it
}

// generation is the accepted generation of an archive's log.
func (e *rosterEntry) generation() int { return max(1, e.Generation) }

func (f rosterFile) sum() (string, error) {
	f.Sum = ""
	data, err := wire.Encode(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// save writes the roster durably: on a nil error it survives a power failure.
func (f rosterFile) save(path string, write func(string, []byte) error) error {
	f.Magic, f.Format = rosterMagic, rosterFormat
	var err error
	if f.Sum, err = f.sum(); err != nil {
		return err
	}
	data, err := wire.Encode(f)
	if err != nil {
		return err
	}
	return write(path, append(data, '\n'))
}

// loadRoster reads the file at path. A missing file is an empty roster if create
// is set, and else an error that names the danger.
func loadRoster(path string, create bool, write func(string, []byte) error) (rosterFile, error) {
	data, err := pebblex.ReadFile(nil, path, maxRosterLen)
	switch {
	case errors.Is(err, os.ErrNotExist) && create:
		f := rosterFile{}
		return f, f.save(path, write)
	case errors.Is(err, os.ErrNotExist):
		return rosterFile{}, fault.New(fault.Corrupt, "", "bus: the roster %s is gone; answers would look complete without the archives it named. Restore the file, or start afresh where nothing is stored yet", path)
	case err != nil:
		return rosterFile{}, err
	}
	f, err := wire.Decode[rosterFile](data)
	if err != nil {
		return rosterFile{}, fault.New(fault.Corrupt, "", "bus: roster %s: %w", path, err)
	}
	if err := f.check(); err != nil {
		return rosterFile{}, fault.New(fault.Corrupt, "", "bus: roster %s: %w", path, err)
	}
	return f, nil
}

func (f rosterFile) check() error {
	if f.Magic != rosterMagic || f.Format != rosterFormat {
		return errors.New("not a roster of a format this version reads")
	}
	if want, err := f.sum(); err != nil || f.Sum != want {
		return errors.Join(errors.New("the checksum does not match; the file was damaged or edited"), err)
	}
	for _, list := range [][]rosterEntry{f.Archives, f.Retired} {
		for i, e := range list {
			if _, err := wire.ParseArchiveID(string(e.ID)); err != nil {
				return err
			}
			if err := checkKey(e.Key); err != nil {
				return err
			}
			if i > 0 && list[i-1].ID >= e.ID || e.Generation < 0 {
				return errors.New("archives are not in order")
			}
		}
	}
	return nil
}

// find returns the entry of an archive in one of the lists, or nil.
func find(list []rosterEntry, id wire.ArchiveID) *rosterEntry {
	at := slices.IndexFunc(list, func(e rosterEntry) bool { return e.ID == id })
	if at < 0 {
		return nil
	}
	return &list[at]
}

// knows reports whether an archive is, or was, enrolled.
func (f *rosterFile) knows(id wire.ArchiveID) bool {
	return find(f.Archives, id) != nil || find(f.Retired, id) != nil
}

// with returns a copy of f, a version further, with an archive enrolled in a
// generation under a key, whatever was known of it before.
func (f rosterFile) with(id wire.ArchiveID, key string, generation int) rosterFile {
	f.Version++
	e := rosterEntry{ID: id, Key: key, Enrolled: f.Version}
	if old := find(f.Archives, id); old != nil {
		e.Enrolled = old.Enrolled
	}
	if generation > 1 {
		e.Generation = generation
	}
	f.Archives, f.Retired = append(removed(f.Archives, id), e), removed(f.Retired, id)
	slices.SortFunc(f.Archives, byID)
	return f
}

// retire returns a copy of f, a version further, in which an enrolled archive is
// retired.
func (f rosterFile) retire(id wire.ArchiveID) rosterFile {
	e := *find(f.Archives, id)
	f.Version++
	e.Retired = f.Version
	f.Archives, f.Retired = removed(f.Archives, id), append(removed(f.Retired, id), e)
	slices.SortFunc(f.Retired, byID)
	return f
}

// removed returns a copy of list without an archive.
func removed(list []rosterEntry, id wire.ArchiveID) []rosterEntry {
	return slices.DeleteFunc(slices.Clone(list), func(e rosterEntry) bool { return e.ID == id })
}

func byID(a, b rosterEntry) int { return strings.Compare(string(a.ID), string(b.ID)) }

// checkKey reports whether key is an Ed25519 public key in its only spelling.
func checkKey(key string) error {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != ed25519.PublicKeySize || base64.StdEncoding.EncodeToString(raw) != key {
		return fault.New(fault.Invalid, "", "bus: %q is not an Ed25519 public key in base64 (44 characters)", key)
	}
	return nil
}
