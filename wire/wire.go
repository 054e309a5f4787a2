// Package wire is the vocabulary of the system: ids, subjects and every payload
// that crosses a process boundary, with one strict decoder for all of them.
//
// It imports the standard library only, and everything above imports it. The
// names marked (seed) belong to the original contract and never change; all
// others change by addition only. Golden samples of every payload are in
// testdata/ and docs/contracts.md shows the same files.
//
// Values are plain data. Nothing here keeps a reference to a caller's memory
// after it returns unless it says so, and all functions may be called from many
// goroutines.
//
// # Record ids
//
// The id of a record is the SHA-256 of the 14 ASCII bytes "verae-record/1" and
// one CBOR map in the core deterministic encoding of RFC 8949, section 4.2.1.
// The layout is frozen; testdata/recordid has vectors. A field that is absent
// (zero, empty, no part beyond the first) is left out of the map.
//
//	key  field         item                         always there
//	 1   kind          text                         yes
//	 2   sha256        bytes (32)                   yes
//	 3   tenantId      text                         yes
//	 4   submissionId  text (36)
//	 5   part          unsigned, not 0
//	 6   attachedAt    text, as it was sent
//	 7   contentType   text
//	 8   bodySha256    bytes (32), of the stored body
//	 9   file          map: 1 name text, 2 size unsigned (always), 3 sha256
//	                   bytes (32, always), 4 cid text (always),
//	                   5 contentType text
//	10   shareWith     array of [tenantId text, mode text] in the order sent
//
// # Decoding
//
// Whatever comes from another process goes through [Decode] or [DecodePut], and
// then through the Check of its type: Decode says that two readers of the bytes
// see the same payload, Check that its values are ones we work with.
package wire

// Subjects on NATS. Those that end in a dot take one more token.
const (
	SubjectJobsWatch  = "verae.zapier.jobs.watch"  // (seed) HTTP edge -> job poller: Watch
	SubjectJobsEvents = "verae.zapier.jobs.events" // (seed) poller -> waiters: Event

	SubjectPut          = "verae.archive.put"     // (seed) splitter -> archives; the owners store it
	SubjectPutPrefix    = "verae.archive.put."    // + archiveId: splitter -> that archive
	SubjectQuery        = "verae.archive.query"   // (seed) aggregator -> every archive, no queue group
	SubjectReplyPrefix  = "verae.archive.reply."  // (seed) + correlationId: archive -> aggregator
	SubjectHelloPrefix  = "verae.archive.hello."  // + archiveId: archive -> aggregators and archives
	SubjectCtlPrefix    = "verae.archive.ctl."    // + archiveId: aggregator -> that archive
	SubjectFilterPrefix = "verae.archive.filter." // + archiveId: archive -> aggregators: Delta
	SubjectBlobPrefix   = "verae.archive.blob."   // + archiveId: blob frames
	SubjectSyncPrefix   = "verae.archive.sync."   // + archiveId: archive -> archive

	SubjectRosterGet = "verae.roster.get"
	SubjectSubmit    = "verae.timestamp.submit" // middleware -> aggregator, queue group
	SubjectLookup    = "verae.timestamp.lookup" // middleware -> aggregator, queue group
)

// Header names on NATS messages. nats.Header keys are case-sensitive.
const (
	HeaderExpect   = "Verae-Expect"   // archive ids, comma separated, from which a word is expected
	HeaderDeadline = "Verae-Deadline" // milliseconds left when the query was sent
	HeaderOp       = "Verae-Op"
	HeaderUpload   = "Verae-Upload"
	HeaderOffset   = "Verae-Offset"
	HeaderTenant   = "Verae-Tenant"
	HeaderCID      = "Verae-Cid"
)

// Query asks every archive for the records under one key (seed).
// An empty Kinds means all but the control kinds.
type Query struct {
	CorrelationID CorrelationID `json:"correlationId"`
	SHA256        Digest        `json:"sha256"`
	TenantID      TenantID      `json:"tenantId"`
	Kinds         []Kind        `json:"kinds"`
}

