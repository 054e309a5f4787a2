package archive

import (
	"errors"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// reconcileVersion is the version of the cursor's file. A reader that does not
// know a version begins anew, which costs questions and loses nothing.
const reconcileVersion = 1

// maxCursor bounds the cursor's file, in bytes.
const maxCursor = 16 << 10

// reconcileState is the cursor of a reconciliation as it is on disk, in JSON.
type reconcileState struct {
	Version  int                    `json:"version"`
	All      bool                   `json:"all"` // not only what this archive is the first-ranked holder of
	Progress wire.ReconcileProgress `json:"progress"`
}

func (r *Reconciler) path() string {
	return r.fs.PathJoin(r.cfg.Node.cfg.Dir, "reconcile.json")
}

// load reads the cursor. One that is not there or not readable means that there
// was no reconciliation.
func (r *Reconciler) load() reconcileState {
	none := reconcileState{Version: reconcileVersion, Progress: wire.ReconcileProgress{ArchiveID: r.cfg.Node.cfg.ID}}
	data, err := pebblex.ReadFile(r.fs, r.path(), maxCursor)
	if errors.Is(err, os.ErrNotExist) {
		return none
	}
	var s reconcileState
	if err == nil {
		s, err = wire.Decode[reconcileState](data)
	}
	if err == nil && (s.Version != reconcileVersion || s.Progress.ArchiveID != r.cfg.Node.cfg.ID) {
		err = fault.New(fault.Corrupt, "", "version %d of archive %q", s.Version, s.Progress.ArchiveID)
	}
	if err != nil {
		r.log.Warn("the cursor of the reconciliation can not be used; the next one begins anew", "err", err)
		return none
	}
	// The log may be a restored one that ends earlier.
	s.Progress.End = min(s.Progress.End, r.cfg.Node.Seq())
	return s
}

// save writes the cursor. It is worth a log line and no more if that fails: the
// reconciliation goes on, and would be repeated from an earlier place. mu is
// held.
func (r *Reconciler) save() {
	r.saved = r.cfg.Node.cfg.Now()
	data, err := wire.Encode(r.state)
	if err == nil {
		err = pebblex.WriteFile(r.fs, r.path(), data, 0o600)
	}
	if err != nil {
		r.log.Warn("the cursor of the reconciliation could not be written", "err", err)
	}
}

// maxProblemText bounds the text of a problem, in bytes.
const maxProblemText = 512

// problemOf tells an operator of an error.
func problemOf(err error) *wire.Problem {
	m := err.Error()
	if len(m) > maxProblemText {
		m = strings.ToValidUTF8(m[:maxProblemText], "") + "..."
	}
	return &wire.Problem{
		Code: fault.CodeOf(err), Kind: fault.KindOf(err).String(), Message: strings.ToValidUTF8(m, "?"),
		RetryAfterMs: fault.RetryAfter(err).Milliseconds(),
	}
}

// Metrics returns the reconciler's collectors, labelled with the archive's id.
func (r *Reconciler) Metrics() []prometheus.Collector {
	var all []prometheus.Collector
	for _, g := range []struct {
		name, help string
		value      func(wire.ReconcileProgress) float64
	}{
		{"running", "1 while a reconciliation runs.", func(p wire.ReconcileProgress) float64 { return gauge(p.Running) }},
		{"left", "Records that the reconciliation has still to look at.", func(p wire.ReconcileProgress) float64 { return float64(p.End - min(p.Seq, p.End)) }},
		{"missing", "Records with too few live copies, found by the last reconciliation or the one under way.", func(p wire.ReconcileProgress) float64 { return float64(p.Missing) }},
		{"copied", "Copies that it made.", func(p wire.ReconcileProgress) float64 { return float64(p.Copied) }},
		{"failed", "Copies that it could not make.", func(p wire.ReconcileProgress) float64 { return float64(p.Failed) }},
	} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "verae_archive_reconcile_" + g.name, Help: g.help,
			ConstLabels: prometheus.Labels{"archive": string(r.cfg.Node.cfg.ID)},
		}, func() float64 { return g.value(r.Progress()) }))
	}
	return all
}
