package archive

import (
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Kinds of findings. They are part of the output of a check and never change.
const (
	FindingOpen         = "open"         // the archive does not open
	FindingStoreFile    = "store-file"   // a file of a Pebble store
	FindingLog          = "log"          // records that should be there are not
	FindingRecord       = "record"       // a stored record is not what was stored
	FindingTree         = "tree"         // the Merkle tree is not that of the log
	FindingMark         = "mark"         // the log is not what the mark has signed
	FindingSkeleton     = "skeleton"     // the skeleton is not that of the log
	FindingGeneration   = "generation"   // the rows that say where the log begins
	FindingLost         = "lost"         // the list of lost records
	FindingIndex        = "index"        // what is derived from the log
	FindingFilter       = "filter"       // the filter denied what is stored; the check has mended it
	FindingFile         = "file"         // bytes of a file
	FindingStray        = "stray"        // a file that nothing names
	FindingUnreferenced = "unreferenced" // a file, or a row of the files' index, that nothing needs
)

// The commands that findings name.
const (
	repairStore = "archived repair"
	repairStart = "restart the archive"
	repairKey   = "put key.pem back; or archived backup, and of that archived restore"
)

// Finding is something that a check did not find as it should be.
type Finding struct {
	Kind string `json:"kind"`
	What string `json:"what"`
	// Damage says that stored bytes are lost or changed. Otherwise nothing is
	// proved to be: a file that no record names, for one, is the trace of an
	// upload that nobody came back for.
	Damage bool          `json:"damage"`
	Repair string        `json:"repair,omitzero"` // the command that repairs it; empty if nothing has to be done
	Seq    uint64        `json:"seq,omitzero"`
	Record wire.RecordID `json:"recordId,omitzero"`
	File   wire.Digest   `json:"sha256,omitzero"` // of the file
	Path   string        `json:"path,omitzero"`
}

// maxFindings bounds the findings that a report lists. The others are counted.
const maxFindings = 1000

// CheckReport is what a check has looked at and found.
type CheckReport struct {
	Records    uint64    `json:"records"`          // in the log
	Lost       uint64    `json:"lost"`             // of Records: stubs of lost records
	Leaves     uint64    `json:"leaves"`           // of the trees of all generations
	IndexRows  uint64    `json:"indexRows"`        // under digests
	TenantRows uint64    `json:"tenantRows"`       // under tenants
	PutIDs     uint64    `json:"putIds"`           //
	Files      uint64    `json:"files"`            // whose bytes were read
	FileBytes  int64     `json:"fileBytes"`        //
	Tables     uint64    `json:"tables"`           // files of the Pebble stores
	Bytes      int64     `json:"bytes"`            // read from the disk, of everything
	Began      int64     `json:"beganUnixMs"`      //
	Ended      int64     `json:"endedUnixMs"`      // 0: not yet
	Stopped    string    `json:"stopped,omitzero"` // why the check could not look at everything; empty if it did
	Found      uint64    `json:"found"`            // findings, listed or not
	Damages    uint64    `json:"damages"`          // of them
	Findings   []Finding `json:"findings"`
}

func (r *CheckReport) begin() { r.Began = time.Now().UnixMilli() }

// end notes when the check ended, and why if it could not look at everything.
func (r *CheckReport) end(err error) {
	r.Ended = time.Now().UnixMilli()
	if err != nil {
		r.Stopped = err.Error()
	}
}

// Add adds a finding. The first findings are listed, and the first damages in any
// case.
func (r *CheckReport) Add(f Finding) {
	r.Found++
	if f.Damage {
		r.Damages++
	}
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
		return
	}
	if !f.Damage {
		return
	}
	for i := len(r.Findings) - 1; i >= 0; i-- {
		if !r.Findings[i].Damage {
			r.Findings = append(append(r.Findings[:i], r.Findings[i+1:]...), f)
			return
		}
	}
}

// Err returns nil if there is no damage, else an error of kind fault.Corrupt that
// names the first.
func (r *CheckReport) Err() error {
	if r.Damages == 0 {
		return nil
	}
	for _, f := range r.Findings {
		if !f.Damage {
			continue
		}
		if r.Damages == 1 {
			return fault.New(fault.Corrupt, "CORRUPT", "archive: %s", f.What)
		}
		return fault.New(fault.Corrupt, "CORRUPT", "archive: %s, and %d more findings of damage", f.What, r.Damages-1)
	}
	return fault.New(fault.Corrupt, "CORRUPT", "archive: %d findings of damage", r.Damages)
}
