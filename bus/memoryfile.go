package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// The memory's file stands beside the roster's and is sealed in the same way. It
// is written at most once a second while there is news, when the roster is
// closed, and at once when a loss shows. A crash forgets a second at most: what
// was acknowledged in it is in the job store too.
const (
	memoryName   = "memory.json"
	memoryMagic  = "verae-memory"
	memoryFormat = 1       // raised when a reader of the old format would misread the new
	maxMemoryLen = 4 << 20 // bytes of the file
)

type memoryFile struct {
	Magic    string       `json:"magic"`
	Format   int          `json:"format"`
	Archives []remembered `json:"archives"` // sorted by id
	Sum      string       `json:"sum"`
}

// MemoryPath is the path of the memory that belongs to a roster.
func MemoryPath(roster string) string { return filepath.Join(filepath.Dir(roster), memoryName) }

func (f memoryFile) sum() (string, error) {
	f.Sum = ""
	data, err := wire.Encode(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// encode returns the bytes of the file.
func (f memoryFile) encode() ([]byte, error) {
	f.Magic, f.Format = memoryMagic, memoryFormat
	if f.Archives == nil {
		f.Archives = []remembered{}
	}
	slices.SortFunc(f.Archives, func(a, b remembered) int { return strings.Compare(string(a.ID), string(b.ID)) })
	var err error
	if f.Sum, err = f.sum(); err != nil {
		return nil, err
	}
	data, err := wire.Encode(f)
	return append(data, '\n'), err
}

// writeSealed is how a roster and its memory reach the disk; tests let it fail.
func writeSealed(path string, data []byte) error { return pebblex.WriteFile(nil, path, data, 0o600) }

// loadMemory reads the memory that belongs to roster. A missing file is refused
// unless nobody is enrolled: then nothing was acknowledged yet, and found is
// false.
func loadMemory(path string, roster *rosterFile) (f memoryFile, found bool, err error) {
	data, err := pebblex.ReadFile(nil, path, maxMemoryLen)
	switch {
	case errors.Is(err, os.ErrNotExist) && len(roster.Archives) == 0 && len(roster.Retired) == 0:
		return memoryFile{}, false, nil
	case errors.Is(err, os.ErrNotExist):
		return f, false, fault.New(fault.Corrupt, "MEMORY_MISSING", "bus: %s is gone: without it an archive that lost records is not found out. Restore it with the rest of the directory, or, if there is no copy, begin a new one: aggregator new-memory", path)
	case err != nil:
		return f, false, err
	}
	if f, err = wire.Decode[memoryFile](data); err == nil {
		err = f.check(roster)
	}
	if err != nil {
		return f, true, fault.New(fault.Corrupt, "MEMORY_DAMAGED", "bus: memory %s: %w: restore it with the rest of the directory, or, if there is no copy, move it away and begin a new one: aggregator new-memory", path, err)
	}
	return f, true, nil
}

// check reports what is wrong with a memory that was read. Archives are known to
// the roster before they are remembered: a roster that does not know one is older.
func (f *memoryFile) check(roster *rosterFile) error {
	if f.Magic != memoryMagic || f.Format != memoryFormat {
		return errors.New("not a memory of a format this version reads")
	}
	if want, err := f.sum(); err != nil || f.Sum != want {
		return errors.Join(errors.New("the checksum does not match; the file was damaged or edited"), err)
	}
	for i := range f.Archives {
		k := &f.Archives[i]
		if i > 0 && f.Archives[i-1].ID >= k.ID {
			return errors.New("archives are not in order")
		}
		if !roster.knows(k.ID) {
			return errors.New("it remembers archive " + string(k.ID) + ", which the roster does not know: the roster is older than the memory")
		}
		if k.Generation < 0 || k.Lost != nil && k.Lost.Reason == "" {
			return errors.New("what it remembers of archive " + string(k.ID) + " can not be")
		}
	}
	return nil
}

// NewMemory begins an empty memory for the roster at path, where there is none
// and none can be restored. What archives lost before can then be found by their
// own marks and by other archives only.
func NewMemory(path string) error {
	if _, err := loadRoster(path, false, writeSealed); err != nil {
		return err
	}
	memory := MemoryPath(path)
	switch _, err := os.Lstat(memory); {
	case err == nil:
		return fault.New(fault.Conflict, "EXISTS", "bus: %s is there already: it is not made anew", memory)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	data, err := memoryFile{}.encode()
	if err != nil {
		return err
	}
	return writeSealed(memory, data)
}
