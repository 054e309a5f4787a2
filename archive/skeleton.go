package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// The skeleton of the log is a file outside the store: the envelope and id of
// every record, so that after the loss of the store's tail it is known what is
// missing, can be asked of others by id, gets back its frame and proves its leaf.
const (
	skeletonMagic   = "VRLV"
	skeletonVersion = 1
	skeletonHeader  = 16 // bytes: magic, version, zeros
	boneLen         = 8 + 8 + digestLen + putIDLen + 4
)

// bone is an entry of the skeleton.
type bone struct {
	seq      uint64
	storedAt int64
	id       wire.RecordID
	putID    putKey // zero: none
}

func skeletonHead() []byte {
	head := make([]byte, skeletonHeader)
	copy(head, skeletonMagic)
	head[len(skeletonMagic)] = skeletonVersion
	return head
}

func (e bone) append(b []byte) []byte {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, e.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.storedAt))
	b = append(b, e.id[:]...)
	b = append(b, e.putID[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

var errSkeleton = errors.New("damaged skeleton")

func checkSkeletonHead(b []byte) error {
	if string(b) != string(skeletonHead()) {
		return fmt.Errorf("%w: header %x", errSkeleton, b)
	}
	return nil
}

// decodeBone reads an entry of boneLen bytes.
func decodeBone(b []byte) (bone, error) {
	if len(b) != boneLen {
		return bone{}, fmt.Errorf("%w: an entry of %d bytes", errSkeleton, len(b))
	}
	if crc32.Checksum(b[:boneLen-4], castagnoli) != binary.BigEndian.Uint32(b[boneLen-4:]) {
		return bone{}, fmt.Errorf("%w: wrong checksum", errSkeleton)
	}
	e := bone{
		seq: binary.BigEndian.Uint64(b), storedAt: int64(binary.BigEndian.Uint64(b[8:])),
		id: wire.RecordID(b[16 : 16+digestLen]), putID: putKey(b[16+digestLen:]),
	}
	if e.seq == 0 {
		return bone{}, fmt.Errorf("%w: seq 0", errSkeleton)
	}
	return e, nil
}

// namedBones is how many lost records an error names.
const namedBones = 5

func (c Config) skeletonPath() string { return c.FS.PathJoin(c.Dir, "leaves") }

// skeleton is the file, open for writing when it is first needed: a full disk
// must not keep an archive from being opened.
type skeleton struct {
	fs      vfs.FS
	path    string
	lineage lineage
	file    vfs.File // nil before the first write
	rebuild bool     // what is there is damaged: write it anew from the log
}

// offset returns where the entry of a record stands.
func (s *skeleton) offset(seq uint64) int64 {
	return skeletonHeader + int64(s.lineage.records(seq)-1)*boneLen
}

// write makes bones, in the order of seq, durable. Entries that are there are
// written again with the same content, or were never whole. all calls a function
// for every record that is to be in a skeleton built anew; bones are then among
// them.
func (s *skeleton) write(bones []bone, all func(func(bone) error) error) error {
	if s.rebuild {
		if err := s.build(all); err != nil {
			return err
		}
		s.rebuild = false
	}
	if len(bones) == 0 {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	return errors.Join(s.put(bones), s.sync())
}

func (s *skeleton) open() error {
	if s.file != nil {
		return nil
	}
	f, err := s.fs.OpenReadWrite(s.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	s.file = f
	return nil
}

// put writes entries, those that stand side by side at once.
func (s *skeleton) put(bones []bone) error {
	for len(bones) > 0 {
		n := 1
		for n < len(bones) && s.offset(bones[n].seq) == s.offset(bones[n-1].seq)+boneLen {
			n++
		}
		b := make([]byte, 0, n*boneLen)
		for _, e := range bones[:n] {
			b = e.append(b)
		}
		if _, err := s.file.WriteAt(b, s.offset(bones[0].seq)); err != nil {
			return fmt.Errorf("archive: the skeleton: %w", err)
		}
		bones = bones[n:]
	}
	return nil
}

func (s *skeleton) sync() error {
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	return nil
}

// build writes the file anew.
func (s *skeleton) build(all func(func(bone) error) error) error {
	if err := s.close(); err != nil {
		return err
	}
	if err := pebblex.WriteFile(s.fs, s.path, skeletonHead(), markPerm); err != nil {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	if err := s.open(); err != nil {
		return err
	}
	const chunk = 1 << 12
	var bones []bone
	err := all(func(e bone) error {
		if bones = append(bones, e); len(bones) < chunk {
			return nil
		}
		defer func() { bones = bones[:0] }()
		return s.put(bones)
	})
	if err != nil {
		return err
	}
	return errors.Join(s.put(bones), s.sync())
}

// close lets go of the file, which may be written again.
func (s *skeleton) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	if err != nil {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	return nil
}

// skeletonReader reads a skeleton.
type skeletonReader struct {
	file    vfs.File
	entries uint64 // how many have room in it
}

// openSkeleton opens a skeleton for reading. The caller closes it. An error that
// is errSkeleton means that it can be built anew.
func openSkeleton(c Config) (*skeletonReader, error) {
	f, err := c.FS.Open(c.skeletonPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errSkeleton, err)
	}
	if err != nil {
		return nil, fmt.Errorf("archive: the skeleton: %w", err)
	}
	r := &skeletonReader{file: f}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *skeletonReader) begin() error {
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	head := make([]byte, skeletonHeader)
	if _, err := r.file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("archive: the skeleton: %w", err)
	}
	r.entries = uint64(max(info.Size()-skeletonHeader, 0)) / boneLen
	return checkSkeletonHead(head)
}

// entry reads the entry with a number, from 0.
func (r *skeletonReader) entry(i uint64) (bone, error) {
	b := make([]byte, boneLen)
	if _, err := r.file.ReadAt(b, skeletonHeader+int64(i)*boneLen); err != nil {
		return bone{}, fmt.Errorf("%w: entry %d: %w", errSkeleton, i, err)
	}
	return decodeBone(b)
}

// readBones returns the first most records from a number on, as far as the
// skeleton has them. It is for people: what can not be read is left out.
func (n *Node) readBones(first, last uint64, most int) (bones []bone) {
	r, err := openSkeleton(n.cfg)
	if err != nil {
		return nil
	}
	defer func() { n.closeQuietly(r.file) }()
	from := n.identity.lineage.records(first - 1)
	for i := from; i < r.entries && len(bones) < most; i++ {
		if e, err := r.entry(i); err == nil && e.seq >= first && e.seq <= last {
			bones = append(bones, e)
		}
	}
	return bones
}

func (n *Node) closeQuietly(c io.Closer) {
	if err := c.Close(); err != nil {
		n.cfg.Log.Warn("close a file", "err", err)
	}
}

// checkSkeleton holds the skeleton against the log and the mark. It returns the
// records beyond the mark, for the keeper to write again; it refuses a log that
// ends before the skeleton does; and it has a skeleton built anew that does not
// reach the mark.
func (n *Node) checkSkeleton(m mark) (missing []bone, err error) {
	n.leaves = skeleton{fs: n.cfg.FS, path: n.cfg.skeletonPath(), lineage: n.identity.lineage}
	r, err := openSkeleton(n.cfg)
	if err == nil {
		defer func() { err = errors.Join(err, r.file.Close()) }()
		if err = n.checkBeyond(r); err == nil {
			err = n.checkAtMark(r, m)
		}
	}
	if errors.Is(err, errSkeleton) {
		n.cfg.Log.Warn("the skeleton is built anew from the log", "err", err)
		n.leaves.rebuild = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = n.bones(m.seq+1, func(e bone) error { missing = append(missing, e); return nil })
	return missing, err
}

// checkBeyond refuses a log that has less than the skeleton. An entry is written
// when its record is durable, so a whole one beyond the end tells of a loss, also
// in the time that the mark is behind.
func (n *Node) checkBeyond(r *skeletonReader) error {
	lost := uint64(0)
	for i := n.identity.lineage.records(n.tail.seq); i < r.entries; i++ {
		if e, err := r.entry(i); err == nil && e.seq > n.tail.seq {
			lost = e.seq
		}
	}
	if lost == 0 {
		return nil
	}
	return n.lostRecords(lost, fmt.Sprintf("%s names", n.cfg.skeletonPath()))
}

// checkAtMark compares the last entry under the mark with the log.
func (n *Node) checkAtMark(r *skeletonReader, m mark) error {
	count := n.identity.lineage.records(m.seq)
	if count == 0 {
		return nil
	}
	e, err := r.entry(count - 1)
	if err != nil {
		return err
	}
	return n.bones(e.seq, func(want bone) error {
		if e.seq > m.seq || e != want {
			return fmt.Errorf("%w: the entry of seq %d is not that of the log", errSkeleton, e.seq)
		}
		return errStop
	})
}

// errStop ends a walk early.
var errStop = errors.New("archive: enough")

// bones calls f for the records from a number on, until f returns an error;
// errStop is none.
func (n *Node) bones(from uint64, f func(bone) error) (err error) {
	_, end := prefixBounds(prefixLog)
	it, err := n.iterate(logKey(from), end)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		fr, err := decodeFrame(it.Value())
		if err != nil {
			return n.damaged("key %x: %w", it.Key(), err)
		}
		if fr.Seq > n.durable.Load() {
			return nil
		}
		if err := f(fr.bone()); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	return n.readError(it.Error())
}

// rebuildSkeleton calls f for every record, on the keeper's goroutine.
func (n *Node) rebuildSkeleton(f func(bone) error) error { return n.bones(0, f) }
