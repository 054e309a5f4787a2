package daemon

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/archive"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

// witness opens the witness of an archive. One that can not tell what it has
// seen does not witness; records and queries do not depend on it.
func (c *Archived) witness(node *archive.Node, log *slog.Logger) (bus.Witness, []prometheus.Collector, error) {
	trusted := strings.FieldsFunc(c.WitnessLedgers, func(r rune) bool { return r == ',' || r == ' ' })
	w, err := node.OpenWitness(trusted)
	if fault.Is(err, fault.Invalid) {
		return nil, nil, err
	}
	if err != nil {
		log.Error("this archive cosigns no checkpoints of ledgers until it is started anew", "err", err)
		return nil, nil, nil
	}
	return w, w.Metrics(), nil
}

// witnesses are the enrolled archives as witnesses of the ledger.
type witnesses struct {
	*bus.Archives
	roster *bus.Roster
}

// Present returns the archives that are heard, with their enrolled keys. One
// that takes no records witnesses all the same.
func (w witnesses) Present() (list []ledger.Witness) {
	for _, m := range w.roster.Snapshot() {
		key, err := base64.StdEncoding.DecodeString(m.Key)
		if err != nil || m.State == bus.StateSilent || m.State == bus.StateQuarantined {
			continue
		}
		list = append(list, ledger.Witness{ID: m.ID, Key: ed25519.PublicKey(key)})
	}
	return list
}

// fileCosigned is the newest checkpoint of the ledger with its cosignatures.
const fileCosigned = "cosigned"

// cosignLimit bounds the wait for the last cosignature before the ledger closes.
const cosignLimit = time.Second

// startCosigning has the archives cosign what the ledger signs.
func (a *aggregator) startCosigning() error {
	a.cosigning = ledger.NewCosigning(ledger.CosigningConfig{
		Ledger: a.ledger, Witnesses: witnesses{a.client, a.roster}, Path: a.path(fileCosigned), Log: a.log,
		Enrolled: len(a.roster.Enrolled()),
	})
	a.tasks = append(a.tasks, serve.Task{Name: "cosigning", Run: a.cosigning.Run})
	a.health.Add(serve.Check{Name: "ledger", Func: func(context.Context) error { return a.ledger.Ready() }})
	return a.stack.Push("cosigning", cosignLimit, func(ctx context.Context) error {
		a.cosigning.Settle(ctx)
		return nil
	})
}
