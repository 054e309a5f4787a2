package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestPutIsAcknowledgedOnceStored(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	put := note("subject", "body")
	for i, want := range []wire.PutAck{
		{ArchiveID: "archive-a", Generation: 1, Boot: "boot-archive-a", RecordID: put.Record.ID(), Seq: 1},
		{ArchiveID: "archive-a", Generation: 1, Boot: "boot-archive-a", RecordID: put.Record.ID(), Seq: 1, Duplicate: true},
	} {
		ack, err := w.archives.Put(t.Context(), "archive-a", put)
		if err != nil || ack != want {
			t.Errorf("put %d: got %+v, %v; want %+v", i, ack, err, want)
		}
	}
	if w.sites[0].node.stored() != 1 || w.sites[1].node.stored() != 0 {
		t.Error("the record is not on the named archive alone")
	}
}

func TestPutFaultsKeepKindAndCode(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		kind fault.Kind
		code string
		wait time.Duration
		text string // must be in the error
		not  string // must not
	}{
		{"conflict", fault.New(fault.Conflict, "PUT_CONFLICT", "other record"), fault.Conflict, "PUT_CONFLICT", 0, "other record", ""},
		{"transient", fault.New(fault.Transient, "GRACE", "restarting").After(3 * time.Second), fault.Transient, "GRACE", 3 * time.Second, "archive archive-a", ""},
		{"invalid", fault.New(fault.Invalid, "BAD", "wrong"), fault.Invalid, "BAD", 0, "wrong", ""},
		{"internal", errors.New("open /srv/secret/MANIFEST: broken"), fault.Internal, CodeInternal, 0, "internal error", "secret"},
		{"corrupt", fault.New(fault.Corrupt, "", "sst /srv/secret: checksum"), fault.Corrupt, CodeCorrupt, 0, "", "secret"},
		{"own deadline", context.DeadlineExceeded, fault.Transient, CodeTimeout, 0, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := startWorld(t, 1, patient, func(_ int, s *site) {
				s.node.onPut = func(context.Context) error { return tc.err }
			})
			_, err := w.archives.Put(t.Context(), "archive-a", note("s", "b"))
			wantFault(t, err, tc.kind, tc.code)
			wantText(t, err, tc.text)
			if tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("%q leaks %q", err, tc.not)
			}
			if got := fault.RetryAfter(err); got != tc.wait {
				t.Errorf("retry after %v, want %v", got, tc.wait)
			}
		})
	}
}

func TestPutWithoutAnArchiveIsUnreachable(t *testing.T) {
	w := startWorld(t, 0, ArchivesConfig{RequestTimeout: time.Hour}, nil)
	_, err := w.archives.Put(t.Context(), "archive-z", note("s", "b"))
	wantFault(t, err, fault.Transient, CodeUnreachable)
}

func TestPutWithoutAConnectionFailsAtOnce(t *testing.T) {
	w := startWorld(t, 1, ArchivesConfig{RequestTimeout: time.Hour}, nil)
	if err := w.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnected", func() bool { return !w.conn.bulk.IsConnected() })
	_, err := w.archives.Put(t.Context(), "archive-a", note("s", "b"))
	wantFault(t, err, fault.Transient, CodeDisconnected)
}

func TestPutEndsWithItsContextAndItsTimeout(t *testing.T) {
	block := make(chan struct{})
	w := startWorld(t, 1, ArchivesConfig{RequestTimeout: 50 * time.Millisecond}, func(_ int, s *site) {
		s.node.onPut = func(context.Context) error { <-block; return nil }
	})
	t.Cleanup(func() { close(block) })
	_, err := w.archives.Put(t.Context(), "archive-a", note("s", "b"))
	wantFault(t, err, fault.Transient, CodeTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.archives.Put(ctx, "archive-a", note("s", "b"))
	wantFault(t, err, fault.Transient, CodeTimeout)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not wrap the context's error", err)
	}
}

// An archive that acknowledges something else has stored something else.
func TestAckOfAnotherRecordIsRefused(t *testing.T) {
	w := startWorld(t, 0, patient, nil)
	put := note("s", "b")
	good := wire.PutAck{ArchiveID: "archive-x", RecordID: put.Record.ID(), Seq: 1}
	for name, data := range map[string][]byte{
		"other record":  encode(t, wire.PutAck{ArchiveID: "archive-x", RecordID: wire.RecordID{1}}),
		"other archive": encode(t, wire.PutAck{ArchiveID: "archive-y", RecordID: good.RecordID}),
		"not an ack":    []byte("{"),
		"empty":         nil,
	} {
		sub, err := w.conn.bulk.Subscribe("verae.archive.put.archive-x", func(m *nats.Msg) { m.Respond(data) })
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.archives.Put(t.Context(), "archive-x", put)
		if fault.CodeOf(err) != CodeBadAck || fault.KindOf(err) != fault.Internal {
			t.Errorf("%s: got %v", name, err)
		}
		sub.Unsubscribe()
	}
}

