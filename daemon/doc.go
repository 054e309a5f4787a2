// Package daemon wires the parts of the system into its long-running programs:
// the archive and the aggregator. cmd/archived, cmd/aggregator and the harness
// only parse flags and call it.
//
// A program refuses to start where it could do harm: without its data (init
// makes that, once, in one step), with data of another identity, with a value
// out of range, or with an environment variable that is nearly the name of one
// it knows. Stores open first, because their locks keep a second process out;
// then parts start in the order of the data flow. They stop in reverse, each with
// a deadline.
//
// The fields of [Archived] and [Aggregator] are the reference of all
// configuration: docs/operations.md is made from their tags.
package daemon
