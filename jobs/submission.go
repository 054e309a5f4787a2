package jobs

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// submission is the stored state of one accepted request. It is rewritten as
// the work proceeds; what it was asked to do never changes after Accept.
type submission struct {
	ID         wire.SubmissionID `json:"id"`
	Tenant     wire.TenantID     `json:"tenant"`
	JobID      wire.JobID        `json:"jobId"` // what the sender was told; empty if it has none
	Digest     wire.Digest       `json:"digest"`
	HashedFrom string            `json:"hashedFrom"`
	Placement  wire.Digest       `json:"placement"` // archives are ranked by it
	AttachedAt wire.Time         `json:"attachedAt"`

	// Control is the kind of the one record of a submission that retains, holds or
	// releases: it goes to every archive, and nothing is sealed or announced.
	Control wire.Kind `json:"control,omitzero"`

	// Unsealed is a submission whose records are kept and nothing else: it has no
	// job id, and nothing is sealed or announced.
	Unsealed bool `json:"unsealed,omitzero"`

	IncludeAttached bool        `json:"includeAttached,omitzero"`
	MetadataDigest  wire.Digest `json:"metadataDigest,omitzero"` // sealed too, when asked for
	MetadataJobID   wire.JobID  `json:"metadataJobId,omitzero"`  // reserved for it
	Fingerprint     wire.Digest `json:"fingerprint,omitzero"`    // zero: holds no fingerprint row
	Idempotency     wire.Digest `json:"idempotency,omitzero"`    // MAC of the key; zero: none

	Files []file `json:"files,omitempty"`
	Parts []part `json:"parts,omitempty"`

	UploadsDone bool `json:"uploadsDone,omitzero"` // every file rests on an archive; no record was put before
	Stored      bool `json:"stored,omitzero"`      // every part has PUT_MIN_COPIES acknowledgements
	Copied      bool `json:"copied,omitzero"`      // every part has its full number of copies; the outbox is empty
	Reopened    bool `json:"reopened,omitzero"`    // copies were lost since: what is not in the outbox is pulled from another archive

	Sealed        bool       `json:"sealed,omitzero"`
	SealJobID     wire.JobID `json:"sealJobId,omitzero"`
	AlreadySealed bool       `json:"alreadySealed,omitzero"`

	Status      string       `json:"status"`
	EventID     wire.EventID `json:"eventId,omitzero"`
	Reason      string       `json:"reason,omitzero"`
	ReasonKind  string       `json:"reasonKind,omitzero"`
	ReasonCode  string       `json:"reasonCode,omitzero"`
	Attempts    int          `json:"attempts,omitzero"`
	NextAttempt wire.Time    `json:"nextAttempt,omitzero"`
}

// file is a file of a submission and where its bytes are.
type file struct {
	UploadID  string           `json:"uploadId"`
	Size      int64            `json:"size"`
	SHA256    wire.Digest      `json:"sha256"`
	CID       string           `json:"cid"`
	JobID     wire.JobID       `json:"jobId,omitzero"`     // reserved for the file's own digest; empty if Unsealed
	ChunkSize int              `json:"chunkSize,omitzero"` // of the profile; zero: the default's, as of files before it was noted
	MaxLinks  int              `json:"maxLinks,omitzero"`  // likewise
	OCR       bool             `json:"ocr,omitzero"`       // its text is asked for
	SHA1      string           `json:"sha1,omitzero"`      // hex; only where OCR is set
	Uploaded  []wire.ArchiveID `json:"uploaded"`
	Committed []wire.ArchiveID `json:"committed,omitempty"`
	Lost      []wire.ArchiveID `json:"lost,omitempty"` // said that they do not know the upload
}

func (f *file) commit() wire.BlobCommit {
	return wire.BlobCommit{Size: f.Size, SHA256: f.SHA256, CID: f.CID, ChunkSize: f.ChunkSize, MaxLinks: f.MaxLinks}
}

// undecided are the archives that got the bytes and have not said whether they
// kept them.
func (f *file) undecided() []wire.ArchiveID {
	return slices.DeleteFunc(slices.Clone(f.Uploaded), func(id wire.ArchiveID) bool {
		return slices.Contains(f.Committed, id) || slices.Contains(f.Lost, id)
	})
}

// part is one record of a submission.
type part struct {
	Kind     wire.Kind        `json:"kind"`
	Name     string           `json:"name,omitzero"`
	Size     int64            `json:"size"`
	SHA256   wire.Digest      `json:"sha256"`
	RecordID wire.RecordID    `json:"recordId"`
	File     int              `json:"file,omitzero"` // 1 + index into Files; 0: not a file
	Acks     []wire.ArchiveID `json:"acks,omitempty"`
	Lost     wire.ArchiveID   `json:"lost,omitzero"` // it was lost with this archive and no other has it; empty: not lost
}

