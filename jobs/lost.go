package jobs

import (
	"bytes"
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// LostRecord is a record that an archive acknowledged and that no archive has.
type LostRecord struct {
	RecordID     wire.RecordID     `json:"recordId"`
	Kind         wire.Kind         `json:"kind"`
	TenantID     wire.TenantID     `json:"tenantId"`
	SubmissionID wire.SubmissionID `json:"submissionId"`
	SHA256       wire.Digest       `json:"sha256"` // the subject
	FoundAt      wire.Time         `json:"foundAt"`
}

// Accounting is how far the acknowledgements of an archive that lost records are
// accounted for.
type Accounting struct {
	Submissions uint64    `json:"submissions"`        // of the job store looked at, in this walk
	Records     uint64    `json:"records"`            // of them acknowledged by the archive
	Absent      uint64    `json:"absent"`             // acknowledged, and not there
	Lost        uint64    `json:"lost"`               // of these on no archive
	Undecided   uint64    `json:"undecided,omitzero"` // somebody who may have them can not be asked: it is tried again
	StartedAt   wire.Time `json:"startedAt"`
	DoneAt      wire.Time `json:"doneAt,omitzero"`
}

// lostKey is the key of a row of the list of lost records.
func lostKey(archive wire.ArchiveID, id wire.RecordID) []byte {
	return rowKey(rowLost, []byte(archive), []byte{0}, id[:])
}

// vanished are the keys under which a lost record of s is found to be one.
func (s *submission) vanished(p *part) (keys [][]byte) {
	digests := []wire.Digest{s.Digest, wire.Digest(p.RecordID)}
	if p.File > 0 {
		digests = append(digests, s.Files[p.File-1].SHA256)
	}
	for _, d := range digests {
		keys = append(keys, rowKey(rowVanished, tenantTag(s.Tenant), d[:], p.RecordID[:]))
	}
	return keys
}

// honest calls no answer of the archives complete in which a record of the tenant
// is missing that is known to be lost. An answer in which an enrolled archive is
// missing says no more than that.
func (e *Engine) honest(digest wire.Digest, tenant wire.TenantID, found receipts.Gathered) (receipts.Gathered, error) {
	if len(found.Expected) == 0 || len(found.Missing) > 0 || !e.losses.Load() {
		return found, nil
	}
	prefix := rowKey(rowVanished, tenantTag(tenant), digest[:])
	err := e.store.view(func(r pebble.Reader) error {
		return scan(r, prefix, func(key, _ []byte) (bool, error) {
			id := wire.RecordID(key[len(prefix):])
			if slices.ContainsFunc(found.Records, func(h receipts.Held) bool { return h.Record.ID == id }) {
				return true, nil // it came back, and is taken off the list soon
			}
			found.Complete, found.Reason = false, wire.ReasonLost
			return false, nil
		})
	})
	return found, err
}

// maxLostPage is how many lost records are returned at a time.
const maxLostPage = 1000

// LostRecords returns records that were lost with an archive, in the order of
// their ids, behind the one named, zero for the first; and how far the archive is
// accounted for, nil if it never was. more says that there are others.
func (e *Engine) LostRecords(archive wire.ArchiveID, after wire.RecordID) (list []LostRecord, more bool, a *Accounting, err error) {
	list = []LostRecord{}
	prefix := lostKey(archive, wire.RecordID{})
	prefix = prefix[:len(prefix)-len(wire.RecordID{})]
	from := prefix
	if !after.IsZero() {
		from = append(lostKey(archive, after), 0)
	}
	err = e.store.view(func(r pebble.Reader) error {
		return scanFrom(r, prefix, from, func(key, row []byte) (bool, error) {
			if more = len(list) == maxLostPage; more {
				return false, nil
			}
			v, err := decodeRow[LostRecord](key, row)
			list = append(list, v)
			return err == nil, err
		})
	})
	if err != nil {
		return nil, false, nil, err
	}
	state, err := e.accountOf(archive)
	if err == nil && state != nil {
		a = &Accounting{
			Submissions: state.Submissions, Records: state.Records, Absent: state.Absent, Lost: state.Lost,
			Undecided: state.Undecided, StartedAt: state.StartedAt, DoneAt: state.DoneAt,
		}
	}
	return list, more, a, err
}

// countLost counts the list of lost records.
func (e *Engine) countLost() error {
	n := 0
	err := e.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowLost}, func([]byte, []byte) (bool, error) { n++; return true, nil })
	})
	e.metrics.lost.Set(float64(n))
	e.losses.Store(n > 0)
	return err
}

// Needed returns a record that would have fewer than PUT_COPIES copies without an
// archive, and whether there is one. Copies that archives made among themselves
// count where their archive can be asked. It reads the whole job store when there
// is none: a few seconds a million submissions.
func (e *Engine) Needed(ctx context.Context, archive wire.ArchiveID) (record wire.RecordID, submission wire.SubmissionID, needed bool, err error) {
	enrolled := e.cfg.Archives.Enrolled()
	for after := []byte(nil); ; {
		keys, list, err := e.submissionsAfter(after)
		if err != nil {
			return record, submission, false, err
		}
		found, err := e.neededOf(ctx, archive, enrolled, list)
		if err != nil {
			return record, submission, false, err
		}
		if found != nil {
			return found.record, found.submission, true, nil
		}
		if len(keys) < workPage {
			return record, submission, false, nil
		}
		if after = bytes.Clone(keys[workPage-1]); ctx.Err() != nil {
			return record, submission, false, ctx.Err()
		}
	}
}
