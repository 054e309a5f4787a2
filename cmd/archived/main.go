// Command archived runs one archive: it appends records, answers queries over
// NATS and keeps files. `archived init` makes its data directory, once;
// `archived` serves. See --help for its settings.
package main

import (
	"os"

	"github.com/verae/archive/daemon"
)

func main() { os.Exit(daemon.ArchivedProgram.Main(os.Args[1:], os.Stdout, os.Stderr)) }
