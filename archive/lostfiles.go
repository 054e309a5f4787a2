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

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// CodeFileLost is the code of a file whose bytes are known to be lost here.
const CodeFileLost = "FILE_LOST"

// The list of lost files stands beside the store. Repair adds to it, and a file
// whose bytes are here again is taken off: should they go missing again, that is a
// loss of its own. Without the list a lost file is a damage again, and no other
// harm is done.
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

// LostFiles returns the files whose bytes repairs have found to be lost, and that
// have not come since, of an archive that does not run. A list that can not be
// read is none: then its files are lost anew, or found.
func LostFiles(c Config) map[wire.Digest]bool {
	c, err := c.withDefaults()
	if err != nil {
		return nil
	}
	list, _ := readLostFiles(c) // Repair reports the error
	lost := map[wire.Digest]bool{}
	for _, f := range list {
		lost[f.sha256] = true
	}
	return lost
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
	return lostFiles(list).save(c)
}

// removeLostFiles takes all files but those that are still lost off the list.
func removeLostFiles(c Config, still map[[digestLen]byte]lostFile) error {
	list, err := readLostFiles(c)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(f lostFile) bool { _, lost := still[f.sha256]; return !lost })
	return lostFiles(list).save(c)
}

// lostFiles is a list of lost files.
type lostFiles []lostFile

// save makes it the list of an archive.
func (l lostFiles) save(c Config) error {
	if err := pebblex.WriteFile(c.FS, c.lostFilesPath(), encodeLostFiles(l), markPerm); err != nil {
		return fmt.Errorf("archive: the list of lost files: %w", err)
	}
	return nil
}

// goneFiles are the files of an archive that are known to be lost, and are not
// here.
type goneFiles struct {
	mu   sync.Mutex // guards open, and the list while the archive is open
	open map[[digestLen]byte]lostFile
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
	g.open = map[[digestLen]byte]lostFile{}
	for _, f := range list {
		g.open[f.sha256] = f
	}
	n.lost.count.Add(uint64(len(g.open)))
	if n.cfg.Files != nil {
		n.cfg.Files = knownFiles{n.cfg.Files, n}
	}
	n.regained(context.Background(), n.stillLost()...)
	n.cfg.Log.Warn("files are known to be lost", "listed", len(list), "missing", len(n.stillLost()))
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
	for _, f := range g.open {
		list = append(list, f)
	}
	return list
}

// regained takes lost files out of the count, and off the list, if their bytes are
// here.
func (n *Node) regained(ctx context.Context, lost ...lostFile) {
	if n.cfg.Files == nil {
		return
	}
	lost = slices.DeleteFunc(lost, func(f lostFile) bool {
		there, err := n.cfg.Files.Holds(ctx, f.sha256)
		return err != nil || !there
	})
	g := &n.lost.files
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.open)
	for _, f := range lost {
		if _, open := g.open[f.sha256]; open {
			delete(g.open, f.sha256)
			n.lost.count.Add(^uint64(0))
			n.cfg.Log.Info("a file that was lost is here again", "sha256", f.sha256)
		}
	}
	if len(g.open) == before {
		return
	}
	if err := removeLostFiles(n.cfg, g.open); err != nil { // the next start does it
		n.cfg.Log.Warn("what is here again is still listed as lost", "err", err)
	}
}

// regainedFile is regained for one file, which need not be lost.
func (n *Node) regainedFile(ctx context.Context, sha256 [digestLen]byte) {
	if n.FileLost(sha256) {
		n.regained(ctx, lostFile{sha256: sha256})
	}
}

// watchLostFiles looks every minute whether lost files were sent again, until
// none is lost or ctx ends.
func (n *Node) watchLostFiles(ctx context.Context) {
	for lost := n.stillLost(); len(lost) > 0 && sleep(ctx, lostFilesEvery); lost = n.stillLost() {
		n.regained(ctx, lost...)
	}
}

const lostFilesEvery = time.Minute
