// Package jobs carries a submission from request to receipts.
//
// flow.go is the whole path in two functions. [Engine.Accept] takes a request
// that the splitter has read and checked, and makes it durable in one commit of
// the job store before any archive hears of it; what archives are asked to
// keep leaves from that stored copy only, so that a crash at any point is
// repaired by repeating the same bytes. Engine.settle registers the digests on
// the chain, gathers the archives' records, and ends the submission in one
// commit together with the bytes of its event.
//
// # Identity
//
// A submission is one accepted request. A job is a digest: every submission of
// one digest shares its job id. State, waits, events and idempotency are keyed
// by (tenant, submission). A job id that was ever given out resolves for ever,
// also when the chain turns out to know an older one for the digest.
//
// # The job store
//
// One Pebble store with group commit is both truth and outbox. Every check and
// the writes it decides happen inside one function that the store's committer
// runs alone, so no two requests can both find a key absent. Rows carry a
// version byte and a CRC-32C (Castagnoli); all integers are big-endian:
//
//	key                                           value
//	m "layout"                                    layout version, decimal text
//	d digest(32)                                  reservation: the job id given out for a digest
//	j jobId(16)                                   the digest a job id stands for
//	s tenantTag(16) submissionId(16)              submission
//	t tenantTag(16) digest(32) submissionId(16)   empty: submissions of a tenant by digest
//	u tenantTag(16) digest(32) submissionId(16)   empty: the same, of submissions that are not sealed
//	f fingerprint(32)                             first submission with this content
//	k tenantTag(16) MAC of the key(32)            first submission with this idempotency key
//	o tenantTag(16) submissionId(16) part(4)      outbox: the exact bytes of a Put, but for rosterVersion
//	p tenantTag(16) submissionId(16)              empty: this submission still needs work
//	e tenantTag(16) submissionId(16) n(4)         the exact bytes of an event
//	n tenantTag(16) submissionId(16) n(4)         empty: this event is not announced yet
//	x unixSeconds(8) key                          empty: the row under key may expire
//	w archiveId                                   how far what an archive acknowledged before a loss is accounted for
//	l archiveId 0(1) recordId(32)                 a record that was lost with an archive and that no other has
//	v tenantTag(16) digest(32) recordId(32)       empty: such a record of a tenant, by its subject, its id, or its file
//	r tenantTag(16) digest(32) recordId(32)       how long a record, or with zeros all under the digest, is retained, and its holds
//	c tenantTag(16) submissionId(16)              empty: a submission whose record goes to every archive; its outbox row stays
//	g ocrJobId(16)                                OCR job of a file: its message, and when it was published; never leaves
//	q envelopeId(16)                              the exact bytes of the message of an OCR job that waits to be published
//	a                                             version of the roster for which every such record was everywhere or on the work list
//
//	row = version(1) = 1 | crc32c(4) of payload | payload (JSON)
//
// tenantTag is the first 16 bytes of SHA-256 of the tenant id. Unlike the
// archives this store is not append-only: outbox rows leave it when their
// copies rest, and keys expire.
package jobs
