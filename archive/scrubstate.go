package archive

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// scrubVersion is that of the scrub's file. A scrub that meets another one begins
// anew, which costs reads and loses nothing.
const scrubVersion = 1

const (
	maxScrubFile = 4 << 20 // bytes
	scrubPerm    = 0o600
	// maxKept bounds the damages of a pass that are kept after it.
	maxKept = 20
)

// ScrubPass sums up a pass.
type ScrubPass struct {
	Began   int64     `json:"beganUnixMs"`
	Ended   int64     `json:"endedUnixMs"` // 0: not yet
	Records uint64    `json:"records"`
	Files   uint64    `json:"files"`
	Bytes   int64     `json:"bytes"`
	Found   uint64    `json:"found"`
	Damages uint64    `json:"damages"`
	First   string    `json:"first,omitzero"` // damage, in words
	Kept    []Finding `json:"kept,omitempty"` // the first damages
}

func passOf(r *CheckReport) ScrubPass {
	p := ScrubPass{Began: r.Began, Ended: r.Ended, Records: r.Records, Files: r.Files, Bytes: r.Bytes, Found: r.Found, Damages: r.Damages}
	for _, f := range r.Findings {
		if !f.Damage || len(p.Kept) == maxKept {
			continue
		}
		if p.First == "" {
			p.First = f.What
		}
		p.Kept = append(p.Kept, f)
	}
	return p
}

// scrubState is what a scrub remembers, in JSON.
type scrubState struct {
	Version    int             `json:"version"`
	ArchiveID  wire.ArchiveID  `json:"archiveId"`
	Generation int             `json:"generation"`
	Passes     uint64          `json:"passes"`
	Last       *ScrubPass      `json:"last,omitempty"`
	Position   json.RawMessage `json:"position,omitempty"`

	position *position // Position, ready to be used
}

// resume makes Position ready to be used. One of version 1 can not be gone on
// from; what its pass has found stays, beside what the last one found.
func (s *scrubState) resume() error {
	head, err := wire.Decode[struct {
		Version int         `json:"version"`
		Report  CheckReport `json:"report"`
	}](s.Position)
	if err != nil {
		return err
	}
	if head.Version == 1 {
		if head.Report.Damages > 0 {
			pass := passOf(&head.Report)
			if last := s.Last; last != nil {
				pass.Kept, pass.First = append(last.Kept, pass.Kept...), cmp.Or(last.First, pass.First)
				pass.Found, pass.Damages = pass.Found+last.Found, pass.Damages+last.Damages
			}
			s.Last = &pass
		}
		return nil
	}
	p, err := wire.Decode[position](s.Position)
	if err != nil {
		return err
	}
	s.position, err = p.ready()
	return err
}

// next returns when the next pass may begin.
func (s *scrubState) next(every time.Duration) time.Time {
	if s.Last == nil || s.position != nil {
		return time.Time{}
	}
	return time.UnixMilli(s.Last.Began).Add(every)
}

// complete ends the pass under way.
func (s *scrubState) complete() {
	pass := passOf(&s.position.Report)
	s.Passes, s.Last, s.position = s.Passes+1, &pass, nil
}

// damages returns the damages that are remembered.
func (s *scrubState) damages() (list []Finding) {
	if s.Last != nil {
		list = append(list, s.Last.Kept...)
	}
	if s.position != nil {
		list = append(list, s.position.Report.Findings...)
	}
	return list
}

func (c Config) scrubPath() string { return c.FS.PathJoin(c.Dir, "scrub.json") }

