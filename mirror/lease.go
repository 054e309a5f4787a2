package mirror

import (
	"encoding/binary"
	"sort"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// maxBehind is how many hashes one may lack to get his first lease, none of them
// older than MaxLag. Puts wait for him from then on, so he is to be nearly there.
const maxBehind = 4 * wire.MaxDeltaHashes

// Lease gives or renews a lease, or ends one. It fails with what Refuse said, and
// with
//   - MIRROR_FEED, Conflict, for another feed;
//   - LEASE_BEHIND, Transient, for one who lacks too much, or for too long: he has
//     to ask for the deltas first;
//   - LEASES, Transient, beyond MaxHolders;
//   - the error of FeedConfig.Before.
func (f *Feed) Lease(q wire.LeaseRequest) (wire.LeaseGrant, error) {
	if q.Release {
		return f.release(q), nil
	}
	now := f.clock()
	if err := f.announce(q); err != nil {
		return f.refused(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h, err := f.renew(q, now)
	if err != nil {
		f.stats.Refused++
		return wire.LeaseGrant{}, err
	}
	f.stats.Granted++
	return wire.LeaseGrant{ArchiveID: f.cfg.Archive, Feed: f.id, LeaseMs: f.lease.Milliseconds(), Need: h.need, At: f.at}, nil
}

func (f *Feed) refused(err error) (wire.LeaseGrant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Refused++
	return wire.LeaseGrant{}, err
}

// announce calls Before, once, for a request that looks good.
func (f *Feed) announce(q wire.LeaseRequest) error {
	f.mu.Lock()
	err := f.admits(q)
	f.mu.Unlock()
	if err != nil || f.cfg.Before == nil {
		return err
	}
	f.before.Lock()
	defer f.before.Unlock()
	if f.told {
		return nil
	}
	if err := f.cfg.Before(); err != nil {
		return err
	}
	f.told = true
	return nil
}

// admits reports why a request can not be granted whoever asks. mu is held.
func (f *Feed) admits(q wire.LeaseRequest) error {
	if f.closed != nil {
		return f.closed
	}
	return f.knows(q.Feed, q.At)
}

// renew enters a lease. now is when it was asked for. mu is held.
func (f *Feed) renew(q wire.LeaseRequest, now time.Duration) (*holder, error) {
	if err := f.admits(q); err != nil {
		return nil, err
	}
	f.expire(f.clock())
	h := f.holders[q.Holder]
	if h == nil {
		h = &holder{at: q.At, need: f.at, until: now + f.lease}
		if f.at-q.At > maxBehind || f.lag(h, now) > MaxLag {
			return nil, behind(f.at - q.At)
		}
		if len(f.holders) >= MaxHolders {
			return nil, fault.New(fault.Transient, "LEASES", "mirror: %d aggregators have leases, and there are no more", MaxHolders).After(f.lease)
		}
		f.holders[q.Holder] = h
		f.leased.Store(true)
		return h, nil
	}
	if q.At > h.at {
		h.at = q.At
		f.progress()
	}
	if f.lag(h, now) > MaxLag {
		return nil, behind(f.at - h.at)
	}
	h.until = max(h.until, now+f.lease)
	return h, nil
}

func behind(hashes uint64) error {
	return fault.New(fault.Transient, "LEASE_BEHIND", "mirror: the holder lacks %d hashes; ask for the deltas first", hashes)
}

// lag returns how long ago the oldest delta was sent that h has not acknowledged.
// mu is held.
func (f *Feed) lag(h *holder, now time.Duration) time.Duration {
	if h.at >= f.at {
		return 0
	}
	if !f.has(h.at) {
		return MaxLag + f.lease // it is so old that it is not kept
	}
	i := sort.Search(len(f.kept), func(i int) bool { return f.kept[i].to > h.at })
	return now - f.kept[i].when
}

// release ends a lease, of whichever feed: its holder relies on nothing any more.
func (f *Feed) release(q wire.LeaseRequest) wire.LeaseGrant {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holders[q.Holder] != nil {
		f.end(q.Holder)
	}
	return wire.LeaseGrant{ArchiveID: f.cfg.Archive, Feed: f.id, Need: f.at, At: f.at}
}

// encode writes hashes as deltas have them.
func encode(hashes []bloom.Hash) []byte {
	b := make([]byte, 0, wire.HashSize*len(hashes))
	for _, h := range hashes {
		b = binary.LittleEndian.AppendUint64(b, h.A)
		b = binary.LittleEndian.AppendUint64(b, h.B)
	}
	return b
}

// decodeHash reads the first hash of b.
func decodeHash(b []byte) bloom.Hash {
	return bloom.Hash{A: binary.LittleEndian.Uint64(b), B: binary.LittleEndian.Uint64(b[8:]) | 1}
}
