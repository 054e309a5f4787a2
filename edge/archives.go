package edge

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Roster shows the archives to operators, and does what they decide about them.
// All methods may be called from many goroutines; their errors carry a fault
// kind, NotFound for an archive that is not enrolled.
type Roster interface {
	// Archives lists the enrolled archives, sorted by id.
	Archives() []ArchiveInfo
	// Accept admits a newer generation of an archive; an empty key stands for that
	// of the process that says hello.
	Accept(ctx context.Context, id wire.ArchiveID, generation int, key string) error
	// Retire takes an archive out of the roster. Without force it is a Conflict
	// while a record would have too few copies without it.
	Retire(ctx context.Context, id wire.ArchiveID, force bool) error
	// Lost lists records that were lost with an archive, behind the one named.
	Lost(ctx context.Context, id wire.ArchiveID, after wire.RecordID) (LostRecords, error)
}

// ArchiveInfo is one enrolled archive as an operator sees it. Records, Seq,
// Generation and LastHelloAt are as the archive last said, zero if it said
// nothing since this program started.
type ArchiveInfo struct {
	ArchiveID   wire.ArchiveID `json:"archiveId"`
	State       string         `json:"state"`           // up, draining, readonly, silent, quarantined, lost-records, fenced, unaccepted
	Reason      string         `json:"reason,omitzero"` // why it is readonly: DISK_FULL, DAMAGED, MARK_STALE and others
	Records     uint64         `json:"records"`
	Seq         uint64         `json:"seq"` // of its newest record
	Generation  int            `json:"generation"`
	LastHelloAt wire.Time      `json:"lastHelloAt,omitzero"`

	Accepted   int          `json:"acceptedGeneration,omitzero"`
	Remembered uint64       `json:"rememberedSeq,omitzero"` // the most that it acknowledged or told in it
	Stubs      uint64       `json:"lostRecords,omitzero"`   // whose leaf it proves and whose bytes it lost, by its own word
	Lost       *ArchiveLoss `json:"lost,omitempty"`
	Unaccepted *Unaccepted  `json:"unaccepted,omitempty"`
	Advice     string       `json:"advice,omitzero"` // what to do

	Mirror *ArchiveMirror `json:"mirror,omitempty"` // of its filter; absent: this aggregator keeps no mirrors
}

// ArchiveMirror is the aggregator's copy of an archive's filter. Only a trusted one
// spares the archive questions.
type ArchiveMirror struct {
	State  string `json:"state"`           // none, loading, behind, trusted
	Reason string `json:"reason,omitzero"` // why it is not trusted; for people
	Lag    uint64 `json:"lag,omitzero"`    // hashes that it is known to lack
	LagMs  int64  `json:"lagMs,omitzero"`  // for how long
	Bytes  uint64 `json:"bytes,omitzero"`
}

// ArchiveLoss says what an archive lost, or may have lost.
type ArchiveLoss struct {
	Reason     string    `json:"reason"` // BEHIND, FORKED, RESTORED
	Detail     string    `json:"detail"`
	Generation int       `json:"generation"`    // the one that lost
	Wanted     uint64    `json:"rememberedSeq"` // of it
	Seq        uint64    `json:"seq"`           // that it came back with
	At         wire.Time `json:"at"`
}

// Unaccepted is a newer generation that says hello and waits to be accepted.
type Unaccepted struct {
	Generation int    `json:"generation"`
	Key        string `json:"key"`
}

// LostRecords is some of the list of lost records of an archive. More says that
// the list goes on behind the last of them.
type LostRecords struct {
	ArchiveID  wire.ArchiveID    `json:"archiveId"`
	Accounting *jobs.Accounting  `json:"accounting,omitempty"` // how far it is accounted for; absent: it never was
	Records    []jobs.LostRecord `json:"records"`
	More       bool              `json:"more,omitzero"`
}

// acceptRequest is the body of a request to accept a generation.
type acceptRequest struct {
	Generation int    `json:"generation"`
	Key        string `json:"key,omitzero"`
}

// retireRequest is the body of a request to retire an archive.
type retireRequest struct {
	Force bool `json:"force,omitzero"`
}

// postAccept admits a generation of an archive, and lists the archives.
func (s *Server) postAccept(x *exchange) error {
	id, err := archiveAsked(x)
	if err != nil {
		return err
	}
	in, err := readOrder[acceptRequest](x)
	if err != nil {
		return err
	}
	if err := s.Roster.Accept(x.r.Context(), id, in.Generation, in.Key); err != nil {
		return err
	}
	return s.getArchives(x)
}

// postRetire retires an archive, and lists those that are left.
func (s *Server) postRetire(x *exchange) error {
	id, err := archiveAsked(x)
	if err != nil {
		return err
	}
	in, err := readOrder[retireRequest](x)
	if err != nil {
		return err
	}
	if err := s.Roster.Retire(x.r.Context(), id, in.Force); err != nil {
		return err
	}
	return s.getArchives(x)
}

// getLost lists the records that were lost with an archive.
func (s *Server) getLost(x *exchange) error {
	id, err := archiveAsked(x)
	if err != nil {
		return err
	}
	q, err := x.query()
	if err != nil {
		return err
	}
	text, err := q.text("after")
	if err != nil {
		return err
	}
	var after wire.RecordID
	if text != "" {
		if after, err = wire.ParseRecordID(text); err != nil {
			return badParameter("after", "%w", err)
		}
	}
	list, err := s.Roster.Lost(x.r.Context(), id, after)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, list)
}

// archiveAsked reads the archive id of the path.
func archiveAsked(x *exchange) (wire.ArchiveID, error) {
	id, err := wire.ParseArchiveID(x.r.PathValue("id"))
	if err != nil {
		return id, badParameter("id", "%w", err)
	}
	return id, nil
}

// maxOrder bounds the body of an operator's request, in bytes.
const maxOrder = 4 << 10

// readOrder reads the body of an operator's request, a JSON object.
func readOrder[T any](x *exchange) (in T, err error) {
	contentType, _, err := oneHeader(x.r.Header, "Content-Type")
	if err != nil {
		return in, err
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != typeJSON {
		return in, mediaType("this is asked for with application/json")
	}
	body, err := io.ReadAll(io.LimitReader(x.body, maxOrder+1))
	switch {
	case err != nil:
		return in, fault.New(fault.Invalid, splitter.CodeIncompleteBody, "the body did not arrive whole: %w", err)
	case len(body) > maxOrder:
		return in, fault.New(fault.Invalid, splitter.CodeTooLarge, "the body is over the limit of %d bytes", maxOrder)
	}
	if in, err = wire.Decode[T](body); err != nil {
		refusal := fault.New(fault.Invalid, splitter.CodeBadJSON, "the body is not the JSON object that is expected here: %w", err)
		if e, ok := errors.AsType[*wire.Error](err); ok {
			return in, refusal.InField(e.Field)
		}
		return in, refusal
	}
	return in, nil
}
