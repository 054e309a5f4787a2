package splitter

import (
	"fmt"
	"slices"

	"github.com/verae/archive/wire"
)

// Content types of the records that [Split] makes. They are part of a record's
// id and never change.
const (
	PublicContentType = "application/json"
	SealedContentType = "application/vnd.verae.sealed" // the vault's ciphertext
)

// Stamp is what every record of a submission has in common. It is made once, at
// Accept.
type Stamp struct {
	SubmissionID wire.SubmissionID
	TenantID     wire.TenantID
	AttachedAt   wire.Time
}

// A Sealer encrypts private metadata of the given kind, which becomes the
// part-th record of its submission. What it returns is stored.
type Sealer func(part int, kind wire.Kind, plaintext []byte) ([]byte, error)

// Split makes the records of a request, in the order of their parts: public
// metadata, private metadata, files, attachments. Part is the ordinal, from 0; a
// request that is a digest and nothing else has no records. Private metadata
// appears only as seal returned it, and is shared with nobody; all other records
// carry the request's shares. Bodies are not copied. The id of a file is that of
// its record and is left to [wire.PutRecord.ID].
//
// The records of one request and stamp are the same on every call, as far as
// seal is.
func Split(req *Request, stamp Stamp, seal Sealer) ([]wire.PutRecord, error) {
	s := splitting{req: req, stamp: stamp}
	if req.PublicMetadata != nil {
		s.add(wire.PutRecord{Kind: wire.KindMetadata, ContentType: PublicContentType, Body: req.PublicMetadata, ShareWith: req.shares()})
	}
	if req.PrivateMetadata != nil {
		sealed, err := seal(len(s.records), wire.KindPrivateMetadata, req.PrivateMetadata)
		if err != nil {
			return nil, fmt.Errorf("splitter: seal the private metadata: %w", err)
		}
		s.add(wire.PutRecord{Kind: wire.KindPrivateMetadata, ContentType: SealedContentType, Body: sealed})
	}
	for i := range req.Files {
		f := &req.Files[i]
		s.add(wire.PutRecord{Kind: wire.KindFile, ShareWith: req.shares(), File: &wire.File{
			Name: f.Name, Size: f.Size, SHA256: f.SHA256, CID: f.CID, ContentType: f.ContentType,
		}})
	}
	for _, a := range req.Attachments {
		s.add(wire.PutRecord{Kind: a.Kind, ContentType: a.ContentType, Body: a.Body, ShareWith: req.shares()})
	}
	return s.records, s.check()
}

// splitting is a list of records under way.
type splitting struct {
	req     *Request
	stamp   Stamp
	records []wire.PutRecord
}

// add completes a record with what all have in common.
func (s *splitting) add(r wire.PutRecord) {
	r.SHA256, r.Part = s.req.Subject, len(s.records)
	r.SubmissionID, r.TenantID, r.AttachedAt = s.stamp.SubmissionID, s.stamp.TenantID, s.stamp.AttachedAt
	s.records = append(s.records, r)
}

// check holds every record against the contract. A request that was read passes;
// what fails is a mistake of ours, and must not reach an archive.
func (s *splitting) check() error {
	for i, r := range s.records {
		if err := r.Check(); err != nil {
			return fmt.Errorf("splitter: record %d: %w", i, err)
		}
	}
	return nil
}

// shares returns a copy for one record.
func (r *Request) shares() []wire.Share { return slices.Clone(r.ShareWith) }
