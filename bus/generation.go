package bus

import (
	"strconv"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Codes of refusals about generations.
const (
	CodeArchiveUnknown = "ARCHIVE_UNKNOWN" // no archive of that id is enrolled
	CodeFenced         = "GENERATION_FENCED"
	CodeNotHeard       = "GENERATION_NOT_HEARD"
	CodeKeyDiffers     = "GENERATION_KEY"
)

// admit reports whether a hello is of the generation and key that are accepted
// for its archive. One of an older generation is fenced for ever, one of a newer
// waits until an operator accepts it, and another key of the same is a stranger.
// While one of them is alive together with the accepted process, both hear what
// is sent to the id: no bytes are offered to it.
func (r *Roster) admit(m *member, hello wire.Hello) bool {
	accepted := m.entry.generation() // entry is exchanged under hearing only
	same := hello.Generation == accepted
	if same && hello.Key == m.entry.Key {
		return true
	}
	var why, reason string
	switch {
	case same:
		reason, why = "key", "ignoring an archive that is not the one enrolled under its id: the keys differ; stop one of the two"
	case hello.Generation < accepted:
		reason, why = "fenced", "ignoring an archive of a generation that was replaced: it is fenced for ever; stop it and keep its disk as evidence"
	default:
		reason, why = "unaccepted", "an archive was restored as a new generation; to let it in: "+AcceptCommand(hello.ArchiveID, hello.Generation, hello.Key)
	}
	r.refuse(reason, hello, why)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	switch reason {
	case "fenced":
		m.fencedAt = now
	case "unaccepted":
		m.waiting, m.waitingAt = hello, now
	}
	if same || m.fresh(now) {
		m.twice, m.twin = now, hello
	}
	r.note(m, now)
	return false
}

// AcceptCommand is what an operator types to accept a generation of an archive.
func AcceptCommand(id wire.ArchiveID, generation int, key string) string {
	return "verae archives accept " + string(id) + "/g" + strconv.Itoa(generation) + " --key " + key
}

// Accept admits a newer generation of an enrolled archive, or takes back one that
// was retired, under a key; without one, under that of the process which says
// hello. Older generations are fenced for ever. The archive is in StateLost until
// what it acknowledged before is accounted for. Accepting again what is accepted
// changes nothing.
//
// Errors: NotFound, ARCHIVE_UNKNOWN; Conflict, GENERATION_FENCED for one that is
// not newer, GENERATION_NOT_HEARD if no key is given and none is heard,
// GENERATION_KEY if a live process of the generation has another key.
func (r *Roster) Accept(id wire.ArchiveID, generation int, key string) error {
	if key != "" {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	if generation < 1 {
		return fault.New(fault.Invalid, "BAD_GENERATION", "generation: %d; generations count from 1", generation)
	}
	r.hearing.Lock()
	defer r.hearing.Unlock()
	was := find(r.file.Archives, id)
	enrolled := was != nil
	if !enrolled {
		was = find(r.file.Retired, id)
	}
	if was == nil {
		return errUnknown(id)
	}
	key, err := r.acceptable(was, enrolled, generation, key)
	if err != nil || enrolled && generation == was.generation() {
		return err
	}
	return r.accept(*was, generation, key)
}

func errUnknown(id wire.ArchiveID) error {
	return fault.New(fault.NotFound, CodeArchiveUnknown, "archives: no archive %s is enrolled; verae archives lists those that are", id)
}

// acceptable returns the key under which a generation may be accepted.
func (r *Roster) acceptable(was *rosterEntry, enrolled bool, generation int, key string) (string, error) {
	if generation < was.generation() {
		return "", fault.New(fault.Conflict, CodeFenced, "archives: generation %d of %s was replaced by %d and is fenced for ever", generation, was.ID, was.generation())
	}
	if generation == was.generation() {
		if key != "" && key != was.Key {
			return "", fault.New(fault.Conflict, CodeFenced, "archives: generation %d of %s is accepted under another key; a restored archive has a newer generation", generation, was.ID)
		}
		return was.Key, nil
	}
	heard := r.heardKey(was.ID, generation)
	switch {
	case key == "" && heard == "":
		return "", fault.New(fault.Conflict, CodeNotHeard, "archives: no process of %s in generation %d has said hello: start it, or give its public key with --key", was.ID, generation)
	case key != "" && heard != "" && key != heard:
		return "", fault.New(fault.Conflict, CodeKeyDiffers, "archives: the process of %s in generation %d has the key %s, not the one given: stop it, or accept its key", was.ID, generation, heard)
	case key == "":
		key = heard
	}
	return key, nil
}

// heardKey is the key of a live process of a generation that waits, or "".
func (r *Roster) heardKey(id wire.ArchiveID, generation int) string {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	if m := r.members[id]; m != nil && lately(m.waitingAt, now) && m.waiting.Generation == generation {
		return m.waiting.Key
	}
	return ""
}

// accept makes the suspicion durable, then the roster that admits the archive: a
// crash between leaves an archive that is suspected and not admitted. hearing is
// held.
func (r *Roster) accept(was rosterEntry, generation int, key string) error {
	file := r.file.with(was.ID, key, generation)
	r.mu.Lock()
	memory := remembered{ID: was.ID}
	if m := r.members[was.ID]; m != nil {
		memory = m.memory
	}
	memory = memory.replacedBy(was.generation(), generation, r.now())
	if m := r.members[was.ID]; m != nil {
		m.memory = memory
	}
	r.news = true
	r.mu.Unlock()
	if err := r.saveMemoryWith(memory); err != nil {
		return err
	}
	if err := file.save(r.path, r.write); err != nil {
		return err
	}
	r.adopt(file)
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[was.ID]
	m.memory = memory
	m.unready, m.since = true, file.Version
	r.readmit(r.now())
	m.hello, m.heard, m.boots, m.twice = wire.Hello{}, time.Time{}, nil, time.Time{}
	m.waitingAt, m.told, m.proved = time.Time{}, [2]string{}, ""
	r.log.Warn("a generation of an archive was accepted; older ones are fenced for ever, and it gets no puts until what it acknowledged is accounted for",
		"archive", was.ID, "generation", generation, "was", was.generation(), "key", key, "version", file.Version)
	r.note(m, r.now())
	return nil
}

// replacedBy is the memory of an archive whose next generation was accepted.
func (k remembered) replacedBy(old, generation int, now time.Time) remembered {
	wanted := k.Seq
	if k.Lost != nil {
		wanted = max(wanted, k.Lost.Wanted)
	}
	next := remembered{ID: k.ID, Generation: generation}
	next.Lost = &Loss{
		Reason: LossRestored, Generation: old, Wanted: wanted, At: wire.At(now),
		Detail: "generation " + strconv.Itoa(generation) + " was accepted; what generation " + strconv.Itoa(old) + " acknowledged is being looked for",
	}
	if generation == old {
		next.Lost.Generation, next.Lost.Detail = 0, "it was retired and taken back; what it acknowledged is being looked for"
	}
	return next
}

// Retire takes an archive out of the roster: its silence no longer makes answers
// incomplete, and it is not enrolled again by saying hello. NotFound,
// ARCHIVE_UNKNOWN, if it is not enrolled. What it alone holds is not looked for
// here: the caller asks before.
func (r *Roster) Retire(id wire.ArchiveID) error {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	if find(r.file.Archives, id) == nil {
		return errUnknown(id)
	}
	file := r.file.retire(id)
	if err := file.save(r.path, r.write); err != nil {
		return err
	}
	r.adopt(file)
	r.mu.Lock()
	r.news = true
	r.mu.Unlock()
	r.log.Warn("archive retired", "archive", id, "version", file.Version)
	return nil
}
