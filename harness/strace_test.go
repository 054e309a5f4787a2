package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// The kernel's own account of an archive at work: the bytes of every
// acknowledgement are given to the socket after a sync of the log that has the
// record has returned, and one that was asked for a checkpoint after the mark
// that covers the record has taken its place.
func TestNoAcknowledgementBeforeItsSync(t *testing.T) {
	long(t)
	strace := need.Program(t, "strace")
	w := startWorld(t, world.Config{Archives: []wire.ArchiveID{"archive-a"}})
	trace := filepath.Join(t.TempDir(), "trace")
	detach := attach(t, strace, trace, w.Ready().Archives[0].PID)
	var all []traced
	for round := range 10 {
		all = append(all, putTogether(t, w, round, 8)...)
	}
	putTogether(t, w, 10, 1) // its acknowledgement is sent when the calls before it have returned
	detach()

	calls := readTrace(t, trace)
	for _, p := range all {
		ack := p.find(calls, func(c call) bool { return c.sends && strings.Contains(c.text, p.id.String()) }, "acknowledgement")
		log := p.find(calls, func(c call) bool { return c.log() && c.name == "write" && strings.Contains(c.text, p.marker) }, "log write")
		sync := p.find(calls, func(c call) bool { return c.syncs() && c.path == log.path && c.began > log.ended }, "sync of the log")
		if sync.ended > ack.began {
			t.Errorf("%s: acknowledged in line %d, on disk in line %d", p.marker, ack.began, sync.ended)
		}
		if !p.checkpoint {
			continue
		}
		mark := p.find(calls, func(c call) bool {
			return strings.HasPrefix(c.name, "rename") && strings.Contains(c.text, "highwater") && c.began > sync.ended
		}, "new mark")
		entry := p.find(calls, func(c call) bool { return c.syncs() && c.began > mark.ended && c.path == filepath.Dir(mark.path) }, "sync of its directory")
		if entry.ended > ack.began {
			t.Errorf("%s: acknowledged in line %d, the mark is in its place in line %d", p.marker, ack.began, entry.ended)
		}
	}
}

// traced is a put whose way through the kernel is looked at.
type traced struct {
	t          *testing.T
	marker     string
	id         wire.RecordID
	checkpoint bool
}

func (p traced) find(calls []call, want func(call) bool, what string) call {
	p.t.Helper()
	for _, c := range calls {
		if want(c) {
			return c
		}
	}
	p.t.Fatalf("%s: the trace has no %s", p.marker, what)
	return call{}
}

// putTogether sends n puts at once and waits for their acknowledgements.
func putTogether(t *testing.T, w *world.World, round, n int) (all []traced) {
	t.Helper()
	nc := dial(t, w)
	acks, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		marker := fmt.Sprintf("marker-%d-%d-%d-end", round, i, time.Now().UnixNano())
		put := wire.Put{PutID: wire.NewPutID(), Checkpoint: i == 0, Record: wire.PutRecord{
			Kind: "note", SHA256: sum([]byte(marker)), TenantID: "acme", Body: []byte(marker),
		}}
		data, err := wire.Encode(put)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(wire.SubjectPutPrefix+"archive-a", acks.Subject, data); err != nil {
			t.Fatal(err)
		}
		all = append(all, traced{t, marker, put.Record.ID(), put.Checkpoint})
	}
	for range n {
		msg, err := acks.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if ack, err := wire.Decode[wire.PutAck](msg.Data); err != nil || ack.Seq == 0 {
			t.Fatalf("%s: %v", msg.Data, err)
		}
	}
	return all
}

// attach traces a process until the function returned is called.
func attach(t *testing.T, strace, trace string, pid int) (detach func()) {
	t.Helper()
	cmd := exec.Command(strace, "-f", "-yy", "-s", "131072", "-o", trace,
		"-e", "trace=write,writev,sendto,sendmsg,pwrite64,fsync,fdatasync,sync_file_range,rename,renameat,renameat2", "-p", strconv.Itoa(pid))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := bufio.NewReader(said)
	if line, err := first.ReadString('\n'); err != nil || !strings.Contains(line, "attached") {
		need.Missing(t, "the right to trace a process it has started: "+line)
	}
	go io.Copy(io.Discard, first)
	return func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // its status tells of the signal
	}
}

// call is a system call: began and ended are the lines of the trace where it
// was entered and where it had returned.
type call struct {
	name, text   string
	path         string // of its first descriptor, or the target of a rename
	sends        bool   // its first descriptor is a socket
	began, ended int
}

func (c call) log() bool { return strings.HasSuffix(c.path, ".log") }

func (c call) syncs() bool { return c.name == "fsync" || c.name == "fdatasync" }

var (
	whole   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\d+)`)
	entered = regexp.MustCompile(`^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)`)
	first   = regexp.MustCompile(`^\d+<([^>]*)>`)
	quoted  = regexp.MustCompile(`"([^"]*)"[^"]*$`)
)

// readTrace returns the calls that succeeded, in the order in which they began.
func readTrace(t *testing.T, path string) (calls []call) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]call{} // by thread
	for n, line := range strings.Split(string(data), "\n") {
		if m := entered.FindStringSubmatch(line); m != nil {
			open[m[1]] = call{name: m[2], text: m[3], began: n}
			continue
		}
		c := call{began: n}
		m := whole.FindStringSubmatch(line)
		if m != nil {
			c.name, c.text = m[2], m[3]
		} else if m = resumed.FindStringSubmatch(line); m != nil {
			c = open[m[1]]
			c.text += m[3]
		}
		if m == nil || strings.HasPrefix(m[4], "-") || c.name == "" {
			continue
		}
		c.ended = n
		if f := first.FindStringSubmatch(c.text); f != nil {
			c.path = f[1]
			c.sends = strings.HasPrefix(c.path, "TCP:")
		}
		if q := quoted.FindStringSubmatch(c.text); q != nil && strings.HasPrefix(c.name, "rename") {
			c.path = q[1]
		}
		calls = append(calls, c)
	}
	return calls
}
