package archive

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/verae/archive/internal/fault"
)

// begin looks at what is small, once, before the log.
func (c *checker) begin() error {
	id := c.n.identity
	log, err := readLineage(c.n.db, c.n.cfg, id.generation, id.lineage.current().PublicKey)
	switch {
	case fault.Is(err, fault.Corrupt):
		c.found(Finding{Kind: FindingGeneration, What: err.Error(), Damage: true})
	case err != nil:
		return err
	case !reflect.DeepEqual(log, id.lineage):
		c.found(Finding{Kind: FindingGeneration, What: "the generation rows are not those that the archive was opened with", Damage: true})
	}
	kept, err := readLineageFile(c.n.cfg)
	if c.n.health.readOnly() == nil && !errors.Is(err, os.ErrNotExist) && (err != nil || !reflect.DeepEqual(kept, id.lineage)) {
		c.found(Finding{
			Kind: FindingGeneration, What: fmt.Sprintf("%s is not what the store has, which a start sets right: %v", c.n.cfg.lineagePath(), err),
			Damage: true, Repair: repairStart, Path: c.n.cfg.lineagePath(),
		})
	}
	return c.strangers()
}

// knownPrefixes are the first bytes of keys, sorted.
var knownPrefixes = []byte{prefixCommit, prefixGeneration, prefixIndex, prefixPut, prefixLost, prefixMeta, prefixLog, prefixTenant}

// strangers finds keys that are of no kind.
func (c *checker) strangers() error {
	from := []byte{0}
	for _, p := range append(knownPrefixes, 0xff) {
		it, err := c.n.iterate(from, []byte{p})
		if err != nil {
			return err
		}
		if it.First() {
			c.found(Finding{Kind: FindingIndex, What: fmt.Sprintf("key %x is of no kind", it.Key()), Damage: true})
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			c.unreadable(FindingStoreFile, fmt.Sprintf("keys from %x", from), err)
		}
		from = []byte{p + 1}
	}
	return nil
}

// unreadable notes that a part of the store can not be read.
func (c *checker) unreadable(kind, what string, err error) {
	c.found(Finding{Kind: kind, What: fmt.Sprintf("%s can not be read: %v", what, err), Damage: true})
}

// newPosition returns the beginning of a check of all that is durable now.
func (n *Node) newPosition() (*position, error) {
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.leave()
	p := &position{Version: positionVersion, Phase: phaseTables, Generation: -1}
	p.Report.begin()
	if n.keeper != nil { // the mark first: it never covers what is not durable
		p.Mark = positionMark{}.of(n.keeper.published.Load().treeHead)
	}
	p.End = n.durable.Load()
	p.begin()
	return p, nil
}
