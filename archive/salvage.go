package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/pebblex"
)

// relic is what can be read of a damaged archive without opening it: the salvage
// of its store, the skeleton and the key.
type relic struct {
	c        Config
	store    *pebblex.Salvage
	identity identity        // who it is: lineage, key and signer
	bones    *skeletonReader // nil if there is no skeleton at all
	damages  []string
}

func (r *relic) damage(format string, args ...any) {
	r.damages = append(r.damages, fmt.Sprintf(format, args...))
}

func (r *relic) close() error {
	if r.bones == nil {
		return nil
	}
	return r.bones.file.Close()
}

// openRelic reads what is left. It fails if that does not tell which archive it
// is, or is another.
func openRelic(ctx context.Context, c Config) (*relic, error) {
	store, err := pebblex.OpenSalvage(ctx, c.FS, c.storeDir())
	if err != nil {
		return nil, fmt.Errorf("archive: repair %s: %w", c.Dir, err)
	}
	r := &relic{c: c, store: store}
	for _, d := range store.Damages() {
		r.damage("%v", d)
	}
	if err := r.identify(); err != nil {
		return nil, err
	}
	if r.bones, err = r.openBones(); err != nil {
		return nil, err
	}
	return r, nil
}

// openBones opens the skeleton, whatever its header says: every entry has a
// checksum of its own.
func (r *relic) openBones() (*skeletonReader, error) {
	f, err := r.c.FS.Open(r.c.skeletonPath())
	if errors.Is(err, os.ErrNotExist) {
		r.damage("%s: missing", r.c.skeletonPath())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("archive: the skeleton: %w", err)
	}
	s := &skeletonReader{file: f}
	if err := s.begin(); errors.Is(err, errSkeleton) {
		r.damage("%s: %v", r.c.skeletonPath(), err)
	} else if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// bone returns the skeleton's entry of a record, if it has a whole one.
func (r *relic) bone(seq uint64) (bone, bool) {
	if r.bones == nil {
		return bone{}, false
	}
	e, err := r.bones.entry(r.identity.lineage.records(seq) - 1)
	return e, err == nil && e.seq == seq
}

// lastBone is the highest number that the skeleton names.
func (r *relic) lastBone() uint64 {
	last := uint64(0)
	if r.bones == nil {
		return last
	}
	for i := range r.bones.entries {
		if e, err := r.bones.entry(i); err == nil && e.seq > last {
			last = e.seq
		}
	}
	return last
}

// each calls f for the salvaged keys with a first byte.
func (r *relic) each(ctx context.Context, prefix byte, f func(e pebblex.Salvaged) error) error {
	for e, err := range r.store.Range(prefixBounds(prefix)) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = f(e)
		}
		if err != nil {
			return fmt.Errorf("archive: repair %s: %w", r.c.Dir, err)
		}
	}
	return nil
}

// versions returns all values of a key: damage may have made several.
func versions(e pebblex.Salvaged) [][]byte {
	all := [][]byte{e.Value}
	for _, v := range e.Others {
		all = append(all, v.Value)
	}
	return all
}

// relicFrame is a record, or a stub, that was salvaged and verified.
type relicFrame struct {
	*frame
	raw []byte
}

// frames returns what can be believed of a salvaged log entry.
func (r *relic) frames(e pebblex.Salvaged) (good []relicFrame) {
	seq, ok := logSeq(e.Key)
	for _, raw := range versions(e) {
		f, err := decodeFrame(raw)
		if err == nil && !f.lost {
			rec := f.record()
			err = f.verify(&rec)
		}
		if err == nil && (!ok || f.Seq != seq || f.ArchiveID != string(r.c.ID) || !f.canonical(raw)) {
			err = fmt.Errorf("%w: it says that it is seq %d of %q", errFrame, f.Seq, f.ArchiveID)
		}
		if err != nil {
			r.damage("%s: log entry %x: %v", e.Source, e.Key, err)
			continue
		}
		good = append(good, relicFrame{f, raw})
	}
	return good
}

// leafHashes steps through the leaf hashes that are left in commit rows.
type leafHashes struct {
	next func() (pebblex.Salvaged, error, bool)
	stop func()
	log  lineage
	row  commitRow
	end  bool
}

func (r *relic) leafHashes() *leafHashes {
	next, stop := iter.Pull2(r.store.Range(prefixBounds(prefixCommit)))
	return &leafHashes{next: next, stop: stop, log: r.identity.lineage}
}

// at returns the hash of the leaf in a place of the generation with an index, if
// its commit row is left. Places are asked for in their order.
func (l *leafHashes) at(index int, place uint64) (h tlog.Hash, ok bool, err error) {
	for !l.end && l.row.last < place {
		e, err, more := l.next()
		if err != nil {
			return tlog.Hash{}, false, err
		}
		l.end = !more
		last, known := keySeq(prefixCommit, e.Key)
		for _, v := range versions(e) {
			if row, err := decodeCommit(last, v); known && err == nil {
				l.row = row
				break
			}
		}
	}
	base := l.log[index].base()
	if place < l.row.first || place > l.row.last || l.row.first < base {
		return tlog.Hash{}, false, nil
	}
	at := tlog.StoredHashIndex(0, int64(place-base)) - tlog.StoredHashCount(int64(l.row.first-base))
	if at < 0 || at >= int64(len(l.row.hashes)) {
		return tlog.Hash{}, false, nil
	}
	return l.row.hashes[at], true, nil
}
