// Package mirror keeps filters of archives at aggregators, and says when one may
// be believed.
//
// An archive keeps a filter over pairs of a viewer and a digest ([Pair]). An
// aggregator has a copy of it, and so knows of most archives that they have
// nothing for a caller, without asking them. Filters only gain bits: a copy can
// miss what is new, and nothing else is ever wrong with it. What is new comes as
// deltas, runs of the hashes that were added, counted from the beginning of a
// [Feed].
//
// That a delta is sent before its put is acknowledged is not enough: the
// acknowledgement may overtake it. So a [Mirror] is believed only under a lease.
// While a lease is out the archive acknowledges a put only after its holder has
// acknowledged the delta, or the lease has run out. If a put was acknowledged
// before a question begins, the mirror has its pairs, or is not believed.
//
//   - The archive counts a lease from when it was asked for it, the holder from
//     when it asked, and only for [trustShare] of it: clocks may run apart by
//     some percent.
//   - A lease is given together with the position that the feed had then. All
//     that came before may have been acknowledged without this holder, who is not
//     believed until he has it.
//   - Who lags behind gets no new lease, so that he holds puts up for the length of
//     one lease at most.
//   - An archive that may have had leases out when it ended acknowledges nothing
//     for the length of one after its start: whoever held one has let go by then.
//     That is the archive's part.
//
// Neither side knows of NATS or of a store: both are plain values that are given
// messages, and the time by a [Clock].
package mirror
