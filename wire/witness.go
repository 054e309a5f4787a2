package wire

// SubjectWitnessPrefix, with an archiveId, is where a ledger shows an archive its
// newest checkpoint: ledger -> that archive, request/reply (c2sp.org/tlog-witness,
// with JSON in place of its text).
const SubjectWitnessPrefix = "verae.chain.witness."

// MaxWitnessProof is the largest number of hashes in a consistency proof.
const MaxWitnessProof = 63

// WitnessRequest shows a checkpoint to a witness. Old is the size of the last one
// that this witness has seen, as far as the sender knows, and Proof shows that
// the log of that size is a prefix of the new one (RFC 6962, section 2.1.2);
// both are empty for the first.
type WitnessRequest struct {
	Key        string   `json:"key"` // the log's verifier key: name+hash+base64
	Old        int64    `json:"old"`
	Proof      []Digest `json:"proof"` // hashes, in hex
	Checkpoint string   `json:"checkpoint"`
}

// WitnessReply is the cosignature, a line of a signed note, or, if Old was
// another size than the witness has seen, the newest checkpoint it has.
type WitnessReply struct {
	ArchiveID   ArchiveID `json:"archiveId"`
	Size        int64     `json:"size"` // of the newest checkpoint seen, this one included
	Cosignature string    `json:"cosignature,omitzero"`
	Checkpoint  string    `json:"checkpoint,omitzero"`
}
