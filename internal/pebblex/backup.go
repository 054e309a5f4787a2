package pebblex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// Codes of refusals of backups.
const (
	CodeBackupTarget = "BACKUP_TARGET" // there is something where the backup, or what is restored, shall go
	CodeBackupBroken = "BACKUP_BROKEN" // the backup is not whole, or not what was written
	CodeBackupKind   = "BACKUP_KIND"   // it is a backup of something else
)

// scratchName is where, in the directory of a backup that is being made, its
// copy is opened to see whether it is good.
const scratchName = ".verify"

// A Backup is one that is being made: a directory that fills with copies of
// files, all synced, and becomes a backup when Finish has opened what it holds
// and written the manifest. Without the manifest it is nothing, and Restore
// refuses it. One goroutine works on it.
//
// Files are copied, never linked: a link would share every damage of the
// original.
type Backup struct {
	fs  vfs.FS
	dir string
	m   Manifest
}

// NewBackup begins a backup in dir, which must be absent or empty (fault.Conflict,
// BACKUP_TARGET). All that it copies must be on fs; nil is the disk.
func NewBackup(fs vfs.FS, dir, kind, id string, now time.Time) (*Backup, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if err := mustBeFree(fs, dir); err != nil {
		return nil, err
	}
	if err := Mkdir(fs, dir); err != nil {
		return nil, err
	}
	return &Backup{
		fs: fs, dir: dir,
		m: Manifest{Kind: kind, ID: id, Created: now.UTC().Format(time.RFC3339Nano), Dirs: []string{}, Files: []BackupFile{}},
	}, nil
}

// mustBeFree refuses a directory in which there is anything.
func mustBeFree(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(fault.Conflict, CodeBackupTarget, "pebblex: %s is there and no directory that can be read; name another: %w", dir, err)
	case len(names) > 0:
		return fault.New(fault.Conflict, CodeBackupTarget, "pebblex: %s is not empty (%s is in it); name a directory that is not there yet", dir, names[0])
	}
	return nil
}

// Draft is the manifest as far as it goes, for another process that finishes the
// backup with Resume.
func (b *Backup) Draft() Manifest { return b.m }

// Resume goes on with a backup whose files another process has copied to dir.
func Resume(fs vfs.FS, dir string, draft Manifest) (*Backup, error) {
	if fs == nil {
		fs = vfs.Default
	}
	b := &Backup{fs: fs, dir: dir, m: draft}
	b.sort()
	if err := b.m.check(); err != nil {
		return nil, fmt.Errorf("pebblex: the draft of a backup in %s: %w", dir, err)
	}
	return b, nil
}

func (b *Backup) sort() {
	slices.SortFunc(b.m.Files, func(x, y BackupFile) int { return cmp.Compare(x.Path, y.Path) })
}

// Dir is where the backup goes.
func (b *Backup) Dir() string { return b.dir }

// Path returns where a path of the backup is.
func (b *Backup) Path(rel string) string { return join(b.fs, b.dir, rel) }

func join(fs vfs.FS, dir, rel string) string {
	return fs.PathJoin(append([]string{dir}, strings.Split(rel, "/")...)...)
}

// AddDir makes a directory of the backup with those it is in.
func (b *Backup) AddDir(rel string) error {
	if rel == "." || b.m.hasDir(rel) {
		return nil
	}
	if err := checkPath(rel); err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	if err := b.AddDir(path.Dir(rel)); err != nil {
		return err
	}
	if err := b.fs.MkdirAll(b.Path(rel), dirPerm); err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	at, _ := slices.BinarySearch(b.m.Dirs, rel)
	b.m.Dirs = slices.Insert(b.m.Dirs, at, rel)
	return nil
}