// Reply is an archive's answer to a Query (seed, with paging added). A reply
// never exceeds the server's max_payload: the records are spread over Pages
// messages, numbered from 1. Page 0 means an unpaged reply of a seed peer. Boot
// is the process that answers, as in its Hello: another process under the same
// id is not the enrolled archive.
type Reply struct {
	ArchiveID ArchiveID `json:"archiveId"`
	SHA256    Digest    `json:"sha256"`
	Records   []Record  `json:"records"`
	Page      int       `json:"page,omitzero"`
	Pages     int       `json:"pages,omitzero"`
	Boot      string    `json:"boot,omitzero"`
	// Answer is the same in all pages of one answer, and in no others: who is asked
	// twice answers twice, and may have stored something in between. Empty where one
	// page is all.
	Answer string `json:"answer,omitzero"`
	// Lost counts records under the key that this caller would see if the archive
	// still had them: an answer with some is not complete. Page 1 only.
	Lost uint64 `json:"lost,omitzero"`
	// Checkpoint is the archive's newest published one, a signed note. Page 1 only.
	Checkpoint string `json:"checkpoint,omitzero"`
}

// Record is one append-only entry of an archive as it is answered to a query.
// Body holds the stored bytes exactly as they were received.
type Record struct {
	ID           RecordID     `json:"id"`
	Kind         Kind         `json:"kind"`
	SHA256       Digest       `json:"sha256"`
	TenantID     TenantID     `json:"tenantId"`
	SubmissionID SubmissionID `json:"submissionId,omitzero"`
	Part         int          `json:"part,omitzero"`
	AttachedAt   Time         `json:"attachedAt,omitzero"`
	StoredAt     Time         `json:"storedAt,omitzero"`
	Seq          uint64       `json:"seq,omitzero"`
	ContentType  string       `json:"contentType,omitzero"`
	Body         []byte       `json:"body,omitempty"`
	BodySHA256   Digest       `json:"bodySha256,omitzero"`
	File         *File        `json:"file,omitempty"`
	ShareWith    []Share      `json:"shareWith,omitempty"`
	// Retention is what control records say of the record, for its own tenant; the
	// id does not cover it.
	Retention *Retention `json:"retention,omitempty"`
}

// File describes the file behind a record of kind "file". ID equals the id of
// that record. CID is the bare CIDv1 (base32) of the file's UnixFS root.
type File struct {
	ID          RecordID `json:"id,omitzero"`
	Name        string   `json:"name,omitzero"`
	Size        int64    `json:"size"`
	SHA256      Digest   `json:"sha256"`
	CID         string   `json:"cid"`
	ContentType string   `json:"contentType,omitzero"`
}

// Put asks an archive to append a record. PutID makes a repetition harmless.
// RosterVersion is the version of the roster the sender placed the record by.
// Checkpoint asks that the acknowledgement carry a signed checkpoint that covers
// the record.
type Put struct {
	PutID         PutID     `json:"putId,omitzero"`
	RosterVersion uint64    `json:"rosterVersion,omitzero"`
	Checkpoint    bool      `json:"checkpoint,omitzero"`
	Record        PutRecord `json:"record"`
}

// PutRecord is the portable part of a record: what its id is computed over.
// Fields absent from a minimal Put stay absent.
type PutRecord struct {
	Kind         Kind         `json:"kind"`
	SHA256       Digest       `json:"sha256"`
	TenantID     TenantID     `json:"tenantId"`
	SubmissionID SubmissionID `json:"submissionId,omitzero"`
	Part         int          `json:"part,omitzero"`
	AttachedAt   Time         `json:"attachedAt,omitzero"`
	ContentType  string       `json:"contentType,omitzero"`
	Body         []byte       `json:"body,omitempty"`
	File         *File        `json:"file,omitempty"`
	ShareWith    []Share      `json:"shareWith,omitempty"`
}

// PutAck says that a record rests on the archive's disk. Boot identifies the
// process that stored it, Generation the archive's log. Checkpoint, a signed note,
// is the newest published one; it covers Seq if the put asked for that.
type PutAck struct {
	ArchiveID  ArchiveID `json:"archiveId"`
	Generation int       `json:"generation"`
	Boot       string    `json:"boot"`
	RecordID   RecordID  `json:"recordId"`
	Seq        uint64    `json:"seq"`
	Duplicate  bool      `json:"duplicate"`
	Checkpoint string    `json:"checkpoint,omitzero"`
}

