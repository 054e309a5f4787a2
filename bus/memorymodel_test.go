package bus

import (
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/verae/archive/wire"
)

// A modelled archive is one in the model: the log it has, and what it may have said
// that is still on its way.
type modelled struct {
	log     *book
	size    int // of its log now
	boot    int
	onDisk  int // what the aggregator's memory has on disk of it
	known   int // and in the process
	lost    bool
	rolled  bool         // it was ever rolled back
	pending []wire.Hello // hellos of earlier moments, which may come late or never
}

func (p *modelled) hello() wire.Hello { return p.log.hello(fmt.Sprint(p.boot), p.size) }

// The memory against a model, through puts, late messages, restarts and crashes of
// both sides, and roll backs of the archive's disk: an archive that came back with
// less than is remembered is found, for ever; one that never did is never
// suspected; and a crash of the aggregator forgets no more than what was not on
// disk.
func TestMemoryAgainstAModel(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(400, "log")
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		unsynced := func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }
		b := newBench(t, RosterConfig{Path: dir + "/roster.json", Create: true, Open: true, write: unsynced})
		p := &modelled{log: log, size: 1, boot: 1, known: 1}
		b.say(p.hello())
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				p.pending = append(p.pending, p.hello()) // made before, may come after
				p.size = min(p.size+rapid.IntRange(1, 5).Draw(rt, "records"), 399)
				if b.Speaks("archive-a", fmt.Sprint(p.boot)) {
					ack := ackOf("archive-a", fmt.Sprint(p.boot), uint64(p.size))
					if rapid.Bool().Draw(rt, "with checkpoint") {
						ack.Checkpoint = log.note(p.size)
					}
					b.Acknowledged("archive-a", ack)
					p.known = max(p.known, p.size)
				}
			},
			"hello": func(*rapid.T) { p.say(b) },
			"late hello of this process": func(rt *rapid.T) {
				for i, h := range p.pending {
					if h.Boot == fmt.Sprint(p.boot) && b.Speaks("archive-a", h.Boot) {
						b.say(h)
						p.pending = append(p.pending[:i], p.pending[i+1:]...)
						return
					}
				}
			},
			"late checkpoint": func(rt *rapid.T) {
				b.Told("archive-a", fmt.Sprint(p.boot), log.note(rapid.IntRange(1, p.size).Draw(rt, "size")))
			},
			"restart": func(*rapid.T) { p.restart(b) },
			"roll back": func(rt *rapid.T) {
				p.size = rapid.IntRange(1, p.size).Draw(rt, "to")
				p.rolled = true
				p.restart(b)
			},
			"aggregator saves": func(rt *rapid.T) {
				if err := b.SaveMemory(); err != nil {
					rt.Fatal(err)
				}
				p.onDisk = p.known
			},
			"aggregator crashes": func(*rapid.T) {
				b.open()
				p.known = p.onDisk
			},
			"": func(rt *rapid.T) {
				m := b.member("archive-a")
				if (m.Lost != nil) != p.lost {
					rt.Fatalf("lost: %+v, the model says %v", m.Lost, p.lost)
				}
				if m.Lost != nil && (!p.rolled || !b.Doubted("archive-a") || b.Reachable() != 0) {
					rt.Fatalf("a loss without a roll back, or one that is not acted on: %+v", m)
				}
				if int(m.Remembered) < p.known {
					rt.Fatalf("seq %d is remembered, and %d is known", m.Remembered, p.known)
				}
			},
		})
	})
}

// say sends a hello of now; what it shows is known to the model.
func (p *modelled) say(b *bench) {
	fresh := !b.Speaks("archive-a", fmt.Sprint(p.boot))
	if fresh && p.size < p.known && !p.lost {
		p.lost, p.onDisk = true, p.known // written at once
	}
	b.say(p.hello())
	p.known = max(p.known, p.size)
}

// restart is a new process on the disk that there is.
func (p *modelled) restart(b *bench) {
	p.boot++
	p.pending = nil
	p.say(b)
}
