package pebblex

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// ReadManifest returns the manifest of the backup in dir. A directory without
// one, or with another than was written, is fault.Corrupt, BACKUP_BROKEN; a
// backup of another kind is fault.Invalid, BACKUP_KIND. Nil fs is the disk.
func ReadManifest(fs vfs.FS, dir, kind string) (Manifest, error) {
	if fs == nil {
		fs = vfs.Default
	}
	data, err := ReadFile(fs, fs.PathJoin(dir, ManifestName), maxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return Manifest{}, broken(dir, errors.New("it has no "+ManifestName+": it was never finished, or is no backup"))
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := decodeManifest(data)
	if err != nil {
		return Manifest{}, broken(dir, fmt.Errorf("%s: %w", ManifestName, err))
	}
	if m.Kind != kind {
		return Manifest{}, fault.New(fault.Invalid, CodeBackupKind, "pebblex: %s is a backup of kind %q, not %q", dir, m.Kind, kind)
	}
	return m, nil
}

func broken(dir string, err error) error {
	return fault.New(fault.Corrupt, CodeBackupBroken, "pebblex: the backup in %s is not whole, restore another: %w", dir, err)
}

// Restore copies a backup to the directory to, which must be absent or empty.
// It is built beside it, in to+".incomplete", every file compared with the
// manifest; open then gets that directory, opens what is in it and completes it;
// and only when it returns nil does the directory get its name. Whatever happens
// before leaves nothing at to. A crash leaves the incomplete directory, which the
// next try replaces. When Restore returns nil all is durable.
func Restore(ctx context.Context, fs vfs.FS, from string, m Manifest, to string, open func(dir string) error) (err error) {
	if fs == nil {
		fs = vfs.Default
	}
	if err := mustBeFree(fs, to); err != nil {
		return err
	}
	half := to + ".incomplete"
	if err := fs.RemoveAll(half); err != nil {
		return fmt.Errorf("pebblex: restore: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.RemoveAll(half))
		}
	}()
	if err := Mkdir(fs, half); err != nil {
		return err
	}
	if err := m.copyTo(ctx, fs, from, half, false); err != nil {
		return err
	}
	if err := open(half); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return rename(fs, half, to)
}

// rename gives a complete directory its name.
func rename(fs vfs.FS, half, to string) error {
	if err := SyncDir(fs, half); err != nil {
		return err
	}
	if err := removeIfThere(fs, to); err != nil { // it is empty
		return fmt.Errorf("pebblex: restore: %w", err)
	}
	if err := fs.Rename(half, to); err != nil {
		return fmt.Errorf("pebblex: restore: %w", err)
	}
	return SyncDir(fs, fs.PathDir(to))
}

// copyTo copies all that the manifest lists and refuses what is not as it says.
// With link, files that no store ever writes to again are linked where that is
// possible, and not compared.
func (m *Manifest) copyTo(ctx context.Context, fs vfs.FS, from, to string, link bool) error {
	if err := fs.MkdirAll(to, dirPerm); err != nil {
		return fmt.Errorf("pebblex: %w", err)
	}
	for _, dir := range m.Dirs {
		if err := fs.MkdirAll(join(fs, to, dir), dirPerm); err != nil {
			return fmt.Errorf("pebblex: %w", err)
		}
	}
	for _, f := range m.Files {
		source, target := join(fs, from, f.Path), join(fs, to, f.Path)
		if link && fixed(f.Path) && fs.Link(source, target) == nil {
			continue
		}
		if err := copyExact(ctx, fs, f, source, target); err != nil {
			if errors.Is(err, errNotExact) || errors.Is(err, os.ErrNotExist) {
				return broken(from, err)
			}
			return fmt.Errorf("pebblex: copy %s from %s: %w", f.Path, from, err)
		}
	}
	for _, dir := range m.Dirs {
		if err := SyncDir(fs, join(fs, to, dir)); err != nil {
			return err
		}
	}
	return SyncDir(fs, to)
}

// fixed reports whether a file is a table of Pebble, or one that is named by its
// SHA-256: a store that opens a copy may remove its link, but writes none.
func fixed(rel string) bool {
	sum, err := hex.DecodeString(path.Base(rel))
	return strings.HasSuffix(rel, ".sst") || err == nil && len(sum) == sha256.Size
}

var errNotExact = errors.New("the file is not what the manifest says")

// copyExact copies a file that must be as the manifest says.
func copyExact(ctx context.Context, fs vfs.FS, f BackupFile, source, target string) (err error) {
	in, err := fs.Open(source, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	size, sum, err := copySynced(ctx, fs, target, in)
	if err != nil {
		return err
	}
	want, err := hex.DecodeString(f.SHA256)
	if err != nil || size != f.Size || !bytes.Equal(sum, want) {
		return fmt.Errorf("%w: %s has %d bytes with SHA-256 %x, it had %d with %s", errNotExact, f.Path, size, sum, f.Size, f.SHA256)
	}
	return nil
}

// copyStep is how many bytes are copied between two looks at the context.
const copyStep = 1 << 20

// copySynced writes a new file and returns its size and SHA-256.
func copySynced(ctx context.Context, fs vfs.FS, to string, r io.Reader) (size int64, sum []byte, err error) {
	f, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.Fd() != vfs.InvalidFd {
		if err := os.Chmod(to, 0o600); err != nil {
			return 0, nil, err
		}
	}
	h := sha256.New()
	if size, err = copyHashed(ctx, f, r, h); err != nil {
		return 0, nil, err
	}
	return size, h.Sum(nil), f.Sync()
}

// copyHashed copies r to w and to h until its end or that of ctx.
func copyHashed(ctx context.Context, w io.Writer, r io.Reader, h hash.Hash) (size int64, err error) {
	buf := make([]byte, copyStep)
	for {
		n, err := r.Read(buf)
		size += int64(n)
		h.Write(buf[:n])
		if n > 0 {
			// A vfs.File may use the slice it is given as scratch space.
			if _, err := w.Write(buf[:n]); err != nil {
				return size, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return size, err
		case ctx.Err() != nil:
			return size, ctx.Err()
		}
	}
}
