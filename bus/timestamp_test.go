package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// fakeStamp answers with what it was asked, prefixed by the call.
type fakeStamp struct {
	on    func(ctx context.Context, body string) error
	calls atomic.Int64
}

func (f *fakeStamp) Submit(ctx context.Context, body []byte) ([]byte, error) {
	return f.answer(ctx, "submit", body)
}

func (f *fakeStamp) Lookup(ctx context.Context, body []byte) ([]byte, error) {
	return f.answer(ctx, "lookup", body)
}

func (f *fakeStamp) answer(ctx context.Context, call string, body []byte) ([]byte, error) {
	f.calls.Add(1)
	if f.on != nil {
		if err := f.on(ctx, string(body)); err != nil {
			return nil, err
		}
	}
	return append([]byte(call+" "), body...), nil
}

// serveStamp serves f on a new server and returns a plain NATS client.
func serveStamp(t *testing.T, f *fakeStamp, cfg TimestampConfig) (*TimestampService, *nats.Conn) {
	t.Helper()
	leakCheck(t)
	s := startServer(t, server.Config{})
	service, err := ServeTimestamp(connect(t, s, "aggregator"), f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Drain(context.Background()) })
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return service, nc
}

func TestPlainClientsAreAnswered(t *testing.T) {
	_, nc := serveStamp(t, &fakeStamp{}, TimestampConfig{})
	for subject, want := range map[string]string{
		"verae.timestamp.submit": "submit body", "verae.timestamp.lookup": "lookup body",
	} {
		reply, err := nc.RequestWithContext(t.Context(), subject, []byte("body"))
		if err != nil || string(reply.Data) != want || len(reply.Header) != 0 {
			t.Errorf("%s: got %v, %v", subject, reply, err)
		}
	}
}

func TestRefusalsAreProblems(t *testing.T) {
	_, nc := serveStamp(t, &fakeStamp{on: func(_ context.Context, body string) error {
		switch body {
		case "invalid":
			return fault.New(fault.Invalid, "DIGEST_MISMATCH", "sha256 and data disagree")
		case "busy":
			return fault.New(fault.Transient, "NO_ARCHIVE", "none").After(time.Second)
		}
		return errors.New("open /srv/secret: broken")
	}}, TimestampConfig{})
	for body, want := range map[string]wire.Problem{
		"invalid": {Code: "DIGEST_MISMATCH", Kind: "invalid", Message: "sha256 and data disagree"},
		"busy":    {Code: "NO_ARCHIVE", Kind: "transient", Message: "none", RetryAfterMs: 1000},
		"broken":  {Code: "INTERNAL", Kind: "internal", Message: "internal error"},
	} {
		reply, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.Decode[wire.Problem](reply.Data)
		if err != nil || got != want || reply.Header.Get("Verae-Problem") != want.Code {
			t.Errorf("%s: got %s with %v, %v", body, reply.Data, reply.Header, err)
		}
	}
}

func TestAnswerLargerThanAMessageIsAProblem(t *testing.T) {
	service, nc := serveStamp(t, &fakeStamp{}, TimestampConfig{})
	limit := int(service.conn.bulk.MaxPayload())
	ask := func(answer int) error { // for an answer of so many bytes
		t.Helper()
		reply, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, make([]byte, answer-len("submit ")))
		if err != nil {
			t.Fatal(err)
		}
		return replyFault(reply, "aggregator")
	}
	if err := ask(limit); err != nil {
		t.Errorf("an answer of exactly max_payload: %v", err)
	}
	err := ask(limit + 1)
	wantFault(t, err, fault.Internal, CodeTooLarge)
	wantText(t, err, fmt.Sprint(limit+1), "HTTP")
}

func TestRequestsAreBoundedInNumberAndTime(t *testing.T) {
	block := make(chan struct{})
	f := &fakeStamp{on: func(ctx context.Context, body string) error {
		if body == "slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		<-block
		return nil
	}}
	service, nc := serveStamp(t, f, TimestampConfig{Most: 3, Timeout: 50 * time.Millisecond})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release)
	reply, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, []byte("slow"))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, replyFault(reply, "aggregator"), fault.Transient, CodeTimeout)
	eventually(t, "its place is free again", func() bool {
		service.gate.mu.Lock()
		defer service.gate.mu.Unlock()
		return service.gate.n == 3
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if reply, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, nil); err != nil || replyFault(reply, "") != nil {
				t.Error(reply, err)
			}
		})
	}
	eventually(t, "all places are taken", func() bool { return f.calls.Load() == 4 })
	reply, err = nc.RequestWithContext(t.Context(), wire.SubjectLookup, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, replyFault(reply, "aggregator"), fault.Transient, CodeBusy)
	release()
	wg.Wait()
}

// Each request goes to one of the aggregators.
func TestAggregatorsShareTheRequests(t *testing.T) {
	leakCheck(t)
	s := startServer(t, server.Config{})
	var stamps [3]fakeStamp
	for i := range stamps {
		service, err := ServeTimestamp(connect(t, s, fmt.Sprint("aggregator-", i)), &stamps[i], TimestampConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { service.Drain(context.Background()) })
	}
	nc := connect(t, s, "middleware").ctl
	const n = 100
	for range n {
		if _, err := nc.RequestWithContext(t.Context(), wire.SubjectLookup, nil); err != nil {
			t.Fatal(err)
		}
	}
	var sum int64
	for i := range stamps {
		sum += stamps[i].calls.Load()
	}
	if sum != n {
		t.Errorf("%d calls for %d requests", sum, n)
	}
}

func TestTimestampDrainAnswersWhatItTook(t *testing.T) {
	block := make(chan struct{})
	f := &fakeStamp{on: func(context.Context, string) error { <-block; return nil }}
	service, nc := serveStamp(t, f, TimestampConfig{})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release)
	answered := make(chan error, 1)
	go func() {
		reply, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, nil)
		if err == nil {
			err = replyFault(reply, "aggregator")
		}
		answered <- err
	}()
	eventually(t, "the request is under way", func() bool { return f.calls.Load() == 1 })
	drained := make(chan error, 1)
	go func() { drained <- service.Drain(t.Context()) }()
	eventually(t, "the drain has begun", func() bool {
		service.gate.mu.Lock()
		defer service.gate.mu.Unlock()
		return service.gate.closed
	})
	release()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := nc.RequestWithContext(t.Context(), wire.SubjectSubmit, nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after the drain: %v", err)
	}
}
