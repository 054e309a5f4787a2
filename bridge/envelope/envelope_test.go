package envelope

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// golden is a message as this system makes it, without the line's end.
func golden(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/ocr_job.json")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(data, []byte("\n"))
}

func wantRefused(t *testing.T, err error, code, field string) {
	t.Helper()
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != code || fault.FieldOf(err) != field {
		t.Errorf("got %v (%s, code %s, field %q), want %s about %q", err, fault.KindOf(err), fault.CodeOf(err), fault.FieldOf(err), code, field)
	}
}

func TestTheGoldenMessageIsRead(t *testing.T) {
	raw := golden(t)
	e, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != "0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70" || e.TS != 1796047331 || e.Attempt != 1 || !bytes.Equal(e.Bytes(), raw) {
		t.Errorf("%+v", e)
	}
	job, err := e.OCRJob()
	if err != nil {
		t.Fatal(err)
	}
	again, err := wire.Encode(job)
	if diff := cmp.Diff(string(e.Payload), string(again)); diff != "" || err != nil {
		t.Errorf("payload (-) and what it decodes to (+): %s, %v", diff, err)
	}
}

func TestEveryMemberIsNeededAndChecked(t *testing.T) {
	const good = `"version":1,"id":"0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70","ts":0,"attempt":1,"payload":{"kind":"ocr"}`
	if _, err := Parse([]byte("{" + good + "}")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, code, field string }{
		{`"version":1,`, ``, CodeMalformed, "version"},
		{`"version":1`, `"version":null`, CodeMalformed, "version"},
		{`"version":1`, `"version":2`, CodeVersion, "version"},
		{`"version":1`, `"version":"1"`, CodeVersion, "version"},
		{`"version":1`, `"version":1,"version":1`, CodeMalformed, "version"},
		{`"id":"0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70",`, ``, CodeMalformed, "id"},
		{`0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70`, `message 1`, CodeMalformed, "id"},
		{`"ts":0,`, ``, CodeMalformed, "ts"},
		{`"ts":0`, `"ts":0.5`, CodeMalformed, "ts"},
		{`"ts":0`, `"ts":-1`, CodeMalformed, "ts"},
		{`"ts":0`, `"ts":"0"`, CodeMalformed, "ts"},
		{`"attempt":1,`, ``, CodeMalformed, "attempt"},
		{`"attempt":1`, `"attempt":0`, CodeMalformed, "attempt"},
		{`"attempt":1`, `"attempt":1e0`, CodeMalformed, "attempt"},
		{`,"payload":{"kind":"ocr"}`, ``, CodeMalformed, "payload"},
		{`{"kind":"ocr"}`, `null`, CodeMalformed, "payload"},
		{`{"kind":"ocr"}`, `{}`, CodeMalformed, "payload"},
		{`{"kind":"ocr"}`, "{ \n }", CodeMalformed, "payload"},
		{`{"kind":"ocr"}`, `["ocr"]`, CodeMalformed, "payload"},
		{`{"kind":"ocr"}`, `"ocr"`, CodeMalformed, "payload"},
	} {
		_, err := Parse([]byte("{" + strings.Replace(good, tt.old, tt.new, 1) + "}"))
		t.Run(tt.new, func(t *testing.T) { wantRefused(t, err, tt.code, tt.field) })
	}
	for _, bad := range []string{"", "null", "[]", "{" + good + "} {}", `{"a":"` + strings.Repeat("a", MaxSize) + `"}`} {
		_, err := Parse([]byte(bad))
		wantRefused(t, err, CodeMalformed, "")
	}
}

