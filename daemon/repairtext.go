package daemon

import (
	"fmt"
	"io"

	"github.com/verae/archive/archive"
)

// repairWriter writes a report for people.
type repairWriter struct {
	out   io.Writer
	would string // before what a dry run does not do
	err   error  // the first of writing
}

func (w *repairWriter) line(format string, args ...any) {
	if _, err := fmt.Fprintf(w.out, format+"\n", args...); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *repairWriter) damages(r repairReport) {
	for _, d := range r.Files.Damages {
		w.line("damaged: %s", d)
	}
	for _, d := range r.Records.Damages {
		w.line("damaged: %s", d)
	}
}

func (w *repairWriter) files(r repairReport) {
	for _, f := range r.Files.Fetched {
		w.line("%sfetched: file %s, %d bytes", w.would, f.SHA256, f.Size)
	}
	for _, f := range r.Files.Lost {
		if !f.Known {
			w.line("%slost: file %s, %d bytes", w.would, f.SHA256, f.Size)
		}
	}
	for _, f := range r.Records.Files {
		if f.Known {
			w.line("lost before: file %s of seq %d", f.SHA256, f.Seq)
		} else if f.Lost {
			w.line("%slost: file %s of seq %d", w.would, f.SHA256, f.Seq)
		} else {
			w.line("made whole: file %s of seq %d", f.SHA256, f.Seq)
		}
	}
	for _, e := range r.Files.Evidence {
		w.line("kept as evidence: %s", e)
	}
}

func (w *repairWriter) records(r *archive.RepairReport) {
	for _, e := range r.Fetched {
		w.line("%sfetched: seq %d, record %s, from %s", w.would, e.Seq, e.ID, e.From)
	}
	for _, e := range r.Lost {
		w.line("%slost: seq %d, record %s", w.would, e.Seq, e.ID)
	}
	for _, e := range r.LeftOut {
		w.line("%sleft out: seq %d, record %s: before it, behind the mark, there are records of which nothing is known", w.would, e.Seq, e.ID)
	}
	if r.Behind() {
		w.line("behind: other archives have heard this one tell seq %d, and what is left ends at seq %d: nothing says which records the others were. Do not start it: make a backup of it (archived backup), and of that a new generation (archived restore)", r.HeardSeq, r.Seq)
	}
	if r.Evidence != "" {
		w.line("kept as evidence: %s", r.Evidence)
	}
	switch r.Mark {
	case archive.MarkNone:
		w.line("the end of the log is taken from the store: what was cut off behind seq %d is not missed", r.Seq)
	case archive.MarkPeers:
		w.line("the mark was lost: the newest that another archive remembers covers seq %d, and what was cut off behind that is not missed", r.MarkSeq)
	}
}

func (w *repairWriter) summary(dir string, r repairReport) {
	records := r.Records
	if records.Whole && !r.Files.Rebuilt && len(r.Files.Fetched)+len(r.Files.Lost)+len(records.Files) == 0 {
		w.line("%s: nothing is wrong, nothing was changed (%s, generation %d, seq %d)", dir, records.ArchiveID, records.Generation, records.Seq)
		return
	}
	if records.Whole {
		w.line("%s: the records are whole up to seq %d", dir, records.Seq)
		return
	}
	w.line("%s: %d records %scarried over, %d fetched, %d lost; the log ends at seq %d, its mark at seq %d",
		dir, records.Carried, w.would, len(records.Fetched), len(records.Lost), records.Seq, records.MarkSeq)
}
