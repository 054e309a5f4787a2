package receipts

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// SampleEvery is of how many gatherings one asks an archive that has nothing by
// its mirror, to see whether the mirror is right.
const SampleEvery = 1000

// Mirrors know of archives that they surely have nothing for a tenant. Their
// methods may be called from many goroutines and must not block.
type Mirrors interface {
	// Silent returns those of archives that surely have nothing under digest which
	// tenant may see, of all that was acknowledged when it is called. The list
	// given may be kept.
	Silent(tenant wire.TenantID, digest wire.Digest, archives []wire.ArchiveID) []Silence

	// Contradicted tells that an archive showed a record which its mirror denied.
	// Nothing that any mirror said can be trusted then.
	Contradicted(s Silence, record wire.RecordID)
}

// Silence is the word of a mirror that an archive has nothing.
type Silence = mirror.Silence

// silence enters of which archives the mirrors know that they have nothing, and
// returns the others, which are to answer: those without a mirror that may be
// trusted now, those that may have something, and those whose word means nothing.
// Which they are depends on what the caller may see and on nothing else.
func (g *Gatherer) silence(run *gathering) (named []wire.ArchiveID) {
	var silent []*answer
	for _, s := range g.silent(run) {
		if a := run.answers[s.ID]; a != nil && !a.doubted && a.silence == nil && run.speaks(s.ID, s.Boot) {
			a.silence, a.believed = &s, true
			run.settle(a)
			silent = append(silent, a)
		}
	}
	run.silent = len(silent)
	g.sample(run, silent)
	for _, id := range run.expected {
		if !run.answers[id].closed {
			named = append(named, id)
		}
	}
	return named
}

// silent asks the mirrors about all archives whose word counts.
func (g *Gatherer) silent(run *gathering) []Silence {
	if g.Mirrors == nil {
		return nil
	}
	believed := slices.DeleteFunc(slices.Clone(run.expected), func(id wire.ArchiveID) bool { return run.answers[id].doubted })
	return g.Mirrors.Silent(run.tenant, run.digest, believed)
}

// sample has one of the silent archives asked as well, now and then. The dice are
// nobody's: who could tell when it is, or bring it about, could lie in between.
func (g *Gatherer) sample(run *gathering, silent []*answer) {
	hit := rand.IntN(cmp.Or(g.SampleEvery, SampleEvery)) == 0
	if hit && len(silent) > 0 {
		a := silent[rand.IntN(len(silent))]
		a.sampled = true
		run.settle(a)
		g.meter().sampled.Inc()
	}
}

// compare holds a record that an archive showed, its seq being of that archive,
// against what its mirror said. Once one mirror was wrong none is believed, and
// the gathering waits for all archives.
func (g *gathering) compare(a *answer, boot string, seq uint64, record wire.RecordID) {
	if a.silence == nil || a.silence.Boot != boot || seq > a.silence.Seq {
		return // what came after the question was put need not be known
	}
	g.contradicted(*a.silence, record)
	a.silence = nil // told once
	for _, other := range g.answers {
		other.believed = false
		g.settle(other)
	}
}
