package wire

// Operations on an archive's sync subject, in HeaderOp; OpHas is one of them
// too. Whoever may ask there reads every tenant's records: only archives, and
// the programs that repair and restore them, are let in. Every request gets a
// reply: the payload named, or a Problem marked by HeaderProblem.
const (
	OpIDs        = "ids"        // SyncIDs -> SyncPage
	OpRecord     = "record"     // SyncRecord -> bytes of a PutRecord's JSON, with HeaderOffset and HeaderSize
	OpFile       = "file"       // SyncFile -> bytes of the file, with HeaderOffset and HeaderSize; from offset 0 HeaderProfile too
	OpRemembered = "remembered" // SyncRemembered -> SyncMemory
)

// HeaderSize tells, beside a fragment, how many bytes the whole has.
const HeaderSize = "Verae-Size"

// HeaderProfile tells, beside the first bytes of a file, in which UnixFS profile
// it has its CID: "chunkSize/maxLinks".
const HeaderProfile = "Verae-Profile"

// Limits of one request on a sync subject. A fragment has at most FragmentSize
// bytes.
const (
	MaxSyncIDs     = 1000 // record ids asked for, and records of a page
	MaxGenerations = 16   // generations that an archive remembers of another
)

// SyncHas asks which records are here. A record that is known and can not be
// read is not.
type SyncHas struct {
	IDs []RecordID `json:"ids"`
}

// SyncHave answers SyncHas, in its order.
type SyncHave struct {
	Have []bool `json:"have"`
}

// SyncIDs asks for the records after a sequence number, at most Limit; 0 means
// MaxSyncIDs.
type SyncIDs struct {
	After uint64 `json:"after"`
	Limit int    `json:"limit,omitzero"`
}

// SyncPage lists durable and readable records in the order of their sequence
// numbers. Next is the After of the next page; End is the last sequence number
// of the archive: when Next has reached it there are no more for now. A page may
// be empty although more follow.
type SyncPage struct {
	Records []SyncEntry `json:"records"`
	Next    uint64      `json:"next"`
	End     uint64      `json:"end"`
}

// SyncEntry names a record and where it stands in the log of the archive that
// answers.
type SyncEntry struct {
	Seq      uint64   `json:"seq"`
	RecordID RecordID `json:"recordId"`
	Kind     Kind     `json:"kind"`
}

// SyncRecord asks for a fragment of the JSON of a record's portable part, from
// Offset on. The JSON of a record is always the same text.
type SyncRecord struct {
	ID     RecordID `json:"id"`
	Offset int64    `json:"offset,omitzero"`
}

// SyncFile asks for a range of a file, at most FragmentSize bytes.
type SyncFile struct {
	SHA256 Digest `json:"sha256"`
	CID    string `json:"cid"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

// SyncRemembered asks what an archive has heard another one say of itself.
type SyncRemembered struct {
	ArchiveID ArchiveID `json:"archiveId"`
}

// SyncMemory answers SyncRemembered: the most that was heard of each generation
// and key, the newest generation first; nothing if it was never heard.
type SyncMemory struct {
	Remembered []Remembered `json:"remembered"`
}

// Remembered is the most that the archive By, or an aggregator, has heard of the
// log of an archive. HeardAt is absent if it is not known.
// Seq and Checkpoint may be of different hellos. Neither is proved to be true:
// who relies on a checkpoint verifies it with a key that he knows.
type Remembered struct {
	By         ArchiveID `json:"by"`
	ArchiveID  ArchiveID `json:"archiveId"`
	Key        string    `json:"key"` // Ed25519 public key, standard base64
	Generation int       `json:"generation"`
	Seq        uint64    `json:"seq"`
	Checkpoint string    `json:"checkpoint,omitzero"`
	HeardAt    Time      `json:"heardAt,omitzero"`
}

// Check reports the first rule that r breaks, as an *Error.
func (r SyncHas) Check() error { return checkIDs(r.IDs, MaxSyncIDs) }

// Check reports the first rule that r breaks, as an *Error.
func (r SyncIDs) Check() error {
	if r.Limit < 0 || r.Limit > MaxSyncIDs {
		return refuse("limit", "%d; from 1 to %d records make a page, and 0 is that many", r.Limit, MaxSyncIDs)
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error.
func (r SyncRecord) Check() error {
	switch {
	case r.ID.IsZero():
		return refuse("id", "missing; give the id of a record")
	case r.Offset < 0:
		return refuse("offset", "%d is below 0", r.Offset)
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error.
func (r SyncFile) Check() error {
	switch {
	case r.SHA256.IsZero():
		return refuse("sha256", "missing; give the SHA-256 of the file's bytes")
	case r.Offset < 0:
		return refuse("offset", "%d is below 0", r.Offset)
	case r.Length < 0 || r.Length > FragmentSize:
		return refuse("length", "%d; from 0 to %d bytes are read at a time", r.Length, FragmentSize)
	}
	if err := checkCID(r.CID); err != nil {
		return err.in("cid")
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error.
func (r SyncRemembered) Check() error {
	if err := archiveGrammar.check(string(r.ArchiveID)); err != nil {
		return err.in("archiveId")
	}
	return nil
}

// checkIDs is the rule for lists of records.
func checkIDs(ids []RecordID, most int) error {
	if len(ids) == 0 || len(ids) > most {
		return refuse("ids", "%d record ids; from 1 to %d are taken at a time", len(ids), most)
	}
	for i, id := range ids {
		if id.IsZero() {
			return refuse("ids"+index(i), "missing; give the id of a record")
		}
	}
	return nil
}
