package archive

import (
	"github.com/verae/archive/bloom"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// sight is what the filters said before the store was read, and what is seen there
// of it: the observed error rates come from that.
type sight struct {
	keys   bool          // the filter keys was complete, and let the digest through
	views  bool          // the filter views was, and let a pair through
	viewer wire.TenantID // of the pair

	found  bool // there is something that gives the pair
	unsure bool // something that was not read may give it
}

// mayShow reports whether there may be something under digest that viewer may see:
// with him, or with everybody. False is final.
func (n *Node) mayShow(viewer wire.TenantID, digest [digestLen]byte) (s sight, ok bool) {
	s = sight{views: n.views.set.Ready(), viewer: viewer}
	if n.views.set.TestHash(mirror.Pair(n.secret.Key, viewer, digest)) == bloom.Maybe {
		return s, true
	}
	s.viewer = wire.Public
	return s, n.views.set.TestHash(bloom.HashKey(n.public, digest)) == bloom.Maybe
}

// row sees a row under the digest. there says that its record is not lost, read that
// the record is read if it is there.
func (s *sight) row(r row, there, read bool) {
	switch {
	case r.tenant == s.viewer:
		s.found = true
	case there && !read && r.mayShow(s.viewer):
		s.unsure = true
	}
}

// record sees a record under the digest.
func (s *sight) record(r *wire.Record) {
	for _, share := range r.ShareWith {
		s.found = s.found || share.TenantID == s.viewer && share.Admits(r.Kind)
	}
}

// confirm tells the filters what came of their "perhaps", after the store was read:
// whether there was anything under the digest, for whomever, and whether it was for
// the viewer.
func (n *Node) confirm(s sight, any bool) {
	if s.keys {
		n.keys.set.Confirm(any)
	}
	if s.views && (s.found || !s.unsure) {
		n.views.set.Confirm(s.found)
	}
}
