package archive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"github.com/verae/archive/internal/pebblex"
)

// The generation rows stand in a file of their own beside the store too: without
// them no later generation can be proved, whatever else is left.
const (
	lineageMagic   = "VRGN"
	lineageVersion = 1
	lineageHeader  = 16 // bytes: magic, version, zeros
	maxLineageFile = 16 << 20
)

func (c Config) lineagePath() string { return c.FS.PathJoin(c.Dir, "generations") }

// encode returns the file of the generations: each with its number and the
// length of its row.
func (l lineage) encode() ([]byte, error) {
	b := make([]byte, lineageHeader)
	copy(b, lineageMagic)
	b[len(lineageMagic)] = lineageVersion
	for _, g := range l {
		row, err := g.encode()
		if err != nil {
			return nil, err
		}
		b = binary.BigEndian.AppendUint32(b, uint32(g.Generation))
		b = binary.BigEndian.AppendUint32(b, uint32(len(row)))
		b = append(b, row...)
	}
	return b, nil
}

// decodeLineage reads the file of the generations. With an error it returns what
// stands before the damage: every row has a checksum of its own.
func decodeLineage(b []byte) (log lineage, err error) {
	head, _ := lineage{}.encode()
	if !bytes.HasPrefix(b, head) {
		return nil, fmt.Errorf("%w: header %x", errGeneration, b[:min(len(b), lineageHeader)])
	}
	for b = b[lineageHeader:]; len(b) > 0; {
		if len(b) < 8 || uint64(len(b)-8) < uint64(binary.BigEndian.Uint32(b[4:])) {
			return log, fmt.Errorf("%w: the file ends in a row", errGeneration)
		}
		number, size := binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[4:]))
		g, err := decodeGeneration(int(number), b[8:8+size])
		if err != nil {
			return log, err
		}
		log, b = append(log, g), b[8+size:]
	}
	return log, nil
}

func writeLineageFile(c Config, log lineage) error {
	data, err := log.encode()
	if err != nil {
		return err
	}
	if err := pebblex.WriteFile(c.FS, c.lineagePath(), data, markPerm); err != nil {
		return fmt.Errorf("archive: the generations: %w", err)
	}
	return nil
}

func readLineageFile(c Config) (lineage, error) {
	data, err := pebblex.ReadFile(c.FS, c.lineagePath(), maxLineageFile)
	if err != nil {
		return nil, fmt.Errorf("archive: the generations: %w", err)
	}
	return decodeLineage(data)
}

// keepLineage writes the file of the generations anew if it is not what the store
// has, which was held against the mark.
func (n *Node) keepLineage() {
	got, err := readLineageFile(n.cfg)
	if err == nil && reflect.DeepEqual(got, n.identity.lineage) || n.health.readOnly() != nil {
		return
	}
	n.cfg.Log.Warn("the file of the generations is written anew", "path", n.cfg.lineagePath(), "err", err)
	if err := writeLineageFile(n.cfg, n.identity.lineage); err != nil {
		n.cfg.Log.Error("the file of the generations could not be written", "err", err)
	}
}

// addLineage adds the generations of the file that the store has lost.
func (r *relic) addLineage(log lineage) lineage {
	kept, err := readLineageFile(r.c)
	if err != nil {
		r.damage("%s: %v", r.c.lineagePath(), err)
	}
	for _, g := range kept {
		at, found := slices.BinarySearchFunc(log, g.Generation, func(have generation, number int) int { return have.Generation - number })
		switch {
		case !found:
			r.damage("%s: the row of generation %d is lost; %s has it", r.c.storeDir(), g.Generation, r.c.lineagePath())
			log = slices.Insert(log, at, g)
		case !reflect.DeepEqual(log[at], g):
			r.damage("%s: generation %d is not that of the store", r.c.lineagePath(), g.Generation)
		}
	}
	return log
}
