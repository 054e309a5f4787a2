package wire

// Steered is the answer to a request that retains, holds or releases.
type Steered struct {
	Kind      Kind     `json:"kind"`
	SHA256    Digest   `json:"sha256"`
	RecordID  RecordID `json:"recordId,omitzero"` // the one record that is meant; absent: all under the digest
	ControlID RecordID `json:"controlId"`         // of the control record that stands
	DecidedAt Time     `json:"decidedAt"`
	Changed   bool     `json:"changed"`  // false: it stood so before
	Status    string   `json:"status"`   // StatusPending until enough archives have it
	Copies    int      `json:"copies"`   // enrolled archives that have the control record
	Archives  int      `json:"archives"` // enrolled archives: all of them get it

	// Retention is the state of what is meant, as it is now.
	Retention *Retention `json:"retention,omitempty"`
}

// RecordRetention is the state of one record. The lists are never nil.
type RecordRetention struct {
	RecordID    RecordID `json:"recordId"`
	SHA256      Digest   `json:"sha256"` // its subject
	Kind        Kind     `json:"kind"`
	RetainUntil Time     `json:"retainUntil,omitzero"`
	Holds       []Hold   `json:"holds"`
}

// Retentions is the state of what a tenant has under one digest: what is said of
// all his records there, and of each. The lists are never nil.
type Retentions struct {
	SHA256          Digest            `json:"sha256"`
	RetainUntil     Time              `json:"retainUntil,omitzero"`
	Holds           []Hold            `json:"holds"`
	Records         []RecordRetention `json:"records"`
	ArchivesMissing []ArchiveID       `json:"archivesMissing"`
	Complete        bool              `json:"complete"`
}