// States an archive announces in its Hello.
const (
	StateUp       = "up"
	StateDraining = "draining"
	StateReadonly = "readonly"
)

// Hello is what an archive says of itself: on start, every 500 ms, on change
// and on drain.
type Hello struct {
	Proto         int         `json:"proto"`
	ArchiveID     ArchiveID   `json:"archiveId"`
	Key           string      `json:"key"` // Ed25519 public key, standard base64
	Generation    int         `json:"generation"`
	Boot          string      `json:"boot"`
	Seq           uint64      `json:"seq"`
	ControlSeq    uint64      `json:"controlSeq"`
	Records       uint64      `json:"records"`
	State         string      `json:"state"`
	Reason        string      `json:"reason,omitzero"` // why the state is not up: a code, such as DISK_FULL or DAMAGED
	Lost          uint64      `json:"lost,omitzero"`   // records whose leaf is proved and whose bytes are gone
	RosterVersion uint64      `json:"rosterVersion"`
	Filter        HelloFilter `json:"filter"`
	Checkpoint    string      `json:"checkpoint,omitzero"`
}

// HelloFilter tells whether an archive's filter may be believed.
type HelloFilter struct {
	KeyID       string `json:"keyId,omitzero"`
	Generations int    `json:"generations"`
	Ready       bool   `json:"ready"`
}

// Watch asks the job poller to settle a submission (seed).
type Watch struct {
	JobID           JobID        `json:"jobId"`
	SubmissionID    SubmissionID `json:"submissionId,omitzero"`
	SHA256          Digest       `json:"sha256"`
	TenantID        TenantID     `json:"tenantId"`
	IncludeAttached bool         `json:"includeAttached"`
}

// Names of events.
const (
	EventCompleted       = "job.completed"
	EventFailed          = "job.failed"
	EventUpdated         = "job.updated"
	EventReceiptAttached = "receipt.attached"
)

// Event announces a job to waiters and hooks (seed subject). It never carries
// private metadata in clear. The bytes of an event are made once and announced
// unchanged on every redelivery.
type Event struct {
	ID       EventID  `json:"id"`
	Event    string   `json:"event"`
	TenantID TenantID `json:"tenantId"`
	Job
}

// Problem is the refusal of a request on NATS. Kind is a fault kind.
type Problem struct {
	Code         string `json:"code"`
	Kind         string `json:"kind"`
	Message      string `json:"message"`
	RetryAfterMs int64  `json:"retryAfterMs,omitzero"`
}

// States of a job.
const (
	StatusPending   = "pending"
	StatusCompleted = "completed"
	StatusFailed    = "failed"
)

// Why an answer about the archives is, or is not, complete.
const (
	ReasonAll        = "all"
	ReasonDeadline   = "deadline"
	ReasonNoArchives = "no-archives"
	ReasonLost       = "lost-records" // all have answered, and something that was acknowledged is gone
)

// Job is a job as one caller may see it. The fields of the original contract
// come first (seed). Absent means an omitted key or an empty list, never null.
type Job struct {
	JobID           JobID       `json:"jobId"`
	Status          string      `json:"status"`
	SHA256          Digest      `json:"sha256"`
	Receipts        []Receipt   `json:"receipts"`
	Files           []FileEntry `json:"files"`
	ArchivesQueried bool        `json:"archivesQueried"`
	ArchiveReplies  int         `json:"archiveReplies"`

	SubmissionID     SubmissionID `json:"submissionId,omitzero"`
	RequestedJobID   JobID        `json:"requestedJobId,omitzero"` // when it differs from JobID
	AlreadySealed    *bool        `json:"alreadySealed,omitempty"` // absent while the chain has not been asked
	HashedFrom       string       `json:"hashedFrom,omitzero"`     // "data", "sha256" or "file"
	ArchivesExpected []ArchiveID  `json:"archivesExpected"`
	ArchivesMissing  []ArchiveID  `json:"archivesMissing"`
	Complete         bool         `json:"complete"`
	CompleteReason   string       `json:"completeReason,omitzero"`

	Reason        string `json:"reason,omitzero"`        // why it is pending or failed
	ReasonKind    string `json:"reasonKind,omitzero"`    // the fault kind of Reason
	NextAttemptAt Time   `json:"nextAttemptAt,omitzero"` // for a pending job
}

