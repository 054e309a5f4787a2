package bus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// How often, and how patiently, archives are asked to prove that their log
// continues the one remembered.
const (
	proofInterval = 10 * time.Second // between two questions to one archive
	proofTimeout  = 5 * time.Second
	maxProofs     = 8 // questions under way
)

// A prover asks an archive for its newest checkpoint and for the proof that it
// continues the tree of from leaves.
type prover func(ctx context.Context, id wire.ArchiveID, from uint64) (wire.CtlProof, error)

// proof is the prover over NATS.
func (c *Conn) proof(ctx context.Context, id wire.ArchiveID, from uint64) (wire.CtlProof, error) {
	data, err := wire.Encode(wire.CtlCheckpoint{From: from})
	if err != nil {
		return wire.CtlProof{}, err
	}
	msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + string(id), Data: data, Header: nats.Header{}}
	msg.Header.Set(wire.HeaderOp, wire.OpCheckpoint)
	reply, err := c.bulk.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return wire.CtlProof{}, sendFault(err, "archive "+string(id))
	}
	if err := replyFault(reply, "archive "+string(id)); err != nil {
		return wire.CtlProof{}, err
	}
	return wire.Decode[wire.CtlProof](reply.Data)
}

// proving asks for proofs until the roster is closed.
func (r *Roster) proving() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	free := make(chan struct{}, maxProofs)
	tick := time.NewTicker(HelloInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, d := range r.due() {
				select {
				case free <- struct{}{}:
				case <-r.stop:
					return
				}
				r.done.Go(func() {
					defer func() { <-free }()
					r.ask(ctx, d)
				})
			}
		case <-r.stop:
			return
		}
	}
}

// A due is a proof to ask for.
type due struct {
	id         wire.ArchiveID
	key        string
	generation int
	boot       string
	from       []tlogx.Checkpoint // one or two
}

// due returns the proofs that it is time to ask for: of archives whose hellos
// carry a checkpoint beyond the one that was proved last, and of those that may
// have come back after a loss.
func (r *Roster) due() (list []due) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.ids {
		m := r.members[id]
		k := &m.memory
		if !m.fresh(now) || m.quarantined(now) || m.hello.Checkpoint == "" || k.Proved == "" || now.Sub(m.asked) < proofInterval {
			continue
		}
		back := k.Lost != nil && m.proved != m.hello.Boot && m.hello.Seq >= k.Lost.Wanted
		if k.Generation != m.entry.generation() || !back && (m.hello.Checkpoint == k.Proved || k.Lost != nil) {
			continue
		}
		m.asked = now
		d := due{id: id, key: m.entry.Key, generation: k.Generation, boot: m.hello.Boot, from: []tlogx.Checkpoint{k.proved}}
		if k.newest != k.proved {
			d.from = append(d.from, k.newest)
		}
		list = append(list, d)
	}
	return list
}

// ask asks for a proof and takes the answer. No answer, or a refusal, says
// nothing; a wrong one says that the log is another.
func (r *Roster) ask(ctx context.Context, d due) {
	ctx, stop := context.WithTimeout(ctx, proofTimeout)
	defer stop()
	var newest signed
	for _, from := range d.from {
		answer, err := r.prove(ctx, d.id, uint64(from.Size))
		if err != nil {
			r.metrics.proofs.WithLabelValues("unanswered").Inc()
			r.log.Debug("an archive did not prove its log", "archive", d.id, "kind", fault.KindOf(err), "err", err)
			return
		}
		c, err := openNote(answer.Checkpoint, d.id, d.generation, d.key)
		if err == nil {
			err = tlogx.CheckConsistency(from, c, answer.Proof)
			newest = signed{note: answer.Checkpoint, boot: d.boot, Checkpoint: c}
		}
		if err != nil {
			r.metrics.proofs.WithLabelValues("wrong").Inc()
			r.unproved(d, c.Size, from.Size, err)
			return
		}
	}
	r.metrics.proofs.WithLabelValues("right").Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[d.id]; m != nil && m.entry.Key == d.key && m.hello.Boot == d.boot && m.memory.Generation == d.generation {
		m.memory.continues(newest)
		m.proved, r.news = d.boot, true
	}
}

// unproved takes a proof that does not hold.
func (r *Roster) unproved(d due, size, from int64, why error) {
	r.mu.Lock()
	now := r.now()
	lost := false
	if m := r.members[d.id]; m != nil && m.entry.Key == d.key && m.hello.Boot == d.boot && m.memory.Generation == d.generation {
		lost = r.lose(m, m.memory.loss(LossForked, m.hello.Seq, now, "its log of %d leaves is not proved to continue the one of %d that it signed: %v", size, from, why))
	}
	r.mu.Unlock()
	if lost {
		r.saveNow()
	}
}
