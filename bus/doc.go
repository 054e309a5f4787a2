// Package bus carries the contracts of package wire over NATS. It is the only
// importer of nats.go; everything else in the system is plain functions on wire
// types, and this package binds them to subjects.
//
// # The two sides
//
// An aggregator holds a [Roster] (who is enrolled, who is alive, who owns a
// key), an [Archives] client (put, ask, upload, read, copy) and [Mirrors] of the
// archives' filters, which say whom it need not ask. An archive runs an
// [ArchiveService] around its node and its blob store, and a [SyncService] for
// other archives and for those who mirror its filter. [ServeTimestamp]
// offers the service to middleware, and the Publish and Subscribe methods of
// [Conn] carry jobs.watch and jobs.events.
//
// # What holds everywhere
//
//   - A [Conn] is two NATS connections: control (queries, replies, hellos,
//     events, deltas of filters and their acknowledgements) and bulk (puts, file
//     fragments), so that a large message never delays a small one.
//   - No callback of nats.go blocks: work goes to bounded workers, and what does
//     not fit is refused or dropped and counted, never lost in silence. A query
//     that was dropped is "no answer", which the asker sees as a missing
//     archive; it is never an empty answer.
//   - nats.go drops messages without an error when a subscriber is slow. So
//     senders hold credits for what is under way, and receivers acknowledge
//     after the work is done.
//   - Publishing while disconnected is an error, never a buffer that is lost.
//   - A publish that returned nil is in the connection's hands, no more. Only an
//     answer says that somebody got it; stores are the truth and messages nudge.
//   - Every wait ends with its context or with a named timeout.
//
// Errors are faults (package internal/fault). On the wire a refusal is a
// wire.Problem; see [ProblemOf] and [FaultOf].
package bus
