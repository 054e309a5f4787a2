// Command aggregator takes submissions over HTTP and NATS, seals their digests
// on the ledger, places their records on archives and answers lookups. With no
// NATS_URL it embeds a NATS server. `aggregator init` makes its data directory,
// once; `aggregator` serves. See --help for its settings.
package main

import (
	"os"

	"github.com/verae/archive/daemon"
)

func main() { os.Exit(daemon.AggregatorProgram.Main(os.Args[1:], os.Stdout, os.Stderr)) }
