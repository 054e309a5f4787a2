package wire

import "slices"

// rank orders the modes by what they admit; ModeNone and unknown modes admit
// nothing.
func rank(mode string) int { return slices.Index([]string{ModeProofs, ModeMetadata, ModeFiles}, mode) }

// Visible says what of rec the viewer may see by the shares written in it. The
// owner sees everything, which reads as ModeFiles. Others see what the best
// share that names them, or Public, admits. ok is false when the viewer may not
// learn that rec exists: without a share, for private metadata of others, for
// the file records of others below ModeFiles, and for control records, which
// steer and are shown to nobody.
//
// Later share records may change what the record itself says; whoever keeps
// them applies them first.
func Visible(rec *Record, viewer TenantID) (mode string, ok bool) {
	if rec.Kind.Control() {
		return "", false
	}
	if rec.TenantID == viewer {
		return ModeFiles, true
	}
	if rec.Kind == KindPrivateMetadata {
		return "", false
	}
	best := -1
	for _, s := range rec.ShareWith {
		if s.TenantID == viewer || s.TenantID == Public {
			if r := rank(s.Mode); r > best {
				best, mode = r, s.Mode
			}
		}
	}
	if best < 0 || rec.Kind == KindFile && mode != ModeFiles {
		return "", false
	}
	return mode, true
}

// Admits reports whether s, written in a record of a kind, lets those whom it names
// learn that the record exists. A viewer who is not the owner may see a record if
// one of its shares names him, or Public, and admits it: see Visible.
func (s Share) Admits(kind Kind) bool {
	switch {
	case kind.Control(), kind == KindPrivateMetadata:
		return false
	case kind == KindFile:
		return s.Mode == ModeFiles
	}
	return rank(s.Mode) >= 0
}

// For returns r as the viewer may see it, and whether he may see it at all. A
// viewer in ModeProofs gets no body; BodySHA256 stays, so that ComputeID still
// gives the id. The shares stay for the same reason: a grantee sees who else
// was named beside him. How long it is retained only its tenant sees. The result
// shares memory with r.
func (r Record) For(viewer TenantID) (Record, bool) {
	mode, ok := Visible(&r, viewer)
	if !ok {
		return Record{}, false
	}
	if mode == ModeProofs {
		if r.BodySHA256.IsZero() {
			r.BodySHA256 = r.Portable().BodySHA256()
		}
		r.Body = nil
	}
	if r.TenantID != viewer {
		r.Retention = nil
	}
	return r, true
}

// ParseShares reads shareWith as a request gives it: a list whose elements are
// tenant ids, each meaning ModeFiles, or objects {tenantId, mode}. "*" is
// Public. The result keeps the order; an empty list is nil.
func ParseShares(data []byte) ([]Share, error) {
	list, err := Decode[[]shareInput](data)
	if err != nil {
		return nil, err
	}
	var shares []Share
	for _, in := range list {
		shares = append(shares, Share(in))
	}
	if err := checkShares(shares, false); err != nil {
		return nil, err
	}
	return shares, nil
}

// shareInput is a Share that may be written as the bare tenant id.
type shareInput Share

// UnmarshalJSON implements json.Unmarshaler.
func (s *shareInput) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		id, err := Decode[string](data)
		*s = shareInput{TenantID: TenantID(id), Mode: ModeFiles}
		return err
	}
	share, err := Decode[Share](data)
	*s = shareInput(share)
	return err
}

// checkShares says which shares a record may carry; only a share record may
// revoke.
func checkShares(shares []Share, revoke bool) *Error {
	if len(shares) > MaxShares {
		return refuse("", "%d shares; a record has at most %d", len(shares), MaxShares)
	}
	seen := map[TenantID]bool{}
	for i, s := range shares {
		at := index(i)
		if s.TenantID != Public {
			if err := tenantGrammar.check(string(s.TenantID)); err != nil {
				return err.in("tenantId").in(at)
			}
		}
		if rank(s.Mode) < 0 && (s.Mode != ModeNone || !revoke) {
			return refuse("mode", "%s; give A (proofs), B (and metadata) or C (and files)", show(s.Mode)).in(at)
		}
		if seen[s.TenantID] {
			return refuse("tenantId", "%s is named twice", show(string(s.TenantID))).in(at)
		}
		seen[s.TenantID] = true
	}
	return nil
}
