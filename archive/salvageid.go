package archive

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"strconv"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// identify finds out which archive this is. The rows of the store say it, or
// what is left of them together with the mark and the key.
func (r *relic) identify() error {
	meta, log := map[string][]byte{}, lineage{}
	err := r.each(context.Background(), prefixMeta, func(e pebblex.Salvaged) error {
		meta[string(e.Key[1:])] = e.Value
		return nil
	})
	if err != nil {
		return err
	}
	err = r.each(context.Background(), prefixGeneration, func(e pebblex.Salvaged) error {
		number, ok := generationOf(e.Key)
		for _, v := range versions(e) {
			if g, err := decodeGeneration(number, v); ok && err == nil {
				log = append(log, g)
				return nil
			}
		}
		r.damage("%s: generation row %x can not be read", e.Source, e.Key)
		return nil
	})
	if err != nil {
		return err
	}
	log = r.addLineage(log)
	if got, ok := meta[metaLayout]; ok && string(got) != strconv.Itoa(layoutVersion) {
		return fault.New(fault.Conflict, "LAYOUT", "archive: repair %s: the store has layout %q, this program repairs %d; repair it with the version that wrote it", r.c.Dir, got, layoutVersion)
	}
	if got, ok := meta[metaArchive]; ok && string(got) != string(r.c.ID) {
		return fault.New(fault.Conflict, "ARCHIVE_ID", "archive: repair %s: it holds the archive %q, not %q; give the right directory or id", r.c.Dir, got, r.c.ID)
	}
	key, err := readKeyFile(r.c)
	if err != nil {
		return fault.New(fault.Corrupt, CodeKeyLost,
			"archive: repair %s: the archive's key is lost, and with it nothing can be signed as this archive: put %s back; or, if it is lost for good and the file is not there, `archived backup` copies all the rest, and `archived restore` makes a new generation of that: %w",
			r.c.Dir, r.c.keyPath(), err)
	}
	if log, err = r.current(log, meta, key); err != nil {
		return err
	}
	r.identity, err = identity{generation: log.current().Generation, key: key, lineage: log}.withSigner()
	return err
}

// current completes the generations, so that the last is the one of the key. A
// first generation can be told from its number alone; a later one is a leaf of
// its own log, and without its row nothing of that can be proved.
func (r *relic) current(log lineage, meta map[string][]byte, key ed25519.PrivateKey) (lineage, error) {
	public, _ := key.Public().(ed25519.PublicKey)
	newest := r.markGeneration(public)
	if n, err := strconv.Atoi(string(meta[metaGeneration])); err == nil {
		newest = max(newest, n)
	}
	if len(log) > 0 {
		newest = max(newest, log.current().Generation)
	}
	switch {
	case len(log) > 0 && log.current().Generation == newest && log[0].Generation == firstGeneration:
	case newest == firstGeneration && len(log) == 0:
		r.damage("%s: the identity is lost, and is made again from the key and the mark", r.c.storeDir())
		first := generation{
			Version: generationVersion, ArchiveID: string(r.c.ID), Generation: firstGeneration, PublicKey: public,
			FirstSeq: 1, CreatedAt: r.c.Now().UnixNano(),
		}
		if at, ok := wire.Time(meta[metaCreated]).Instant(); ok {
			first.CreatedAt = at.UnixNano()
		}
		log = lineage{first}
	default:
		return nil, fault.New(fault.Corrupt, "GENERATION_LOST",
			"archive: repair %s: the row of generation %d is lost, and the log of that generation can not be proved without it: %s", r.c.Dir, newest, instead)
	}
	if err := log.check(r.c.ID); err != nil {
		return nil, fault.New(fault.Corrupt, "GENERATION_LOST", "archive: repair %s: %w; %s", r.c.Dir, err, instead)
	}
	if !public.Equal(ed25519.PublicKey(log.current().PublicKey)) {
		return nil, fault.New(fault.Conflict, "KEY", "archive: repair %s: %s is not the key of generation %d; put the right one back", r.c.Dir, r.c.keyPath(), newest)
	}
	return log, nil
}

// markGeneration returns the generation whose checkpoint the mark is, if it was
// signed with the key; else 0.
func (r *relic) markGeneration(public ed25519.PublicKey) int {
	signed, err := pebblex.ReadFile(r.c.FS, r.c.markPath(), maxMarkFile)
	if err != nil {
		return 0
	}
	origin, _, _ := bytes.Cut(signed, []byte("\n"))
	number, ok := bytes.CutPrefix(origin, []byte(string(r.c.ID)+"/g"))
	verifier, err := tlogx.NewVerifier(string(origin), public)
	if !ok || err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(number))
	if _, sigErr := tlogx.OpenCheckpoint(signed, verifier); sigErr != nil || err != nil {
		return 0
	}
	return n
}
