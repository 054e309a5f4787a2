package archive

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// Bounds of a witness. A log costs a small file and little memory.
const (
	MaxWitnessedLogs = 16      // logs that are pinned without being listed
	maxWitnessFile   = 8 << 10 // bytes of a file of the witness
	maxCheckpoint    = 4 << 10 // bytes of a checkpoint that is read
)

// witnessMagic is the first line of a witness's files.
const witnessMagic = "verae-witness/1"

// WitnessConfig says for whom a witness speaks and what it knows.
type WitnessConfig struct {
	// Dir is the witness's own directory; it is made if it is missing.
	Dir string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// ID is the archive that witnesses, and Key signs for it.
	ID  wire.ArchiveID
	Key ed25519.PrivateKey
	// Trusted are verifier keys of logs, name+hash+base64. If there are any, no
	// other log is witnessed. If there are none, the first key that shows a
	// checkpoint under a name is pinned to that name for ever.
	Trusted []string
	// Now is the clock of the cosignatures; nil means time.Now.
	Now func() time.Time
	// Log receives forks and rollbacks; nil discards them.
	Log *slog.Logger
}

// Witness sees that the logs of ledgers only grow (c2sp.org/tlog-witness). It
// cosigns a checkpoint if the last one it has seen is a prefix of it, and keeps
// it on disk first, so that no two cosignatures of one witness contradict each
// other, whatever crashes. A log that signed two histories is never cosigned
// again, and both checkpoints are kept as evidence. Its methods may be called
// from many goroutines.
type Witness struct {
	cfg     WitnessConfig
	signer  *tlogx.Cosigner
	results *prometheus.CounterVec

	mu   sync.Mutex // guards logs, and makes check and write one step
	logs map[string]*witnessed
}

// witnessed is what a witness knows of a log.
type witnessed struct {
	vkey     string
	verifier note.Verifier
	signed   string // the newest checkpoint seen; empty: none
	size     int64
	root     tlog.Hash
	forked   bool
	evidence string // of the fork, while it is not on disk
}

// OpenWitness reads what the witness has seen. What it can not read it refuses:
// a witness that has forgotten would cosign a rollback.
func OpenWitness(c WitnessConfig) (*Witness, error) {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	signer, err := tlogx.NewCosigner(string(c.ID), c.Key)
	if err != nil {
		return nil, fmt.Errorf("archive: witness: %w", err)
	}
	w := &Witness{cfg: c, signer: signer, logs: map[string]*witnessed{}, results: witnessResults(c.ID)}
	for _, vkey := range c.Trusted {
		v, err := note.NewVerifier(vkey)
		if err != nil {
			return nil, fault.New(fault.Invalid, "BAD_LOG_KEY", "archive: witness: %q is not a verifier key (name+hash+base64)", vkey)
		}
		w.logs[v.Name()] = &witnessed{vkey: vkey, verifier: v}
	}
	if err := pebblex.Mkdir(c.FS, c.Dir); err != nil {
		return nil, fmt.Errorf("archive: witness: %w", err)
	}
	return w, w.load()
}

// OpenWitness opens the witness of this archive. Trusted is as in WitnessConfig.
func (n *Node) OpenWitness(trusted []string) (*Witness, error) {
	return OpenWitness(WitnessConfig{
		Dir: n.cfg.FS.PathJoin(n.cfg.Dir, "witness"), FS: n.cfg.FS, ID: n.cfg.ID, Key: n.identity.key,
		Trusted: trusted, Now: n.cfg.Now, Log: n.cfg.Log,
	})
}

func witnessResults(id wire.ArchiveID) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verae_witness_checkpoints_total", ConstLabels: prometheus.Labels{"archive": string(id)},
		Help: "Checkpoints of ledgers shown to this archive, by result: cosigned, other_size, smaller, refused, forked, error.",
	}, []string{"result"})
}

// Metrics returns the witness's collectors.
func (w *Witness) Metrics() []prometheus.Collector { return []prometheus.Collector{w.results} }