func TestPutsInFlightNeverExceedTheCredits(t *testing.T) {
	const puts = 400
	full := make(chan struct{})
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.node.onPut = func(context.Context) error { <-full; return nil }
	})
	release := sync.OnceFunc(func() { close(full) })
	t.Cleanup(release)
	node := w.sites[0].node
	var wg sync.WaitGroup
	errs := make([]error, puts)
	body := strings.Repeat("x", wire.MaxBody)
	for i := range puts {
		wg.Go(func() {
			put := note(fmt.Sprint(i), body)
			if i%4 != 0 {
				put = note(fmt.Sprint(i), "small")
			}
			_, errs[i] = w.archives.Put(t.Context(), "archive-a", put)
		})
	}
	eventually(t, "the window is full", func() bool { return node.inPut.Load() > MaxPutsInFlight/2 })
	release()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if most := node.mostPuts.Load(); most > MaxPutsInFlight {
		t.Errorf("%d puts under way at once, credits for %d", most, MaxPutsInFlight)
	}
	if node.stored() != puts {
		t.Errorf("%d records stored, %d sent", node.stored(), puts)
	}
}

// A seed-only peer knows the bare subject and the minimal form.
func TestBarePutIsStoredByItsOwnersAndAnswered(t *testing.T) {
	w := startWorld(t, 3, patient, nil)
	for _, s := range w.sites {
		eventually(t, "all archives know each other", func() bool { return len(s.service.others.alive()) == 2 })
	}
	digest := digestOf("seed")
	body := fmt.Sprintf(`{"sha256":%q,"tenantId":"tenant-a","kind":"metadata","body":{"n":1}}`, digest)
	reply, err := w.conn.bulk.RequestWithContext(t.Context(), wire.SubjectPut, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	ack, err := wire.Decode[wire.PutAck](reply.Data)
	if err != nil || ack.Seq != 1 {
		t.Fatalf("got %s, %v", reply.Data, err)
	}
	owners := rank(w.ids, digest)[:DefaultCopies]
	eventually(t, "both owners have it", func() bool {
		n := 0
		for _, s := range w.sites {
			n += s.node.stored()
		}
		return n == len(owners)
	})
	for _, s := range w.sites {
		if owner := s.node.id == owners[0] || s.node.id == owners[1]; owner != s.node.holds(ack.RecordID) {
			t.Errorf("%s: owner %v, holds the record %v", s.node.id, owner, !owner)
		}
	}
}

func TestBarePutGoesToThoseThatTakePuts(t *testing.T) {
	w := startWorld(t, 3, patient, nil)
	w.sites[0].service.SetState(wire.StateReadonly)
	for _, s := range w.sites[1:] {
		eventually(t, "two are left", func() bool { return len(s.service.others.alive()) == 1 })
	}
	for i := range 20 {
		if err := w.conn.bulk.Publish(wire.SubjectPut, encode(t, note(fmt.Sprint(i), "b"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range w.sites[1:] {
		eventually(t, "both others have all", func() bool { return s.node.stored() == 20 })
	}
	if n := w.sites[0].node.stored(); n != 0 {
		t.Errorf("the archive that takes no puts stored %d", n)
	}
}

func TestMalformedPutsAreRefusedByName(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	for name, tc := range map[string]struct{ body, want string }{
		"no JSON":     {"{", "ends too early"},
		"null":        {"null", "null"},
		"no record":   {"{}", "record"},
		"no tenant":   {`{"record":{"kind":"note","sha256":"` + digestOf("x").String() + `"}}`, "tenantId"},
		"twice a key": {`{"putId":"a","putId":"b"}`, "twice"},
	} {
		for _, subject := range []string{wire.SubjectPutPrefix + "archive-a", wire.SubjectPut} {
			reply, err := w.conn.bulk.RequestWithContext(t.Context(), subject, []byte(tc.body))
			if err != nil {
				t.Fatal(name, err)
			}
			err = replyFault(reply, "archive")
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s on %s: got %v, want Invalid with %q", name, subject, err, tc.want)
			}
		}
	}
	if n := w.sites[0].node.stored(); n != 0 {
		t.Errorf("%d records stored", n)
	}
}

func TestMorePutsThanTheArchiveTakesAreBusy(t *testing.T) {
	block := make(chan struct{})
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.node.onPut = func(context.Context) error { <-block; return nil }
	})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release)
	answers := make(chan *nats.Msg, MaxPuts+1)
	inbox := w.conn.bulk.NewInbox()
	if _, err := w.conn.bulk.ChanSubscribe(inbox, answers); err != nil {
		t.Fatal(err)
	}
	for i := range MaxPuts + 1 {
		if err := w.conn.bulk.PublishRequest(wire.SubjectPutPrefix+"archive-a", inbox, encode(t, note(fmt.Sprint(i), "b"))); err != nil {
			t.Fatal(err)
		}
	}
	err := replyFault(<-answers, "archive") // only the one too many is answered
	wantFault(t, err, fault.Transient, CodeBusy)
	if fault.RetryAfter(err) <= 0 {
		t.Error("no word on when to try again")
	}
	release()
	for range MaxPuts {
		if err := replyFault(<-answers, "archive"); err != nil {
			t.Error(err)
		}
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := wire.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
