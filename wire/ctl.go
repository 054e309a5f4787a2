package wire

// Operations on an archive's ctl subject, in HeaderOp. Whoever may ask there
// makes the archive work: only aggregators and operators are let in. Every
// request gets a reply: the payload named, or a Problem marked by HeaderProblem.
const (
	OpPull       = "pull"       // CtlPull -> CtlPulled
	OpReconcile  = "reconcile"  // CtlReconcile -> ReconcileProgress
	OpCheckpoint = "checkpoint" // CtlCheckpoint -> CtlProof
	OpStatus     = "status"     // nothing -> CtlStatus
)

// Limits of one pull.
const (
	MaxPullIDs     = 256 // record ids; their results, problems and all, fit into a message
	MaxPullSources = 64  // archives to pull from
)

// CtlPull tells an archive to fetch records, and the files they name, from the
// archives that have them. It is harmless to repeat.
type CtlPull struct {
	IDs  []RecordID  `json:"ids"`
	From []ArchiveID `json:"from"`
}

// CtlPulled answers CtlPull, in its order.
type CtlPulled struct {
	Results []PullResult `json:"results"`
}

// PullResult tells what became of one record: it rests here under Seq, or there
// is a problem. The code PULL_PENDING says that the pull goes on after the
// answer: ask again.
type PullResult struct {
	ID        RecordID `json:"id"`
	Seq       uint64   `json:"seq,omitzero"`
	Duplicate bool     `json:"duplicate,omitzero"` // it was here before
	Problem   *Problem `json:"problem,omitempty"`
}

// CtlReconcile asks how far the reconciliation is, and starts one if there is
// none and Start is set.
type CtlReconcile struct {
	Start bool `json:"start,omitzero"`
}

// ReconcileProgress is the state of a reconciliation, or the outcome of the last
// one. A record is missing when it has fewer live copies than it should; Copied
// and Failed count the copies that were made, and those that could not be.
type ReconcileProgress struct {
	ArchiveID ArchiveID `json:"archiveId"`
	Running   bool      `json:"running"`
	Seq       uint64    `json:"seq"` // looked at so far
	End       uint64    `json:"end"` // where it will have seen all
	Missing   uint64    `json:"missing"`
	Copied    uint64    `json:"copied"`
	Failed    uint64    `json:"failed"`
	StartedAt Time      `json:"startedAt,omitzero"`
	DoneAt    Time      `json:"doneAt,omitzero"`   // absent while it runs, and if it was cut short
	Problem   *Problem  `json:"problem,omitempty"` // why the last one ended early, or the last copy that failed
}

// CtlCheckpoint asks for the newest checkpoint, and for the proof that it
// continues the tree of From leaves of the same generation; 0 asks for none.
type CtlCheckpoint struct {
	From uint64 `json:"from,omitzero"`
}

// CtlProof is a signed checkpoint with an RFC 6962 consistency proof.
type CtlProof struct {
	Checkpoint string   `json:"checkpoint"`
	Proof      [][]byte `json:"proof"`
}

// CtlStatus is what an archive knows of itself.
type CtlStatus struct {
	Hello     Hello             `json:"hello"`
	Reconcile ReconcileProgress `json:"reconcile"`
}

// RosterRequest asks, on SubjectRosterGet, for the roster. Who names himself as
// Holder and has Version of it gets a lease: until it runs out no archive that was
// enrolled later is given a record. With Release he needs it no longer. An empty
// message only asks.
type RosterRequest struct {
	Holder  string `json:"holder,omitzero"`
	Version uint64 `json:"version,omitzero"`
	Release bool   `json:"release,omitzero"`
}

// RosterReply answers SubjectRosterGet with the archives that are enrolled,
// alive or not, in the order of their ids. For LeaseMs milliseconds from the
// moment at which the holder asked he may rely on it; 0 says that he has no lease.
type RosterReply struct {
	Version  uint64         `json:"version"`
	Archives []RosterMember `json:"archives"`
	LeaseMs  int64          `json:"leaseMs"`
}

// RosterMember is one enrolled archive: its accepted generation, the most that
// it acknowledged or told in it, and the state that the aggregator sees it in.
// Before is the most that it acknowledged or told in the generations before,
// until what it acknowledged there is accounted for.
type RosterMember struct {
	ID         ArchiveID `json:"id"`
	Key        string    `json:"key"` // Ed25519 public key, standard base64
	Generation int       `json:"generation"`
	Seq        uint64    `json:"seq"`
	Before     uint64    `json:"before,omitzero"`
	Checkpoint string    `json:"checkpoint,omitzero"`
	State      string    `json:"state"`
	Boot       string    `json:"boot,omitzero"` // the process that is believed; absent: none was heard
}

// Check reports the first rule that r breaks, as an *Error.
func (r CtlPull) Check() error {
	if err := checkIDs(r.IDs, MaxPullIDs); err != nil {
		return err
	}
	if len(r.From) == 0 || len(r.From) > MaxPullSources {
		return refuse("from", "%d archives; from 1 to %d can be named", len(r.From), MaxPullSources)
	}
	for i, id := range r.From {
		if err := archiveGrammar.check(string(id)); err != nil {
			return err.in(index(i)).in("from")
		}
	}
	return nil
}

// Check returns nil: every value will do.
func (r CtlReconcile) Check() error { return nil }

// Check returns nil: an archive says itself which sizes its log has had.
func (r CtlCheckpoint) Check() error { return nil }

// Check reports the first rule that r breaks, as an *Error.
func (r RosterRequest) Check() error {
	if r.Holder == "" && !r.Release && r.Version == 0 {
		return nil
	}
	if err := nameGrammar.check(r.Holder); err != nil {
		return err.in("holder")
	}
	return nil
}