// The sample of the seed is no JSON, its number has underscores. It must be told
// so, where and what.
func TestTheSampleOfTheSeedIsRefusedWithTheReason(t *testing.T) {
	raw, err := os.ReadFile("testdata/seed/envelope.json")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse(raw)
	wantRefused(t, err, CodeMalformed, "payload")
	if err == nil || !strings.Contains(err.Error(), "'_'") || !strings.Contains(err.Error(), "at byte") {
		t.Errorf("the reason is %v", err)
	}
	fixed, err := Parse(bytes.Replace(raw, []byte("4_823_104"), []byte("4823104"), 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = fixed.OCRJob()
	wantRefused(t, err, CodePayload, "payload.ipfs_cid") // it ends in an ellipsis
}

// Ids that a neighbour made as version 4, or spelt in capitals, are ids.
func TestAnyUUIDIsAnID(t *testing.T) {
	for _, id := range []string{"5e0d6b5a-9f0e-4c1a-8f1e-0123456789ab", "0192F4E2-7C10-7C71-A4B1-0A3F1C2B8D44"} {
		raw := bytes.Replace(golden(t), []byte("0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70"), []byte(id), 1)
		e, err := Parse(raw)
		if err != nil || string(e.ID) != strings.ToLower(id) {
			t.Errorf("%s: %s, %v", id, e.ID, err)
		}
		if next, err := e.Next(); err != nil || !bytes.Contains(next.Bytes(), []byte(`"id":"`+id+`"`)) {
			t.Errorf("%s is not kept: %s, %v", id, next.Bytes(), err)
		}
	}
}

// What others have added travels on, byte for byte, wherever it stands.
func TestNextAttemptChangesNothingElse(t *testing.T) {
	before := ` { "trace":{"attempt":7,"x":"}\""} , "payload": {"kind":"ocr","attempt":1, "new":[1,2 ,{"a":null}]},"\u0061ttempt" :  1 ,` +
		`"version":1,"ts":1747613000,"id":"0192f4e2-7c10-7c71-a4b1-0a3f1c2b8d44","note":"\\", "last":[ ] } `
	e, err := Parse([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	for want := 2; want <= MaxAttempts+1; want++ {
		if e.Exhausted() {
			t.Fatalf("attempt %d is given up", e.Attempt)
		}
		next, err := e.Next()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(before, `"\u0061ttempt" :  1 ,`, `"\u0061ttempt" :  `+string(rune('0'+want))+` ,`, 1)
		if diff := cmp.Diff(text, string(next.Bytes())); diff != "" {
			t.Errorf("attempt %d: %s", want, diff)
		}
		if next.Attempt != want || next.ID != e.ID || next.TS != e.TS || string(next.Payload) != string(e.Payload) {
			t.Errorf("attempt %d: %+v", want, next)
		}
		if e, err = Parse(next.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if !e.Exhausted() {
		t.Errorf("attempt %d of %d is not given up", e.Attempt, MaxAttempts)
	}
	_, err = e.Next()
	wantRefused(t, err, CodeExhausted, "attempt")
}

func TestMintedMessages(t *testing.T) {
	now := time.Unix(1796047331, 999)
	size := int64(11)
	payload := OCRJob{Kind: KindOCR, JobID: "j", IPFSCID: "b", Filename: "<a> & b", Bytes: &size}
	var last wire.EnvelopeID
	for range 3 {
		e, err := Mint(payload, now)
		if err != nil {
			t.Fatal(err)
		}
		if e.Attempt != 1 || e.TS != 1796047331 || e.ID <= last || e.ID[14] != '7' {
			t.Errorf("%s after %s", e.Bytes(), last)
		}
		if !bytes.Contains(e.Bytes(), []byte(`"filename":"<a> & b"`)) {
			t.Errorf("%s", e.Bytes())
		}
		last = e.ID
	}
	for _, empty := range []any{struct{}{}, []int{1}, "text", map[string]int{}} {
		if _, err := Mint(empty, now); err == nil {
			t.Errorf("%v is a payload", empty)
		}
	}
}

func TestPropertiesMirrorTheMessage(t *testing.T) {
	e, err := Parse(golden(t))
	if err != nil {
		t.Fatal(err)
	}
	good := e.Properties()
	if err := e.CheckProperties(good); err != nil || good.DeliveryMode != 2 || good.ContentType != "application/json" || good.MessageID != string(e.ID) {
		t.Errorf("%+v, %v", good, err)
	}
	for field, change := range map[string]func(*Properties){
		"":               func(p *Properties) { p.MessageID, p.CorrelationID = "", strings.ToUpper(p.CorrelationID) },
		"content_type":   func(p *Properties) { p.ContentType = "text/plain" },
		"delivery_mode":  func(p *Properties) { p.DeliveryMode = 1 },
		"message_id":     func(p *Properties) { p.MessageID = "1" },
		"correlation_id": func(p *Properties) { p.CorrelationID = "0192f4e2-7c10-7c71-a4b1-0a3f1c2b8d44" },
	} {
		p := good
		change(&p)
		if err := e.CheckProperties(p); field != "" {
			wantRefused(t, err, CodeMalformed, field)
		} else if err != nil {
			t.Error(err)
		}
	}
	p := good
	for text, want := range map[string]bool{"application/json; charset=utf-8": true, "application/json;charset=latin1": false, "": false} {
		p.ContentType = text
		if err := e.CheckProperties(p); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParse: what is read has the five members, and its next attempt is read and
// differs in its attempt alone.
func FuzzParse(f *testing.F) {
	f.Add(golden(f))
	seed, err := os.ReadFile("testdata/seed/envelope.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(bytes.Replace(seed, []byte("4_823_104"), []byte("4823104"), 1))
	f.Add([]byte(`{"x":[{"attempt":9}],"\u0061ttempt":5,"payload":{"a":1},"version":1,"ts":1,"id":"0192f4e2-7c10-7c71-a4b1-0a3f1c2b8d44"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Parse(raw)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("a foreign message is blamed on us: %v", err)
			}
			return
		}
		if _, err := e.OCRJob(); err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("a foreign payload is blamed on us: %v", err)
		}
		next, err := e.Next()
		if e.Exhausted() {
			wantRefused(t, err, CodeExhausted, "attempt")
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(next.Bytes())
		if err != nil {
			t.Fatalf("%s becomes %s: %v", raw, next.Bytes(), err)
		}
		if again.Attempt != e.Attempt+1 || again.ID != e.ID || again.TS != e.TS || !bytes.Equal(again.Payload, e.Payload) {
			t.Errorf("%s becomes %s", raw, next.Bytes())
		}
		// Attempts up to MaxAttempts and the next one have one digit each.
		changed := 0
		for i := range raw {
			if raw[i] != next.raw[i] {
				changed++
			}
		}
		if len(next.raw) != len(raw) || changed != 1 {
			t.Errorf("%d bytes of %s change: %s", changed, raw, next.Bytes())
		}
	})
}
