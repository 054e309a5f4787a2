package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// Body is the exact content of a record.
type Body struct {
	Kind        wire.Kind
	ContentType string
	Bytes       []byte
	SHA256      wire.Digest
}

// File is a file that a tenant may read, and where it is.
type File struct {
	wire.File
	ArchiveIDs []wire.ArchiveID
	// AllHeard says that none but ArchiveIDs has a record of it: every enrolled
	// archive was heard, and nobody else answered with one.
	AllHeard bool
	// Public says that an enrolled archive has a record that shares the file, under
	// this name and type, with everybody: a tenant's own name for what another
	// published is his alone. It may be false while one is silent.
	Public bool
	// Again looks once more and waits for every archive; nil if all were waited for.
	// It is for whoever got the bytes from none of ArchiveIDs.
	Again func(context.Context) (File, error)
}

// Block says where a block of a tenant's files may be: on archives that have a
// file record of his under its digest. Whether it is a block, and not the digest
// of something else, they know.
type Block struct {
	ArchiveIDs []wire.ArchiveID
	AllHeard   bool                                 // nobody else can have it
	Again      func(context.Context) (Block, error) // as that of File
}

// Record returns the exact bytes of a record. Private metadata is opened for
// its tenant, or given as it is stored when sealed is set. What is not there
// and what is not the caller's look the same: NotFound.
func (e *Engine) Record(ctx context.Context, tenant wire.TenantID, id wire.RecordID, sealed bool) (Body, error) {
	missing := fault.New(fault.NotFound, "RECORD_NOT_FOUND", "id: there is no such record for this key's tenant")
	held, _, err := e.one(ctx, tenant, wire.Digest(id), missing, func(r *wire.Record) bool { return r.ID == id })
	if err != nil {
		return Body{}, err
	}
	r := held.Record
	if r.Kind == wire.KindFile {
		return Body{}, fault.New(fault.NotFound, "RECORD_IS_FILE", "id: the record describes a file: its bytes are at /zapier/v1/files/%s", id)
	}
	if len(r.Body) == 0 && r.BodySHA256 != (wire.PutRecord{}).BodySHA256() {
		return Body{}, missing // shared as a proof only
	}
	if r.Kind != wire.KindPrivateMetadata || sealed {
		return Body{r.Kind, r.ContentType, r.Body, r.BodySHA256}, nil
	}
	plaintext, err := e.opener(ctx, tenant)(r)
	if err != nil {
		return Body{}, fmt.Errorf("jobs: record %s: %w", id, err)
	}
	return Body{r.Kind, "application/json", plaintext, (wire.PutRecord{Body: plaintext}).BodySHA256()}, nil
}

// File returns the file that a record describes.
func (e *Engine) File(ctx context.Context, tenant wire.TenantID, id wire.RecordID) (File, error) {
	missing := fault.New(fault.NotFound, "FILE_NOT_FOUND", "id: there is no such file for this key's tenant")
	return e.file(ctx, fileAsked{tenant, wire.Digest(id), missing, func(r *wire.Record) bool { return fileRecord(r) && r.ID == id }}, true)
}

// FileByCID returns a file by its CID; digest is the CID's own.
func (e *Engine) FileByCID(ctx context.Context, tenant wire.TenantID, cid string, digest wire.Digest) (File, error) {
	missing := fault.New(fault.NotFound, "CID_NOT_FOUND", "cid: there is no such file for this key's tenant")
	return e.file(ctx, fileAsked{tenant, digest, missing, func(r *wire.Record) bool { return fileRecord(r) && r.File.CID == cid }}, true)
}

func fileRecord(r *wire.Record) bool { return r.Kind == wire.KindFile && r.File != nil }

// fileAsked is a file that is looked for.
type fileAsked struct {
	tenant  wire.TenantID
	key     wire.Digest
	missing error // what is said if it is not there
	is      func(*wire.Record) bool
}

// file finds a file; soon: without waiting for silent archives when one has it.
func (e *Engine) file(ctx context.Context, q fileAsked, soon bool) (File, error) {
	found, err := e.gatherFiles(ctx, q, soon)
	if err != nil {
		return File{}, err
	}
	held, err := first(&found, q.missing, q.is)
	if err != nil {
		return File{}, err
	}
	f := File{File: *held.Record.File}
	f.ID = held.Record.ID
	// Whoever has a record of the same bytes can deliver them.
	holders := slices.Clone(held.ArchiveIDs)
	for i := range found.Records {
		h := &found.Records[i]
		if !q.is(&h.Record) || h.Record.File.SHA256 != f.SHA256 {
			continue
		}
		for _, id := range h.ArchiveIDs {
			if !slices.Contains(holders, id) {
				holders = append(holders, id)
			}
		}
		_, public := wire.Visible(&h.Record, wire.Public)
		public = public && h.Record.File.Name == f.Name && h.Record.File.ContentType == f.ContentType
		f.Public = f.Public || public && found.Vouched(h)
	}
	var all bool
	f.ArchiveIDs, all = e.askable(holders)
	f.AllHeard = all && !doubtful(found)
	if soon && len(found.Missing) > 0 {
		f.Again = func(ctx context.Context) (File, error) { return e.file(ctx, q, false) }
	}
	return f, nil
}