// loadScrub reads what a scrub remembered. What can not be used, or is of another
// log, is as if it was not there.
func (n *Node) loadScrub() (*scrubState, error) {
	none := &scrubState{Version: scrubVersion, ArchiveID: n.cfg.ID, Generation: n.identity.generation}
	data, err := pebblex.ReadFile(n.cfg.FS, n.cfg.scrubPath(), maxScrubFile)
	if errors.Is(err, os.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return nil, fmt.Errorf("archive: the place of the scrub: %w", err)
	}
	s, err := wire.Decode[scrubState](data)
	if err == nil && s.Position != nil {
		err = s.resume()
	}
	switch {
	case err != nil:
	case s.Version != scrubVersion || s.ArchiveID != n.cfg.ID || s.Generation != n.identity.generation:
		err = fmt.Errorf("version %d of generation %d of archive %q", s.Version, s.Generation, s.ArchiveID)
	case s.position != nil && (s.position.End > n.durable.Load() || s.position.Generation >= len(n.identity.lineage)):
		err = fmt.Errorf("it is of a log that ends at seq %d", s.position.End)
	}
	if err != nil {
		n.cfg.Log.Warn("the place of the scrub can not be used; it begins anew", "err", err)
		return none, nil
	}
	return &s, nil
}

// saveScrub writes what a scrub remembers.
func (n *Node) saveScrub(s *scrubState) error {
	s.Position = nil
	var err error
	if s.position != nil {
		if s.Position, err = wire.Encode(s.position.stored()); err != nil {
			return fmt.Errorf("archive: encode the place of the scrub: %w", err)
		}
	}
	data, err := wire.Encode(s)
	if err != nil {
		return fmt.Errorf("archive: encode the place of the scrub: %w", err)
	}
	if err := pebblex.WriteFile(n.cfg.FS, n.cfg.scrubPath(), data, scrubPerm); err != nil {
		return fmt.Errorf("archive: the place of the scrub: %w", err)
	}
	return nil
}

// rememberCheck makes a check that was complete the last pass of the scrub.
func (n *Node) rememberCheck(r *CheckReport) {
	s, err := n.loadScrub()
	if err == nil {
		pass := passOf(r)
		s.Passes, s.Last, s.position = s.Passes+1, &pass, nil
		err = n.saveScrub(s)
	}
	if err != nil {
		n.cfg.Log.Warn("the outcome of the check could not be written", "err", err)
	}
}

// Metrics returns the scrub's collectors.
func (s *Scrub) Metrics() []prometheus.Collector {
	all := []prometheus.Collector{s.read, s.failed}
	for _, g := range []struct {
		name, help string
		value      func(ScrubStatus) float64
	}{
		{"age_seconds", "Time since a pass last ended; before the first, since the archive was made.", func(st ScrubStatus) float64 {
			at := s.n.identity.created
			if st.Last != nil {
				at = time.UnixMilli(st.Last.Ended)
			}
			return time.Since(at).Seconds()
		}},
		{"passes", "Passes that were completed, ever.", func(st ScrubStatus) float64 { return float64(st.Passes) }},
		{"records", "Records that the pass under way has checked.", func(st ScrubStatus) float64 { return float64(st.Current.Records) }},
		{"files", "Files that the pass under way has read.", func(st ScrubStatus) float64 { return float64(st.Current.Files) }},
		{"damages", "Damages that the pass under way and the one before it found: an operator must look.", func(st ScrubStatus) float64 {
			n := st.Current.Damages
			if st.Last != nil {
				n = max(n, st.Last.Damages)
			}
			return float64(n)
		}},
		{"phase", "What the pass is at: 1 the tables of the records, 2 those of the files' index, 3 the log, 4 its index, 5 the bytes of files, 0 waiting for the next pass.", func(st ScrubStatus) float64 {
			return float64(phaseNumbers[st.Phase])
		}},
	} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verae_scrub_" + g.name, ConstLabels: prometheus.Labels{"archive": string(s.n.cfg.ID)}, Help: g.help,
		}, func() float64 { return g.value(s.Status()) }))
	}
	return all
}

var phaseNumbers = map[string]int{phaseTables: 1, phaseFileTables: 2, phaseLog: 3, phaseIndex: 4, phaseFiles: 5, phaseRows: 5}
