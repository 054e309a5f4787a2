package jobs

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// gather asks the archives, and adds what this store knows of how long the
// tenant's records are retained: an archive that answers may not have heard yet.
func (e *Engine) gather(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind) (receipts.Gathered, error) {
	found, err := e.cfg.Gatherer.Gather(ctx, digest, tenant, kinds)
	if err != nil {
		return found, err
	}
	return e.amend(digest, tenant, found)
}

// amend corrects what archives answered by what this store knows: which records
// are lost, and how long the tenant's are retained.
func (e *Engine) amend(digest wire.Digest, tenant wire.TenantID, found receipts.Gathered) (receipts.Gathered, error) {
	found, err := e.honest(digest, tenant, found)
	if err != nil || !e.steered.Load() {
		return found, err
	}
	known := map[wire.Digest]map[wire.RecordID]*wire.Retention{}
	for i := range found.Records {
		r := &found.Records[i].Record
		if r.TenantID != tenant {
			continue
		}
		here, ok := known[r.SHA256]
		if !ok {
			if here, err = e.standing(tenant, r.SHA256); err != nil {
				return receipts.Gathered{}, err
			}
			known[r.SHA256] = here
		}
		r.Retention = r.Retention.Merge(here[wire.RecordID{}]).Merge(here[r.ID])
	}
	return found, nil
}

// standing returns what this store knows of a tenant's targets under a digest;
// the zero id is all of them.
func (e *Engine) standing(tenant wire.TenantID, digest wire.Digest) (map[wire.RecordID]*wire.Retention, error) {
	here := map[wire.RecordID]*wire.Retention{}
	prefix := rowKey(rowSteering, tenantTag(tenant), digest[:])
	err := e.store.view(func(r pebble.Reader) error {
		return scan(r, prefix, func(key, row []byte) (bool, error) {
			s, err := decodeRow[steering](key, row)
			if err == nil {
				here[wire.RecordID(key[len(prefix):])] = s.State
			}
			return true, err
		})
	})
	return here, err
}

// findSteered looks whether there ever was a decision.
func (e *Engine) findSteered() error {
	return e.store.view(func(r pebble.Reader) error {
		_, ok, err := last(r, []byte{rowSteering})
		e.steered.Store(ok)
		return err
	})
}

// hasParts reports whether the tenant submitted what the request is about. Its
// records may be on no archive yet, or on none that answered.
func (e *Engine) hasParts(q Steering) (found bool, err error) {
	err = e.store.view(func(r pebble.Reader) error {
		for _, listed := range []byte{rowByDigest, rowUnsealed} {
			prefix := rowKey(listed, tenantTag(q.TenantID), q.SHA256[:])
			err := scan(r, prefix, func(key, _ []byte) (bool, error) {
				s, err := readSubmission(r, append(tenantTag(q.TenantID), key[len(prefix):]...))
				if err != nil {
					return false, err
				}
				for _, p := range s.Parts {
					found = found || s.Status != wire.StatusFailed && (q.Control.RecordID.IsZero() || p.RecordID == q.Control.RecordID)
				}
				return !found, nil
			})
			if err != nil || found {
				return err
			}
		}
		return nil
	})
	return found, err
}
