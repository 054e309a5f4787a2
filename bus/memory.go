package bus

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// The second memory is what this aggregator remembers of every archive's log,
// outside that archive: the most that was acknowledged or told, and the newest
// checkpoints that the archive signed. An archive that comes back with less has
// lost records, whatever its own disk says: an older copy of it, its own mark
// included, looks whole to itself.

// Why an archive is in the state StateLost.
const (
	LossBehind   = "BEHIND"   // it has fewer records than it acknowledged or told
	LossForked   = "FORKED"   // its log is not the one whose checkpoint it signed
	LossRestored = "RESTORED" // a newer generation was accepted, which may lack the end of the one before
)

// A Loss says what an archive lost, or may have lost. It is on disk before the
// archive is trusted again, also by a later process.
type Loss struct {
	Reason     string    `json:"reason"`
	Generation int       `json:"generation"` // the one that lost
	Wanted     uint64    `json:"wanted"`     // seq that is remembered of it
	Seq        uint64    `json:"seq"`        // seq that it came back with
	At         wire.Time `json:"at"`
	Detail     string    `json:"detail,omitzero"`
}

// remembered is the memory of one archive. A checkpoint of another process than
// the one before replaces it only when it was proved to continue it: until then
// the log may be another one.
type remembered struct {
	ID             wire.ArchiveID `json:"id"`
	Generation     int            `json:"generation"` // of all below but Lost
	Boot           string         `json:"boot"`       // the process that acknowledged or told Seq
	Seq            uint64         `json:"seq"`
	Checkpoint     string         `json:"checkpoint,omitzero"`     // signed note with the most leaves
	CheckpointBoot string         `json:"checkpointBoot,omitzero"` // the process it came from
	Proved         string         `json:"proved,omitzero"`         // the newest that is known to continue all before it
	Lost           *Loss          `json:"lost,omitempty"`

	newest, proved tlogx.Checkpoint // of the notes, verified
}

// saw remembers that the process boot has seq in a generation. It reports
// whether that is news.
func (k *remembered) saw(generation int, boot string, seq uint64) bool {
	if generation < k.Generation || generation == k.Generation && seq <= k.Seq {
		return false
	}
	if generation > k.Generation {
		*k = remembered{ID: k.ID, Lost: k.Lost}
	}
	k.Generation, k.Boot, k.Seq = generation, boot, seq
	return true
}

// behind returns what the sequence number of a hello shows to be lost, or nil.
// Within one process a log does not shrink: its messages overtake each other.
func (k *remembered) behind(h *wire.Hello, now time.Time) *Loss {
	if h.Generation != k.Generation || h.Boot == k.Boot || h.Seq >= k.Seq {
		return nil
	}
	return k.loss(LossBehind, h.Seq, now, "it acknowledged or told seq %d and came back with seq %d", k.Seq, h.Seq)
}

func (k *remembered) loss(reason string, seq uint64, now time.Time, detail string, args ...any) *Loss {
	return &Loss{Reason: reason, Generation: k.Generation, Wanted: k.Seq, Seq: seq, At: wire.At(now), Detail: fmt.Sprintf(detail, args...)}
}

// A signed is a checkpoint of an archive that its enrolled key has signed.
type signed struct {
	note string
	boot string // the process it comes from
	tlogx.Checkpoint
}

// compare compares a checkpoint of k.Generation with those remembered, and
// remembers it if it is newer. A smaller one of another process shows a loss if
// that process is known to be the later: a hello tells, other messages may be
// late.
func (k *remembered) compare(c signed, later bool, seq uint64, now time.Time) (news bool, loss *Loss) {
	if k.Checkpoint == "" {
		k.Checkpoint, k.CheckpointBoot, k.newest = c.note, c.boot, c.Checkpoint
		k.Proved, k.proved = c.note, c.Checkpoint
		return true, nil
	}
	for _, old := range []tlogx.Checkpoint{k.newest, k.proved} {
		if c.Size == old.Size && c.Root != old.Root {
			return false, k.loss(LossForked, seq, now, "it signed two roots over %d leaves", c.Size)
		}
	}
	switch {
	case c.Size < k.newest.Size && later && c.boot != k.CheckpointBoot:
		return false, k.loss(LossBehind, seq, now, "it signed a checkpoint of %d leaves and came back with one of %d", k.newest.Size, c.Size)
	case c.Size > k.newest.Size && c.boot == k.CheckpointBoot:
		k.Checkpoint, k.newest = c.note, c.Checkpoint
		return true, nil
	}
	return false, nil
}

// continues takes a checkpoint that was proved to continue both that are
// remembered.
func (k *remembered) continues(c signed) {
	k.Proved, k.proved = c.note, c.Checkpoint
	if c.Size >= k.newest.Size {
		k.Checkpoint, k.CheckpointBoot, k.newest = c.note, c.boot, c.Checkpoint
	}
}

// read verifies the notes of a memory that was read from its file.
func (k *remembered) read(key string) (err error) {
	for note, c := range map[*string]*tlogx.Checkpoint{&k.Checkpoint: &k.newest, &k.Proved: &k.proved} {
		if *note == "" {
			continue
		}
		if *c, err = openNote(*note, k.ID, k.Generation, key); err != nil {
			return err
		}
	}
	return nil
}

// originOf names the log of one generation of an archive.
func originOf(id wire.ArchiveID, generation int) string {
	return string(id) + "/g" + strconv.Itoa(generation)
}

// openNote verifies a checkpoint of an archive's generation under its key.
func openNote(note string, id wire.ArchiveID, generation int, key string) (tlogx.Checkpoint, error) {
	public, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return tlogx.Checkpoint{}, err
	}
	v, err := tlogx.NewVerifier(originOf(id, generation), ed25519.PublicKey(public))
	if err != nil {
		return tlogx.Checkpoint{}, err
	}
	return tlogx.OpenCheckpoint([]byte(note), v)
}