// Add takes a checkpoint and returns its cosignature. If r.Old is not the size
// that was seen last, the reply has no cosignature but the checkpoint that was;
// so has the reply to a smaller one, which is logged, for a log never shrinks.
//
// Errors: Denied, UNKNOWN_LOG, if the key is not the log's; Invalid, BAD_CHECKPOINT
// or BAD_PROOF; Corrupt, LEDGER_FORKED, if the log has signed two histories.
func (w *Witness) Add(r wire.WitnessRequest) (wire.WitnessReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reply, result, err := w.add(r)
	w.results.WithLabelValues(result).Inc()
	return reply, err
}

func (w *Witness) add(r wire.WitnessRequest) (reply wire.WitnessReply, result string, err error) {
	log, next, err := w.open(r)
	if err != nil {
		return reply, "refused", err
	}
	seen := wire.WitnessReply{ArchiveID: w.cfg.ID, Size: log.size, Checkpoint: log.signed}
	switch {
	case log.forked:
		return reply, "forked", errors.Join(forked(next.Origin), w.keepEvidence(log, next.Origin))
	case next.Size == log.size && log.signed != "" && next.Root != log.root:
		return reply, "forked", w.fork(log, next, r.Checkpoint)
	case next.Size < log.size:
		w.cfg.Log.Error("a ledger shows an older checkpoint than it has shown before: it is not cosigned; was the ledger rolled back?",
			"ledger", next.Origin, "size", next.Size, "seen", log.size)
		return seen, "smaller", nil
	case r.Old != log.size:
		return seen, "other_size", nil
	}
	if err := consistent(log, next, r.Proof); err != nil {
		return reply, "refused", err
	}
	if next.Size > log.size || log.signed == "" {
		if err := w.save(log.vkey, next.Origin, r.Checkpoint); err != nil {
			return reply, "error", err
		}
		log.signed, log.size, log.root = r.Checkpoint, next.Size, next.Root
		w.logs[next.Origin] = log
	}
	line := w.signer.Cosign(next.Text(), w.cfg.Now())
	return wire.WitnessReply{ArchiveID: w.cfg.ID, Size: next.Size, Cosignature: line}, "cosigned", nil
}

// open verifies the signature of a checkpoint by the key of its log. A log that
// nobody has named before is new, and is pinned when it is saved.
func (w *Witness) open(r wire.WitnessRequest) (*witnessed, tlogx.Checkpoint, error) {
	var none tlogx.Checkpoint
	if len(r.Checkpoint) > maxCheckpoint {
		return nil, none, fault.New(fault.Invalid, "BAD_CHECKPOINT", "checkpoint: %d bytes, at most %d are read", len(r.Checkpoint), maxCheckpoint).InField("checkpoint")
	}
	v, err := note.NewVerifier(r.Key)
	if err != nil {
		return nil, none, fault.New(fault.Invalid, "BAD_CHECKPOINT", "key: not a verifier key (name+hash+base64)").InField("key")
	}
	log := w.logs[v.Name()]
	if log == nil {
		if len(w.cfg.Trusted) > 0 || len(w.logs) >= MaxWitnessedLogs {
			return nil, none, fault.New(fault.Denied, "UNKNOWN_LOG", "key: %s is not a log that archive %s witnesses", v.Name(), w.cfg.ID).InField("key")
		}
		log = &witnessed{vkey: r.Key, verifier: v}
	}
	if log.vkey != r.Key {
		return nil, none, fault.New(fault.Denied, "UNKNOWN_LOG", "key: archive %s knows another key of %s", w.cfg.ID, v.Name()).InField("key")
	}
	c, err := tlogx.OpenCheckpoint([]byte(r.Checkpoint), log.verifier)
	if err != nil {
		return nil, none, fault.New(fault.Invalid, "BAD_CHECKPOINT", "checkpoint: %w", err).InField("checkpoint")
	}
	return log, c, nil
}

// consistent checks the proof that what was seen is a prefix of next.
func consistent(log *witnessed, next tlogx.Checkpoint, proof []wire.Digest) error {
	if log.size == 0 || log.size == next.Size {
		if len(proof) > 0 {
			return fault.New(fault.Invalid, "BAD_PROOF", "proof: from size %d to %d it is empty", log.size, next.Size).InField("proof")
		}
		return nil
	}
	if len(proof) > wire.MaxWitnessProof {
		return fault.New(fault.Invalid, "BAD_PROOF", "proof: %d hashes, at most %d are read", len(proof), wire.MaxWitnessProof).InField("proof")
	}
	hashes := make(tlog.TreeProof, len(proof))
	for i, h := range proof {
		hashes[i] = tlog.Hash(h)
	}
	if err := tlog.CheckTree(hashes, next.Size, next.Root, log.size, log.root); err != nil {
		return fault.New(fault.Invalid, "BAD_PROOF", "proof: the log of size %d is not shown to be a prefix of that of size %d: %w", log.size, next.Size, err).InField("proof")
	}
	return nil
}

