package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// CodeFileLost is the code of a file whose bytes are known to be lost here.
const CodeFileLost = "FILE_LOST"

// The list of lost files stands beside the store. Repair adds to it and nothing
// is taken off: who reads it looks whether the bytes are here again. Without it
// a lost file is a damage again, and no other harm is done.
const (
	lostFilesHead = "verae lost files 1"
	lostFilesSum  = "sum "
	maxLostFiles  = 64 << 20 // bytes
)

func (c Config) lostFilesPath() string { return c.FS.PathJoin(c.Dir, "lost-files") }

// lostFile is a file of which no archive that was asked had the bytes.
type lostFile struct {
	sha256 wire.Digest
	record wire.RecordID // the first that names it
	at     wire.Time     // when that was found
}

func encodeLostFiles(list []lostFile) []byte {
	var b strings.Builder
	fmt.Fprintln(&b, lostFilesHead)
	for _, f := range list {
		fmt.Fprintln(&b, f.sha256, f.record, f.at)
	}
	sum := sha256.Sum256([]byte(b.String()))
	fmt.Fprintln(&b, lostFilesSum+hex.EncodeToString(sum[:]))
	return []byte(b.String())
}

// decodeLostFiles reads what encodeLostFiles has written, and nothing else.
func decodeLostFiles(data []byte) (list []lostFile, err error) {
	lines := strings.Split(string(data), "\n")
	if len(lines) < 3 {
		return nil, errors.New("it ends early")
	}
	for _, line := range lines[1 : len(lines)-2] {
		words := strings.Split(line, " ")
		if len(words) != 3 {
			return nil, fmt.Errorf("the line %q", line)
		}
		var f lostFile
		if f.sha256, err = wire.ParseDigest(words[0]); err != nil {
			return nil, err
		}
		if f.record, err = wire.ParseRecordID(words[1]); err != nil {
			return nil, err
		}
		f.at = wire.Time(words[2])
		list = append(list, f)
	}
	if !bytes.Equal(encodeLostFiles(list), data) {
		return nil, errors.New("its sum is not that of its lines")
	}
	return list, nil
}

// readLostFiles returns the files that are known to be lost; none if there is no
// list.
func readLostFiles(c Config) ([]lostFile, error) {
	data, err := pebblex.ReadFile(c.FS, c.lostFilesPath(), maxLostFiles)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var list []lostFile
	if err == nil {
		list, err = decodeLostFiles(data)
	}
	if err != nil {
		return nil, fmt.Errorf("archive: the list of lost files %s: %w", c.lostFilesPath(), err)
	}
	return list, nil
}

// addLostFiles adds files to the list. A list that can not be read is replaced:
// a repair has just found all that are lost.
func addLostFiles(c Config, more []lostFile) error {
	list, err := readLostFiles(c)
	was := len(list)
	for _, f := range more {
		if !slices.ContainsFunc(list, func(have lostFile) bool { return have.sha256 == f.sha256 }) {
			list = append(list, f)
		}
	}
	if len(list) == was && err == nil {
		return nil
	}
	if err := pebblex.WriteFile(c.FS, c.lostFilesPath(), encodeLostFiles(list), markPerm); err != nil {
		return fmt.Errorf("archive: the list of lost files: %w", err)
	}
	return nil
}

// goneFiles are the files of an archive that are known to be lost.
type goneFiles struct {
	all map[[digestLen]byte]lostFile // never changes while the archive is open

	mu   sync.Mutex // guards open
	open map[[digestLen]byte]struct{}
}

// findLostFiles reads which files are known to be lost, and looks which of them
// are here again. A list that can not be read is none.
func (n *Node) findLostFiles() {
	list, err := readLostFiles(n.cfg)
	if err != nil {
		n.cfg.Log.Error("what is lost is taken for damage", "err", err)
	}
	if len(list) == 0 {
		return
	}
	g := &n.lost.files
	g.all, g.open = map[[digestLen]byte]lostFile{}, map[[digestLen]byte]struct{}{}
	for _, f := range list {
		g.all[f.sha256], g.open[f.sha256] = f, struct{}{}
	}
	n.lost.count.Add(uint64(len(g.open)))
	if n.cfg.Files != nil {
		n.cfg.Files = knownFiles{n.cfg.Files, n}
	}
	for _, f := range list {
		n.regained(context.Background(), f.sha256)
	}
	n.cfg.Log.Warn("files are known to be lost", "listed", len(g.all), "missing", len(n.stillLost()))
}

// knows reports whether a file was ever found to be lost.
func (g *goneFiles) knows(sha256 [digestLen]byte) bool {
	_, known := g.all[sha256]
	return known
}

// FileLost reports whether the bytes of a file are known to be lost here: no
// archive that a repair asked had them, and they have not come since.
func (n *Node) FileLost(sha256 [32]byte) bool {
	g := &n.lost.files
	g.mu.Lock()
	defer g.mu.Unlock()
	_, lost := g.open[sha256]
	return lost
}

// stillLost returns the lost files that are not here.
func (n *Node) stillLost() (list []lostFile) {
	g := &n.lost.files
	g.mu.Lock()
	defer g.mu.Unlock()
	for sha256 := range g.open {
		list = append(list, g.all[sha256])
	}
	return list
}

// regained takes a file out of the count if its bytes are here.
func (n *Node) regained(ctx context.Context, sha256 [digestLen]byte) {
	if !n.FileLost(sha256) || n.cfg.Files == nil {
		return
	}
	if there, err := n.cfg.Files.Holds(ctx, sha256); err != nil || !there {
		return
	}
	g := &n.lost.files
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, lost := g.open[sha256]; lost {
		delete(g.open, sha256)
		n.lost.count.Add(^uint64(0))
		n.cfg.Log.Info("a file that was lost is here again", "sha256", wire.Digest(sha256))
	}
}

// watchLostFiles looks every minute whether lost files were sent again, until
// none is lost or ctx ends.
func (n *Node) watchLostFiles(ctx context.Context) {
	for lost := n.stillLost(); len(lost) > 0 && sleep(ctx, lostFilesEvery); lost = n.stillLost() {
		for _, f := range lost {
			n.regained(ctx, f.sha256)
		}
	}
}

const lostFilesEvery = time.Minute

// knownFiles are the files of an archive some of which are known to be lost: of
// those it is said that they are, whatever is left of them.
type knownFiles struct {
	Files
	n *Node
}

func (k knownFiles) lost(err error, sha256 [32]byte) error {
	if (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt)) && k.n.FileLost(sha256) {
		return fault.New(fault.Corrupt, CodeFileLost, "archive: the bytes of file %x are lost: no archive that was asked had them; what is known of it is kept: %w", sha256, err)
	}
	return err
}

// Blocks is Files.Blocks.
func (k knownFiles) Blocks(ctx context.Context, sha256 [32]byte, cid string) ([][32]byte, error) {
	blocks, err := k.Files.Blocks(ctx, sha256, cid)
	return blocks, k.lost(err, sha256)
}

// Size is Files.Size.
func (k knownFiles) Size(ctx context.Context, sha256 [32]byte, cid string) (int64, error) {
	size, err := k.Files.Size(ctx, sha256, cid)
	return size, k.lost(err, sha256)
}

// Has is what a store may know of damage: see Node.hasFile.
func (k knownFiles) Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error) {
	if s, ok := k.Files.(interface {
		Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error)
	}); ok {
		return s.Has(ctx, sha256, cid)
	}
	return true, nil // its length was right
}
