package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestProblemTellsKindAndNoSecret(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want wire.Problem
	}{
		{"invalid", fault.New(fault.Invalid, "BAD_FIELD", "sha256: too short"), wire.Problem{Code: "BAD_FIELD", Kind: "invalid", Message: "sha256: too short"}},
		{"wrapped", fmt.Errorf("put: %w", fault.New(fault.Conflict, "C", "other")), wire.Problem{Code: "C", Kind: "conflict", Message: "put: other"}},
		{"transient", fault.New(fault.Transient, "BUSY", "full").After(1500 * time.Millisecond), wire.Problem{Code: "BUSY", Kind: "transient", Message: "full", RetryAfterMs: 1500}},
		{"unclassified", errors.New("open /data/x: denied"), wire.Problem{Code: "INTERNAL", Kind: "internal", Message: "internal error"}},
		{"internal with a code", fault.New(fault.Internal, "SECRET_CODE", "path /x"), wire.Problem{Code: "INTERNAL", Kind: "internal", Message: "internal error"}},
		{"corrupt", fault.New(fault.Corrupt, "", "/data/x"), wire.Problem{Code: "CORRUPT", Kind: "corrupt", Message: "stored bytes are not what was written"}},
		{"corrupt with a code", fault.New(fault.Corrupt, "BLOB_CORRUPT", "/data/x"), wire.Problem{Code: "BLOB_CORRUPT", Kind: "corrupt", Message: "stored bytes are not what was written"}},
		{"deadline", context.DeadlineExceeded, wire.Problem{Code: "TIMEOUT", Kind: "transient", Message: "context deadline exceeded"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ProblemOf(tc.err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			back := FaultOf(got, "archive a")
			if fault.KindOf(back) != fault.KindOf(tc.err) || fault.CodeOf(back) != got.Code || fault.RetryAfter(back) != fault.RetryAfter(tc.err) {
				t.Errorf("came back as %v", back)
			}
			wantText(t, back, "archive a: "+got.Message)
		})
	}
}

func TestUnknownKindBlamesNobody(t *testing.T) {
	err := FaultOf(wire.Problem{Kind: "a-newer-kind", Code: "X", Message: "m"}, "peer")
	wantFault(t, err, fault.Internal, "X")
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	p := ProblemOf(fault.New(fault.Invalid, "X", "%s", strings.Repeat("é", maxProblemMessage)))
	if len(p.Message) > maxProblemMessage+len("...") || !utf8.ValidString(p.Message) {
		t.Errorf("%d bytes, valid %v", len(p.Message), utf8.ValidString(p.Message))
	}
	exact := strings.Repeat("x", maxProblemMessage)
	if got := ProblemOf(fault.New(fault.Invalid, "X", "%s", exact)).Message; got != exact {
		t.Error("a message of the full length was cut")
	}
}

func TestMarkedReplyIsAlwaysAFault(t *testing.T) {
	marked := nats.Header{wire.HeaderProblem: {"X"}}
	for name, tc := range map[string]struct {
		msg  *nats.Msg
		kind fault.Kind
		code string
	}{
		"problem":    {&nats.Msg{Header: marked, Data: encode(t, wire.Problem{Code: "X", Kind: "denied", Message: "no"})}, fault.Denied, "X"},
		"unreadable": {&nats.Msg{Header: marked, Data: []byte("{")}, fault.Internal, CodeBadAck},
		"long code":  {&nats.Msg{Header: marked, Data: encode(t, wire.Problem{Code: strings.Repeat("C", 1000)})}, fault.Internal, strings.Repeat("C", maxProblemCodeSize)},
	} {
		t.Run(name, func(t *testing.T) { wantFault(t, replyFault(tc.msg, "peer"), tc.kind, tc.code) })
	}
	if err := replyFault(&nats.Msg{Data: []byte("{}")}, "peer"); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfTheClientLibraryAreClassified(t *testing.T) {
	for _, tc := range []struct {
		err  error
		kind fault.Kind
		code string
	}{
		{nats.ErrNoResponders, fault.Transient, CodeUnreachable},
		{nats.ErrConnectionClosed, fault.Transient, CodeDisconnected},
		{nats.ErrDisconnected, fault.Transient, CodeDisconnected},
		{nats.ErrReconnectBufExceeded, fault.Transient, CodeDisconnected},
		{context.DeadlineExceeded, fault.Transient, CodeTimeout},
		{context.Canceled, fault.Transient, CodeTimeout},
		{nats.ErrTimeout, fault.Transient, CodeTimeout},
		{nats.ErrMaxPayload, fault.Invalid, CodeTooLarge},
		{nats.ErrBadSubject, fault.Internal, ""},
	} {
		err := sendFault(tc.err, "peer")
		wantFault(t, err, tc.kind, tc.code)
		if !errors.Is(err, tc.err) {
			t.Errorf("%v does not wrap %v", err, tc.err)
		}
	}
	if sendFault(nil, "peer") != nil {
		t.Error("a fault out of nothing")
	}
}
