package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// lone is one archive as a process of its own, with a NATS server and no
// aggregator.
type lone struct {
	t    *testing.T
	nc   *nats.Conn
	env  []string
	out  *syncedBuffer
	logs string // what earlier processes logged
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

const loneID = "archive-a"

// newLone makes an archive in dir; env is added to its environment.
func newLone(t *testing.T, dir string, env ...string) *lone {
	t.Helper()
	bus, err := server.Start(server.Config{Port: server.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Shutdown(t.Context()) })
	nc, err := nats.Connect(bus.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := &lone{t: t, nc: nc, env: append([]string{"DATA_DIR=" + dir, "ARCHIVE_ID=" + loneID, "NATS_URL=" + bus.ClientURL(), "ADMIN_ADDR=127.0.0.1:0", "BLOOM_KEYS=1000"}, env...)}
	if code, text := l.run("init"); code != 0 {
		t.Fatalf("init: %d %s", code, text)
	}
	t.Cleanup(func() {
		if l.cmd != nil {
			l.kill()
		}
		if t.Failed() {
			t.Log(l.logs)
		}
	})
	return l
}

// run runs the program to its end, with more environment.
func (l *lone) run(command string, env ...string) (code int, text string) {
	l.t.Helper()
	cmd := exec.Command(os.Args[0], "world-program", "archived", command)
	cmd.Env = append(append(os.Environ(), l.env...), env...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		l.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// start starts the archive and waits until it serves.
func (l *lone) start() {
	l.t.Helper()
	ready := filepath.Join(l.t.TempDir(), "ready")
	l.out, l.done = &syncedBuffer{}, make(chan struct{})
	l.cmd = exec.Command(os.Args[0], "world-program", "archived", "serve")
	l.cmd.Env = append(append(os.Environ(), l.env...), "READY_FILE="+ready)
	l.cmd.Stdout, l.cmd.Stderr = l.out, l.out
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(l.cmd, l.done)
	l.until("it serves", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
}

// until polls for what a process will have done; nothing is timed by it.
func (l *lone) until(what string, is func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-l.done:
			l.t.Fatalf("waiting until %s, it ended: %v\n%s", what, l.cmd.ProcessState, l.out.String())
		default:
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("not within a minute: %s\n%s", what, l.out.String())
		}
	}
}

// kill ends the process as a power cut would.
func (l *lone) kill() {
	_ = l.cmd.Process.Kill()
	<-l.done
	l.logs += l.out.String()
	l.cmd = nil
}

// stop asks the process to end, and returns its exit code.
func (l *lone) stop() int {
	l.t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	<-l.done
	code := l.cmd.ProcessState.ExitCode()
	l.logs += l.out.String()
	l.cmd = nil
	return code
}

// put stores a record of size random bytes and returns its subject.
func (l *lone) put(size int) (subject wire.Digest, err error) {
	l.t.Helper()
	body := make([]byte, size)
	rand.Read(body)
	subject = sum(body)
	data, err := wire.Encode(wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{Kind: "note", SHA256: subject, TenantID: "acme", Body: body}})
	if err != nil {
		l.t.Fatal(err)
	}
	msg, err := l.nc.Request(wire.SubjectPutPrefix+loneID, data, 30*time.Second)
	if err != nil {
		l.t.Fatalf("no answer to a put: %v\n%s", err, l.out.String())
	}
	if ack, err := wire.Decode[wire.PutAck](msg.Data); err == nil && ack.Seq > 0 {
		return subject, nil
	}
	p, err := wire.Decode[wire.Problem](msg.Data)
	if err != nil {
		l.t.Fatalf("neither an acknowledgement nor a problem: %s", msg.Data)
	}
	return subject, fault.New(fault.ParseKind(p.Kind), p.Code, "%s", p.Message)
}

// holds reports whether the archive answers a query for a subject with its
// record.
func (l *lone) holds(subject wire.Digest) bool {
	l.t.Helper()
	id := wire.NewCorrelationID()
	replies, err := l.nc.SubscribeSync(wire.SubjectReplyPrefix + string(id))
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = replies.Unsubscribe() }()
	data, err := wire.Encode(wire.Query{CorrelationID: id, SHA256: subject, TenantID: "acme", Kinds: []wire.Kind{}})
	if err != nil {
		l.t.Fatal(err)
	}
	query := nats.NewMsg(wire.SubjectQuery)
	query.Data, query.Reply = data, wire.SubjectReplyPrefix+string(id)
	query.Header.Set(wire.HeaderExpect, loneID) // an answer also if there is nothing
	if err := l.nc.PublishMsg(query); err != nil {
		l.t.Fatal(err)
	}
	msg, err := replies.NextMsg(30 * time.Second)
	if err != nil {
		l.t.Fatalf("no answer to a query: %v", err)
	}
	reply, err := wire.Decode[wire.Reply](msg.Data)
	return err == nil && len(reply.Records) == 1 && reply.Records[0].SHA256 == subject
}

// hello returns the next hello.
func (l *lone) hello() wire.Hello {
	l.t.Helper()
	sub, err := l.nc.SubscribeSync(wire.SubjectHelloPrefix + loneID)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	msg, err := sub.NextMsg(30 * time.Second)
	if err != nil {
		l.t.Fatalf("no hello: %v\n%s", err, l.out.String())
	}
	hello, err := wire.Decode[wire.Hello](msg.Data)
	if err != nil {
		l.t.Fatal(err)
	}
	return hello
}

// readiness asks the admin listener, whose address is in the log.
func (l *lone) readiness() (status int, checks map[string]string) {
	l.t.Helper()
	addr := ""
	for lines := bufio.NewScanner(strings.NewReader(l.out.String())); lines.Scan(); {
		var line struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "the admin listener is open" {
			addr = line.Addr
		}
	}
	res, err := http.Get("http://" + addr + "/readyz?verbose")
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Checks []struct{ Name, Code, Error string }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		l.t.Fatal(err)
	}
	checks = map[string]string{}
	for _, c := range answer.Checks {
		checks[c.Name] = strings.TrimSpace(c.Code + " " + c.Error)
	}
	return res.StatusCode, checks
}