// Kinds of receipts that are not the name of an attachment kind.
const (
	ReceiptSeal           = "seal"
	ReceiptMetadataAttach = "metadata-attach"
)

// Receipt is one entry of a job's receipts: the seal first, then attachments in
// time order. Which fields are present depends on Kind.
type Receipt struct {
	Kind string `json:"kind"`

	// Of the seal.
	Timestamp      Time     `json:"timestamp,omitzero"`
	Certificate    string   `json:"certificate,omitzero"` // C2SP tlog-proof, byte-identical on every lookup
	BlockIndex     *int64   `json:"blockIndex,omitempty"`
	LeafIndex      *int64   `json:"leafIndex,omitempty"`
	Chain          string   `json:"chain,omitzero"`          // the log's origin
	TimestampToken string   `json:"timestampToken,omitzero"` // base64 RFC 3161 token
	Cosignatures   []string `json:"cosignatures,omitempty"`

	// Of an attachment.
	AttachedAt           Time         `json:"attachedAt,omitzero"`
	PublicMetadata       RawJSON      `json:"publicMetadata,omitempty"`
	PublicMetadataSHA256 Digest       `json:"publicMetadataSha256,omitzero"`
	PublicMetadataSeal   *Receipt     `json:"publicMetadataSeal,omitempty"`
	PrivateMetadata      RawJSON      `json:"privateMetadata,omitempty"`
	ContentType          string       `json:"contentType,omitzero"`
	Body                 []byte       `json:"body,omitempty"`
	FileID               RecordID     `json:"fileId,omitzero"`
	BodySHA256           Digest       `json:"bodySha256,omitzero"`
	RecordID             RecordID     `json:"recordId,omitzero"`
	PrivateRecordID      RecordID     `json:"privateRecordId,omitzero"`
	SubmissionID         SubmissionID `json:"submissionId,omitzero"`
	ArchiveIDs           []ArchiveID  `json:"archiveIds,omitempty"`

	// Of the records RecordID and PrivateRecordID, for their own tenant.
	Retention        *Retention `json:"retention,omitempty"`
	PrivateRetention *Retention `json:"privateRetention,omitempty"`
}

// FileEntry is one file of a job. ArchiveID is the first of ArchiveIDs (seed).
type FileEntry struct {
	ID           RecordID     `json:"id"`
	SHA256       Digest       `json:"sha256"`
	ArchiveID    ArchiveID    `json:"archiveId"`
	ArchiveIDs   []ArchiveID  `json:"archiveIds"`
	Name         string       `json:"name,omitzero"`
	Size         int64        `json:"size"`
	ContentType  string       `json:"contentType,omitzero"`
	CID          string       `json:"cid"`
	AttachedAt   Time         `json:"attachedAt,omitzero"`
	RecordID     RecordID     `json:"recordId"`
	SubmissionID SubmissionID `json:"submissionId,omitzero"`
	Retention    *Retention   `json:"retention,omitempty"` // for its own tenant
}

// Accepted is the answer to a submission that was taken (HTTP 202).
type Accepted struct {
	JobID         JobID          `json:"jobId"`
	SubmissionID  SubmissionID   `json:"submissionId"`
	Status        string         `json:"status"`
	SHA256        Digest         `json:"sha256"`
	HashedFrom    string         `json:"hashedFrom"`
	AlreadySealed *bool          `json:"alreadySealed,omitempty"`
	StatusURL     string         `json:"statusUrl"`
	Parts         []AcceptedPart `json:"parts"`
	Reason        string         `json:"reason,omitzero"`
	NextAttemptAt Time           `json:"nextAttemptAt,omitzero"`
}

// AcceptedPart echoes what was received of one part and how many archives
// acknowledged it.
type AcceptedPart struct {
	Kind     Kind     `json:"kind"`
	Name     string   `json:"name,omitzero"`
	Size     int64    `json:"size"`
	SHA256   Digest   `json:"sha256"`
	CID      string   `json:"cid,omitzero"`
	RecordID RecordID `json:"recordId"`
	Copies   int      `json:"copies"`
}
