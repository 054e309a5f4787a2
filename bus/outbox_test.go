package bus

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// fakeOutbox answers what it is told to, and remembers what it was asked.
type fakeOutbox struct {
	items  []wire.OutboxItem
	err    error
	block  chan struct{} // requests wait until it is closed; nil: they do not
	claims chan wire.OutboxClaim
	dones  chan wire.OutboxDone
}

func newFakeOutbox() *fakeOutbox {
	return &fakeOutbox{claims: make(chan wire.OutboxClaim, 100), dones: make(chan wire.OutboxDone, 100)}
}

func (f *fakeOutbox) ClaimOCR(ctx context.Context, c wire.OutboxClaim) (wire.OutboxItems, error) {
	f.claims <- c
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return wire.OutboxItems{}, ctx.Err()
		}
	}
	return wire.OutboxItems{Items: f.items}, f.err
}

func (f *fakeOutbox) DoneOCR(_ context.Context, d wire.OutboxDone) (wire.OutboxCount, error) {
	f.dones <- d
	return wire.OutboxCount{Done: len(d.IDs)}, f.err
}

// serveOutbox serves f on a new server and returns a bridge's connection.
func serveOutbox(t *testing.T, f *fakeOutbox) (*OutboxService, *Conn) {
	t.Helper()
	leakCheck(t)
	s := startServer(t, server.Config{})
	service, err := ServeOutbox(connect(t, s, "aggregator"), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Drain(context.Background()) })
	return service, connect(t, s, "bridge")
}

const messageID wire.EnvelopeID = "0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70"

// A bridge gets the bytes of a message as they are, and reports it by its id.
func TestMessagesAreClaimedAndReported(t *testing.T) {
	f := newFakeOutbox()
	f.items = []wire.OutboxItem{{ID: messageID, Envelope: wire.RawJSON(`{"version":1,"payload":{"filename":"<ä> \u2028 & b","new":1.50}}`)}}
	_, bridge := serveOutbox(t, f)
	got, err := bridge.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 3, LeaseMs: 1500})
	if diff := cmp.Diff(wire.OutboxItems{Items: f.items}, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if c := <-f.claims; c.Max != 3 || c.LeaseMs != 1500 {
		t.Errorf("the claim came as %+v", c)
	}
	count, err := bridge.DoneOCR(t.Context(), wire.OutboxDone{IDs: []wire.EnvelopeID{messageID}})
	if d := <-f.dones; err != nil || count.Done != 1 || len(d.IDs) != 1 || d.IDs[0] != messageID {
		t.Errorf("%+v came as %+v, %v", count, d, err)
	}
	f.items = nil
	if got, err := bridge.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 1, LeaseMs: 1000}); err != nil || got.Items == nil || len(got.Items) != 0 {
		t.Errorf("an empty outbox: %+v, %v", got, err)
	}
}

func TestRequestsToTheOutboxAreReadStrictly(t *testing.T) {
	f := newFakeOutbox()
	_, bridge := serveOutbox(t, f)
	for _, body := range []string{``, `null`, `[]`, `{"max":1,"Max":2,"leaseMs":1000}`, `{"max":"1"}`, `{"ids":[1]}`, `{"ids":null,"ids":[]}`, `{} {}`} {
		for _, subject := range []string{wire.SubjectOCRClaim, wire.SubjectOCRDone} {
			if strings.Contains(body, "ids") != (subject == wire.SubjectOCRDone) && strings.HasPrefix(body, `{"`) {
				continue // unknown keys are ignored
			}
			reply, err := bridge.bulk.RequestWithContext(t.Context(), subject, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			wantFault(t, replyFault(reply, "the outbox"), fault.Invalid, CodeMalformed)
		}
	}
	if len(f.claims)+len(f.dones) != 0 {
		t.Error("a request that does not parse was carried out")
	}
}

func TestRefusalsOfTheOutboxKeepTheirKind(t *testing.T) {
	f := newFakeOutbox()
	_, bridge := serveOutbox(t, f)
	claim := wire.OutboxClaim{Max: 1, LeaseMs: 1000}
	f.err = fault.New(fault.Invalid, "BAD_CLAIM", "claim: max: 0")
	_, err := bridge.ClaimOCR(t.Context(), claim)
	wantFault(t, err, fault.Invalid, "BAD_CLAIM")
	f.err = errors.New("open /srv/secret: broken")
	_, err = bridge.DoneOCR(t.Context(), wire.OutboxDone{})
	wantFault(t, err, fault.Internal, CodeInternal)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("what failed inside is told: %v", err)
	}
	f.err, f.items = nil, []wire.OutboxItem{{ID: messageID, Envelope: wire.RawJSON(`"` + strings.Repeat("a", int(bridge.bulk.MaxPayload())) + `"`)}}
	_, err = bridge.ClaimOCR(t.Context(), claim)
	wantFault(t, err, fault.Invalid, CodeTooLarge)
}

// A claim without anybody to answer takes nothing; a report is carried out.
func TestClaimWithoutAnAnswerTakesNothing(t *testing.T) {
	f := newFakeOutbox()
	_, bridge := serveOutbox(t, f)
	if err := bridge.bulk.Publish(wire.SubjectOCRClaim, []byte(`{"max":1,"leaseMs":1000}`)); err != nil {
		t.Fatal(err)
	}
	if err := bridge.bulk.Publish(wire.SubjectOCRDone, []byte(`{"ids":["`+messageID+`"]}`)); err != nil {
		t.Fatal(err)
	}
	<-f.dones
	if _, err := bridge.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 2, LeaseMs: 1000}); err != nil {
		t.Fatal(err)
	}
	if c := <-f.claims; c.Max != 2 {
		t.Errorf("the claim that nobody waits for was carried out: %+v", c)
	}
}

// More requests than there are places for are refused at once, and a drain waits
// for those under way.
func TestRequestsToTheOutboxAreBounded(t *testing.T) {
	f := newFakeOutbox()
	f.block = make(chan struct{})
	service, bridge := serveOutbox(t, f)
	replies := make(chan *nats.Msg, outboxMost)
	sub, err := bridge.bulk.ChanSubscribe("answers", replies)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	for range outboxMost {
		if err := bridge.bulk.PublishRequest(wire.SubjectOCRClaim, "answers", []byte(`{"max":1,"leaseMs":1000}`)); err != nil {
			t.Fatal(err)
		}
	}
	for range outboxMost {
		<-f.claims
	}
	_, err = bridge.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 1, LeaseMs: 1000})
	wantFault(t, err, fault.Transient, CodeBusy)
	close(f.block)
	if err := service.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	for range outboxMost {
		if err := replyFault(<-replies, "the outbox"); err != nil {
			t.Error(err)
		}
	}
	_, err = bridge.ClaimOCR(t.Context(), wire.OutboxClaim{Max: 1, LeaseMs: 1000})
	wantFault(t, err, fault.Transient, CodeUnreachable)
}