func (s *submission) ref() ref { return ref{s.Tenant, s.ID} }

// ended reports whether the submission reached its final status.
func (s *submission) ended() bool { return s.Status != wire.StatusPending }

// failure is why a submission failed, for its sender.
func (s *submission) failure() error {
	return fault.New(fault.ParseKind(s.ReasonKind), s.ReasonCode, "%s", s.Reason)
}

// idle reports whether nothing is left to do: it has ended, and every record
// has all its copies or will never be put.
func (s *submission) idle() bool {
	return s.ended() && (s.Copied || s.Status == wire.StatusFailed)
}

// copies is the smallest number of acknowledgements any part has that is not lost
// for good: of that nobody can make a copy.
func (s *submission) copies() int {
	least, lost := -1, false
	for i := range s.Parts {
		if lost = s.Parts[i].Lost != ""; lost {
			continue
		}
		if n := len(s.Parts[i].Acks); least < 0 || n < least {
			least = n
		}
	}
	if least < 0 && lost {
		return math.MaxInt // none is wanting
	}
	return max(least, 0)
}

// spread counts what archives have said about the records and files: it grows
// with every answer that is worth keeping.
func (s *submission) spread() (n int) {
	for i := range s.Parts {
		n += len(s.Parts[i].Acks)
	}
	for i := range s.Files {
		n += len(s.Files[i].Committed) + len(s.Files[i].Lost)
	}
	return n
}

// has reports whether an archive acknowledged every record.
func (s *submission) has(id wire.ArchiveID) bool {
	return !slices.ContainsFunc(s.Parts, func(p part) bool { return !slices.Contains(p.Acks, id) })
}

func (s *submission) retryAt(now time.Time, delay time.Duration, code, kind, reason string) {
	s.Attempts++
	s.NextAttempt = wire.At(now.Add(delay))
	s.ReasonCode, s.ReasonKind, s.Reason = code, kind, reason
}

func (s *submission) cleared() {
	s.NextAttempt, s.ReasonCode, s.ReasonKind, s.Reason = "", "", "", ""
}

// accepted is the answer that the submission's sender gets, also when he asks
// again.
// includeAttached is the wish of this request, which may differ from the first.
func (s *submission) accepted(includeAttached bool) wire.Accepted {
	a := wire.Accepted{
		JobID: s.shownJobID(), SubmissionID: s.ID, Status: s.Status, SHA256: s.Digest,
		HashedFrom: s.HashedFrom, StatusURL: s.statusURL(includeAttached), Parts: []wire.AcceptedPart{},
		Reason: s.Reason, NextAttemptAt: s.NextAttempt,
	}
	for _, p := range s.Parts {
		ap := wire.AcceptedPart{Kind: p.Kind, Name: p.Name, Size: p.Size, SHA256: p.SHA256, RecordID: p.RecordID, Copies: len(p.Acks)}
		if p.File > 0 {
			ap.CID = s.Files[p.File-1].CID
		}
		a.Parts = append(a.Parts, ap)
	}
	if s.Sealed {
		a.AlreadySealed = new(s.AlreadySealed)
	}
	return a
}

// statusURL is where the job of this submission is found; "" if it has none.
func (s *submission) statusURL(includeAttached bool) string {
	if s.Unsealed {
		return ""
	}
	url := "/zapier/v1/timestamp/" + string(s.shownJobID()) + "?submission=" + string(s.ID)
	if includeAttached != s.IncludeAttached {
		url += "&includeAttached=" + strconv.FormatBool(includeAttached)
	}
	return url
}

// fileRecord is the id of the record that describes the file.
func (s *submission) fileRecord(i int) wire.RecordID {
	for _, p := range s.Parts {
		if p.File == i+1 {
			return p.RecordID
		}
	}
	return wire.RecordID{}
}

// clone returns a copy that shares nothing with s.
func (s *submission) clone() *submission {
	c := *s
	c.Files, c.Parts = slices.Clone(s.Files), slices.Clone(s.Parts)
	for i := range c.Files {
		f := &c.Files[i]
		f.Uploaded, f.Committed, f.Lost = slices.Clone(f.Uploaded), slices.Clone(f.Committed), slices.Clone(f.Lost)
	}
	for i := range c.Parts {
		c.Parts[i].Acks = slices.Clone(c.Parts[i].Acks)
	}
	return &c
}

// shownJobID is the chain's job id once it is known.
func (s *submission) shownJobID() wire.JobID {
	if s.SealJobID != "" {
		return s.SealJobID
	}
	return s.JobID
}

func addArchive(list []wire.ArchiveID, id wire.ArchiveID) []wire.ArchiveID {
	at, found := slices.BinarySearch(list, id)
	if found {
		return list
	}
	return slices.Insert(list, at, id)
}
