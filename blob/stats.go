package blob

import "sync/atomic"

// Stats counts what a store did since it was opened.
type Stats struct {
	OpenUploads    int    // now
	Damaged        int    // files known to be damaged, now
	BytesReceived  uint64 // of uploads, whatever became of them
	Commits        uint64 // that added a root
	Duplicates     uint64 // commits of what was there
	Adopted        uint64 // commits that found the bytes in place, without this root
	LeavesVerified uint64 // leaves hashed for reading
	LeavesCached   uint64 // leaves read from memory, hashed before
}

type counters struct {
	received, commits, duplicates, adopted, verified, cached atomic.Uint64
}

// Stats returns the counts at this moment.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	uploads := len(s.uploads)
	s.mu.Unlock()
	return Stats{
		OpenUploads: uploads, Damaged: len(s.Damages()), BytesReceived: s.stats.received.Load(),
		Commits: s.stats.commits.Load(), Duplicates: s.stats.duplicates.Load(), Adopted: s.stats.adopted.Load(),
		LeavesVerified: s.stats.verified.Load(), LeavesCached: s.stats.cached.Load(),
	}
}