// AddFile copies the file at source, which nobody may change meanwhile.
func (b *Backup) AddFile(ctx context.Context, rel, source string) (err error) {
	f, err := b.fs.Open(source, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return b.add(ctx, rel, f)
}

// AddBytes makes a file of the backup.
func (b *Backup) AddBytes(rel string, data []byte) error {
	return b.add(context.Background(), rel, bytes.NewReader(data))
}

func (b *Backup) add(ctx context.Context, rel string, r io.Reader) error {
	if err := errors.Join(checkPath(rel), b.AddDir(path.Dir(rel))); err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	size, sum, err := copySynced(ctx, b.fs, b.Path(rel), r)
	if err != nil {
		return fmt.Errorf("pebblex: backup: copy %s: %w", rel, err)
	}
	b.m.Files = append(b.m.Files, BackupFile{Path: rel, Size: size, SHA256: hex.EncodeToString(sum)})
	return nil
}

// AddTree copies the directory at source with all that is in it.
func (b *Backup) AddTree(ctx context.Context, rel, source string) error {
	if err := b.AddDir(rel); err != nil {
		return err
	}
	names, err := b.fs.List(source)
	if err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		from, to := b.fs.PathJoin(source, name), path.Join(rel, name)
		info, err := b.fs.Stat(from)
		switch {
		case err != nil:
			return fmt.Errorf("pebblex: backup: %w", err)
		case info.IsDir():
			err = b.AddTree(ctx, to, from)
		default:
			err = b.AddFile(ctx, to, from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AddStore copies an open Pebble store as it is at one instant, with all that
// was committed before the call. Writes go on. dir is the directory of the store;
// the checkpoint is made beside it, with links, and removed again. One that a
// crash left there is removed first: nothing else has that name.
func (b *Backup) AddStore(ctx context.Context, rel string, db *pebble.DB, dir string) (err error) {
	beside := dir + ".checkpoint"
	if err := b.fs.RemoveAll(beside); err != nil {
		return fmt.Errorf("pebblex: backup: %w", err)
	}
	if err := db.Checkpoint(beside, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("pebblex: checkpoint of %s: %w", dir, err)
	}
	// The checkpoint is not durable as a whole: its marker may outlive a crash
	// that takes the manifest. It need not be; the copy is.
	defer func() { err = errors.Join(err, b.fs.RemoveAll(beside)) }()
	return b.AddTree(ctx, rel, beside)
}

// Finish makes the backup good. A second copy of it is opened by verify, which
// gets its directory, checks all that can be checked and returns the end of the
// log in it, nil if there is none; only if it returns no error is the manifest
// written. When Finish returns nil the backup is durable.
func (b *Backup) Finish(ctx context.Context, verify func(dir string) (*BackupLog, error)) (Manifest, error) {
	b.sort()
	if err := b.syncDirs(); err != nil {
		return Manifest{}, err
	}
	scratch := b.fs.PathJoin(b.dir, scratchName)
	log, err := b.verify(ctx, scratch, verify)
	if err := errors.Join(err, b.fs.RemoveAll(scratch)); err != nil {
		return Manifest{}, fmt.Errorf("pebblex: the backup in %s is not good, remove it: %w", b.dir, err)
	}
	b.m.Log = log
	data, err := b.m.encode()
	if err == nil {
		err = b.m.check()
	}
	if err != nil {
		return Manifest{}, err
	}
	if err := ctx.Err(); err != nil {
		return Manifest{}, err
	}
	return b.m, WriteFile(b.fs, b.fs.PathJoin(b.dir, ManifestName), data, 0o600)
}

func (b *Backup) verify(ctx context.Context, scratch string, verify func(dir string) (*BackupLog, error)) (*BackupLog, error) {
	if err := b.m.copyTo(ctx, b.fs, b.dir, scratch, true); err != nil {
		return nil, err
	}
	return verify(scratch)
}

// syncDirs makes all names in the backup durable.
func (b *Backup) syncDirs() error {
	for _, rel := range slices.Backward(b.m.Dirs) {
		if err := SyncDir(b.fs, b.Path(rel)); err != nil {
			return err
		}
	}
	return SyncDir(b.fs, b.dir)
}