// fileGatherer is a Gatherer that can ask for files and their blocks.
type fileGatherer interface {
	GatherFiles(ctx context.Context, digest wire.Digest, tenant wire.TenantID, enough func(*wire.Record) bool) (receipts.Gathered, error)
	GatherBlock(ctx context.Context, digest wire.Digest, tenant wire.TenantID, soon bool) (receipts.Gathered, error)
}

func (e *Engine) gatherFiles(ctx context.Context, q fileAsked, soon bool) (receipts.Gathered, error) {
	g, ok := e.cfg.Gatherer.(fileGatherer)
	if !ok {
		return e.gather(ctx, q.key, q.tenant, nil)
	}
	enough := q.is
	if !soon {
		enough = nil
	}
	found, err := g.GatherFiles(ctx, q.key, q.tenant, enough)
	if err != nil {
		return found, err
	}
	return e.amend(q.key, q.tenant, found)
}

// Block looks for a block, by its digest, among all files that a tenant may read.
// NotFound, CID_NOT_FOUND, is said only when every enrolled archive was heard.
// Others are not believed: nothing in a record says which blocks its file has.
func (e *Engine) Block(ctx context.Context, tenant wire.TenantID, digest wire.Digest) (Block, error) {
	return e.block(ctx, tenant, digest, true)
}

func (e *Engine) block(ctx context.Context, tenant wire.TenantID, digest wire.Digest, soon bool) (Block, error) {
	g, ok := e.cfg.Gatherer.(fileGatherer)
	if !ok {
		return Block{}, fault.New(fault.Internal, "", "jobs: this gatherer does not look for blocks")
	}
	found, err := g.GatherBlock(ctx, digest, tenant, soon)
	if err == nil {
		found, err = e.amend(digest, tenant, found)
	}
	if err != nil {
		return Block{}, err
	}
	var holders []wire.ArchiveID
	for i := range found.Records {
		if r := &found.Records[i]; fileRecord(&r.Record) {
			ids, _ := e.askable(r.ArchiveIDs)
			holders = append(holders, ids...)
		}
	}
	if len(holders) == 0 {
		return Block{}, absent(found, fault.New(fault.NotFound, "CID_NOT_FOUND", "cid: there is no such block for this key's tenant"))
	}
	slices.Sort(holders)
	b := Block{ArchiveIDs: slices.Compact(holders), AllHeard: !doubtful(found)}
	if soon && len(found.Missing) > 0 {
		b.Again = func(ctx context.Context) (Block, error) { return e.block(ctx, tenant, digest, false) }
	}
	return b, nil
}

// askable returns those of the holders that are asked for bytes: of one that is
// not enrolled nobody could tell wrong bytes from right ones before the last. all
// is false if one is left out.
func (e *Engine) askable(holders []wire.ArchiveID) (ids []wire.ArchiveID, all bool) {
	enrolled := e.cfg.Archives.Enrolled()
	ids = slices.DeleteFunc(slices.Clone(holders), func(id wire.ArchiveID) bool { return !slices.Contains(enrolled, id) })
	return ids, len(ids) == len(holders)
}

// one is first of what is gathered under key.
func (e *Engine) one(ctx context.Context, tenant wire.TenantID, key wire.Digest, missing error, match func(*wire.Record) bool) (receipts.Held, receipts.Gathered, error) {
	found, err := e.gather(ctx, key, tenant, nil)
	if err != nil {
		return receipts.Held{}, found, err
	}
	held, err := first(&found, missing, match)
	return held, found, err
}

// first returns the first record that matches, of an enrolled archive if there is
// one. It says that there is none only when every enrolled archive was heard; of
// others, which may answer hits alone, silence for the whole wait is all there ever
// is.
func first(found *receipts.Gathered, missing error, match func(*wire.Record) bool) (receipts.Held, error) {
	var best *receipts.Held
	for i := range found.Records {
		if h := &found.Records[i]; match(&h.Record) && (best == nil || !found.Vouched(best) && found.Vouched(h)) {
			best = h
		}
	}
	if best != nil {
		return *best, nil
	}
	return receipts.Held{}, absent(*found, missing)
}

// absent is what is said when nothing was found: missing, if nobody can have it.
func absent(found receipts.Gathered, missing error) error {
	if found.Reason == wire.ReasonLost && len(found.Missing) == 0 {
		return fault.New(fault.NotFound, "RECORD_LOST", "id: it was stored, and no archive has it any more: the operator has it on a list; send it again if you can")
	}
	if doubtful(found) {
		return unheard(found)
	}
	return missing
}

// doubtful reports whether an enrolled archive may have what was not found.
func doubtful(found receipts.Gathered) bool {
	return len(found.Missing) > 0 || found.Reason == wire.ReasonLost
}

// unheard says that nothing was found and that somebody may have it.
func unheard(found receipts.Gathered) error {
	return fault.New(fault.Transient, "ARCHIVES_MISSING",
		"archives: %d of %d did not answer and may have it: ask again", len(found.Missing), len(found.Expected)).After(retryAfter)
}
