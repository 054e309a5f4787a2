package bus

import (
	"context"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// pullWait is how long an order to pull is answered after, at most; what is not
// done by then goes on and is answered as pending.
const pullWait = 5 * time.Second

// maxPullText bounds the text of a problem in the answer to a pull, in bytes:
// there may be wire.MaxPullIDs of them in one message.
const maxPullText = 256

// LogProver is implemented by nodes that can prove that their log continues an
// earlier state of itself.
type LogProver interface {
	// Proof returns the newest published checkpoint, with the proof that it
	// continues the tree of from leaves.
	Proof(from uint64) (wire.CtlProof, error)
}

// nothing is the payload of a question that says all by its operation.
type nothing struct{}

// Check returns nil.
func (nothing) Check() error { return nil }

func (s *SyncService) ctlOps() map[string]operation {
	return map[string]operation{
		wire.OpPull:       answering(wire.OpPull, s.pull),
		wire.OpReconcile:  answering(wire.OpReconcile, s.reconcile),
		wire.OpCheckpoint: answering(wire.OpCheckpoint, s.checkpoint),
		wire.OpStatus: func(ctx context.Context, data []byte) (answer, error) {
			if len(data) == 0 {
				data = []byte("{}")
			}
			return answering(wire.OpStatus, s.status)(ctx, data)
		},
	}
}

// pull fetches records, and answers in time what became of each so far.
func (s *SyncService) pull(ctx context.Context, q wire.CtlPull) (wire.CtlPulled, error) {
	if s.cfg.Puller == nil {
		return wire.CtlPulled{}, unserved(wire.OpPull)
	}
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	out := wire.CtlPulled{Results: make([]wire.PullResult, 0, len(q.IDs))}
	for _, p := range s.cfg.Puller.Pull(ctx, q.IDs, q.From) {
		r := wire.PullResult{ID: p.ID, Seq: p.Seq, Duplicate: p.Duplicate}
		if p.Err != nil {
			problem := ProblemOf(p.Err)
			problem.Message = cut(problem.Message, maxPullText)
			r.Problem = &problem
		}
		out.Results = append(out.Results, r)
	}
	return out, nil
}

// cut shortens a text to n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "..."
}

// unserved refuses an operation of which this program has no part.
func unserved(op string) error {
	return fault.New(fault.Invalid, CodeMalformed, "%s: this archive does not do that", op)
}

func (s *SyncService) reconcile(_ context.Context, q wire.CtlReconcile) (wire.ReconcileProgress, error) {
	switch {
	case s.cfg.Reconciler == nil:
		return wire.ReconcileProgress{}, unserved(wire.OpReconcile)
	case q.Start:
		return s.cfg.Reconciler.Start(), nil
	}
	return s.cfg.Reconciler.Progress(), nil
}

func (s *SyncService) checkpoint(_ context.Context, q wire.CtlCheckpoint) (wire.CtlProof, error) {
	p, ok := s.cfg.Node.(LogProver)
	if !ok {
		return wire.CtlProof{}, unserved(wire.OpCheckpoint)
	}
	return p.Proof(q.From)
}

func (s *SyncService) status(context.Context, nothing) (wire.CtlStatus, error) {
	out := wire.CtlStatus{Hello: s.cfg.Node.Hello()}
	out.Hello.Proto = helloProto
	if s.cfg.Reconciler != nil {
		out.Reconcile = s.cfg.Reconciler.Progress()
	}
	return out, nil
}
