package pebblex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	walSuffix      = ".log"
	manifestPrefix = "MANIFEST-"
	optionsPrefix  = "OPTIONS-"
)

// Logs checks the records of the store's manifest and write-ahead logs, and that
// its options can be read. A manifest whose end a crash may have cut short is a
// flaw without damage. The end of the newest log can not be told from damage
// there, which is why stores keep a mark of their own outside; an older log may
// be one that is not needed any more, and only an open that fails tells that it
// was. The logs of an open store are left out.
func (v Verify) Logs(ctx context.Context) (flaws []Flaw, sum Verified, err error) {
	v = v.withDefaults()
	names, err := v.FS.List(v.Dir)
	if err != nil {
		return nil, sum, fmt.Errorf("pebblex: list %s: %w", v.Dir, err)
	}
	files := v.logFiles(names)
	for _, l := range files {
		flaw, size, err := v.logFile(ctx, l)
		if err != nil {
			return flaws, sum, err
		}
		sum.Files++
		sum.Bytes += size
		if flaw != nil {
			flaws = append(flaws, *flaw)
		}
	}
	return flaws, sum, nil
}

// logFile is a file of records, or of options, and what its end may look like.
type logFile struct {
	name     string
	num      uint64 // of a write-ahead log
	manifest bool
	options  bool
	newest   bool // of the write-ahead logs
}

// logFiles picks the files that the store would read when it is opened.
func (v Verify) logFiles(names []string) (files []logFile) {
	slices.SortFunc(names, compareNames)
	var wals []logFile
	var manifest, options string
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, walSuffix):
			if num, err := strconv.ParseUint(strings.TrimSuffix(name, walSuffix), 10, 32); err == nil {
				wals = append(wals, logFile{name: name, num: num})
			}
		case strings.HasPrefix(name, markerPrefix+"manifest."):
			if i := strings.LastIndex(name, "."); strings.HasPrefix(name[i+1:], manifestPrefix) {
				manifest = name[i+1:]
			}
		case strings.HasPrefix(name, optionsPrefix):
			options = name
		}
	}
	if manifest != "" {
		files = append(files, logFile{name: manifest, manifest: true})
	}
	if options != "" {
		files = append(files, logFile{name: options, options: true})
	}
	if len(wals) > 0 {
		wals[len(wals)-1].newest = true
	}
	if v.db != nil {
		return files
	}
	return append(files, wals...)
}

func (v Verify) logFile(ctx context.Context, l logFile) (flaw *Flaw, size int64, err error) {
	path := v.FS.PathJoin(v.Dir, l.name)
	f, err := v.FS.Open(path, vfs.SequentialReadsOption)
	if errors.Is(err, os.ErrNotExist) && v.db != nil {
		return nil, 0, nil // rotated since it was listed
	}
	if err != nil {
		return &Flaw{Path: path, What: err.Error(), Damage: true}, 0, nil
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return &Flaw{Path: path, What: err.Error(), Damage: true}, 0, nil
	}
	if err := v.Read(ctx, int(info.Size())); err != nil {
		return nil, 0, err
	}
	Forget(f)
	in := io.LimitReader(struct{ io.Reader }{f}, info.Size()) // what is appended from now on is not looked at
	if l.options {
		return flawOf(path, checkOptions(v.Dir, in)), info.Size(), nil
	}
	at, err := readRecords(in, l.num)
	switch {
	case err == nil:
		return nil, info.Size(), nil
	case l.newest && errors.Is(err, record.ErrUnexpectedEOF):
		return nil, info.Size(), nil
	case l.manifest && at+recordBlock > info.Size() && v.db != nil:
		return nil, info.Size(), nil // a record on its way out
	case l.manifest && at+recordBlock > info.Size():
		return &Flaw{Path: path, What: fmt.Sprintf(
			"it can be read up to byte %d of %d; behind that a crash, or damage, left no whole record", at, info.Size())}, info.Size(), nil
	}
	flaw = flawOf(path, fmt.Errorf("record at byte %d: %w", at, err))
	flaw.Damage = l.manifest || l.newest
	return flaw, info.Size(), nil
}

func flawOf(path string, err error) *Flaw {
	if err == nil {
		return nil
	}
	return &Flaw{Path: path, What: err.Error(), Damage: true}
}

// recordBlock is the size of the blocks that records are packed into.
const recordBlock = 32 << 10

// readRecords reads a file of records to its end and checks their checksums. It
// returns where the record begins that is not whole.
func readRecords(in io.Reader, num uint64) (at int64, err error) {
	r := recordReader(record.NewReader, in, num)
	for {
		at = r.Offset()
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if err != nil {
			return at, err
		}
	}
}

// recordReader calls make with a number of a type that is not Pebble's to name.
func recordReader[N ~uint64](make func(io.Reader, N) *record.Reader, in io.Reader, num uint64) *record.Reader {
	return make(in, N(num))
}

// checkOptions parses stored options as an open would.
func checkOptions(dir string, in io.Reader) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	now := pebble.Options{Comparer: pebble.DefaultComparer, Merger: pebble.DefaultMerger}
	return now.CheckCompatibility(dir, string(text))
}