func forked(origin string) error {
	return fault.New(fault.Corrupt, "LEDGER_FORKED", "archive: witness: the ledger %s has signed two histories: it is not cosigned any more; the evidence is in the archive's directory witness", origin)
}

// fork keeps the two checkpoints of one size and ends the witnessing of their
// log for ever.
func (w *Witness) fork(log *witnessed, next tlogx.Checkpoint, signed string) error {
	log.forked, log.evidence = true, witnessFile(log.vkey, log.signed+"\n"+signed)
	w.cfg.Log.Error("a ledger has signed two histories: it is not witnessed any more", "ledger", next.Origin, "size", next.Size)
	return errors.Join(forked(next.Origin), w.keepEvidence(log, next.Origin))
}

// keepEvidence writes the evidence of a fork, unless that is done. Each request
// of the log tries again: without the file a new process would not know.
func (w *Witness) keepEvidence(log *witnessed, origin string) error {
	if log.evidence == "" {
		return nil
	}
	if err := pebblex.WriteFile(w.cfg.FS, w.path(origin)+".fork", []byte(log.evidence), keyPerm); err != nil {
		return err
	}
	log.evidence = ""
	return nil
}

// path is the file of a log, without its ending.
func (w *Witness) path(origin string) string {
	name := sha256.Sum256([]byte(origin))
	return w.cfg.FS.PathJoin(w.cfg.Dir, hex.EncodeToString(name[:]))
}

func witnessFile(vkey, notes string) string { return witnessMagic + "\n" + vkey + "\n\n" + notes }

func (w *Witness) save(vkey, origin, signed string) error {
	return pebblex.WriteFile(w.cfg.FS, w.path(origin)+".seen", []byte(witnessFile(vkey, signed)), keyPerm)
}

// load reads the files of all logs.
func (w *Witness) load() error {
	names, err := w.cfg.FS.List(w.cfg.Dir)
	if err != nil {
		return fmt.Errorf("archive: witness: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, ".seen") {
			continue
		}
		if err := w.loadFile(w.cfg.FS.PathJoin(w.cfg.Dir, name), slices.Contains(names, strings.TrimSuffix(name, ".seen")+".fork")); err != nil {
			return err
		}
	}
	return nil
}

func (w *Witness) loadFile(path string, forked bool) error {
	data, err := pebblex.ReadFile(w.cfg.FS, path, maxWitnessFile)
	if err != nil {
		return fmt.Errorf("archive: witness: %w", err)
	}
	bad := func(why error) error {
		return fault.New(fault.Corrupt, "WITNESS_FILE", "archive: witness: %s is damaged; put it back from a backup, or remove it, which makes this archive forget what it has witnessed: %w", path, why)
	}
	head, signed, _ := strings.Cut(string(data), "\n\n")
	magic, vkey, _ := strings.Cut(head, "\n")
	if magic != witnessMagic {
		return bad(errors.New("the first line is not " + witnessMagic))
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return bad(err)
	}
	c, err := tlogx.OpenCheckpoint([]byte(signed), v)
	if err != nil {
		return bad(err)
	}
	if w.path(c.Origin)+".seen" != path {
		return bad(fmt.Errorf("it is of another log, %s", c.Origin))
	}
	if known := w.logs[c.Origin]; known != nil && known.vkey != vkey {
		return fault.New(fault.Conflict, "WITNESS_KEY", "archive: witness: %s was witnessed under another key than the one that is listed; list the right key, or remove %s if the ledger was made anew", c.Origin, path)
	}
	w.logs[c.Origin] = &witnessed{vkey: vkey, verifier: v, signed: signed, size: c.Size, root: c.Root, forked: forked}
	return nil
}
