package bus

import (
	"github.com/verae/archive/archive"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/receipts"
)

// What this package is made to be plugged into, and what is plugged into it.
var (
	_ receipts.Asker  = (*Archives)(nil)
	_ receipts.Roster = (*Roster)(nil)
	_ Ranker          = (*Roster)(nil)
	_ Node            = (*archive.Node)(nil)
	_ Prober          = (*archive.Node)(nil)
	_ InProcess       = (*server.Server)(nil)
)
