package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A peer of the original contract answers with what was put there: the record is
// the one that the same minimal Put makes here.
func TestReplyOfAPeerOfTheOriginalContract(t *testing.T) {
	const digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	const id = "aa00000000000000000000000000000000000000000000000000000000000000"
	for name, c := range map[string]struct{ record, put string }{
		"an object as body":  {`{"sha256":"D","tenantId":"acme","kind":"note","body":{"from": "a peer"}}`, `{"sha256":"D","tenantId":"acme","kind":"note","body":{"from": "a peer"}}`},
		"base64":             {`{"sha256":"D","tenantId":"acme","kind":"note","body":"aGk="}`, `{"sha256":"D","tenantId":"acme","kind":"note","body":"aGk="}`},
		"an id of its own":   {`{"id":"rec-1","sha256":"D","tenantId":"acme","kind":"note","body":"aGk="}`, `{"sha256":"D","tenantId":"acme","kind":"note","body":"aGk="}`},
		"an id as a number":  {`{"id":7,"sha256":"D","tenantId":"acme","kind":"note","body":7}`, `{"sha256":"D","tenantId":"acme","kind":"note","body":7}`},
		"keys nobody knows":  {`{"id":"x","bloom":true,"sha256":"D","tenantId":"acme","kind":"note"}`, `{"sha256":"D","tenantId":"acme","kind":"note"}`},
		"a record id stays":  {`{"id":"` + id + `","sha256":"D","tenantId":"acme","kind":"note","body":[1]}`, `{"sha256":"D","tenantId":"acme","kind":"note","body":[1]}`},
		"nothing is as null": {`{"id":null,"sha256":"D","tenantId":"acme","kind":"note","body":null,"file":null}`, `{"sha256":"D","tenantId":"acme","kind":"note"}`},
	} {
		t.Run(name, func(t *testing.T) {
			filled := strings.NewReplacer("D", digest)
			reply, err := DecodeReply([]byte(`{"archiveId":"seed-archive","sha256":"` + digest + `","records":[` + filled.Replace(c.record) + `]}`))
			if err != nil || len(reply.Records) != 1 || reply.ArchiveID != "seed-archive" || reply.SHA256.String() != digest {
				t.Fatalf("%+v, %v", reply, err)
			}
			put, err := DecodePut([]byte(filled.Replace(c.put)))
			if err != nil {
				t.Fatal(err)
			}
			r := reply.Records[0]
			if got, want := r.ComputeID(), put.Record.ID(); got != want {
				t.Errorf("record %s of %q, want %s of %q", got, r.Body, want, put.Record.Body)
			}
			if r.ID.IsZero() == strings.Contains(c.record, id) {
				t.Errorf("id %s", r.ID)
			}
		})
	}
	file, err := DecodeReply([]byte(`{"archiveId":"a","sha256":"` + digest + `","records":[{"kind":"file","sha256":"` + digest + `","tenantId":"acme","file":{"id":"f1","name":"x","size":3,"sha256":"` + digest + `","cid":"b"}}]}`))
	if err != nil || len(file.Records) != 1 || file.Records[0].File == nil || file.Records[0].File.Size != 3 || !file.Records[0].File.ID.IsZero() {
		t.Errorf("a file: %+v, %v", file, err)
	}
}

// What Decode takes is read as Decode reads it, and what breaks its rules
// otherwise is refused as it refuses it.
func TestDecodeReplyIsStrict(t *testing.T) {
	for _, text := range []string{
		`{"archiveId":"a","sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","records":[],"page":1,"pages":1}`,
		``, `null`, `[]`, `{"archiveId":1}`, `{"archiveId":"a","archiveId":"b"}`, `{"records":[{"id":"x","body":"not base64"}]}`,
		`{"records":[{"id":"x","seq":"7"}]}`, `{"records":{}}`, `{"records":[{"ID":"x"}]}`, `{"records":[{"id":"x","id":"y"}]}`, "{\"records\":[{\"id\":\"\xff\"}]}", `{} {}`,
	} {
		got, err := DecodeReply([]byte(text))
		want, wantErr := Decode[Reply]([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s: %v, want %v: %s", text, err, wantErr, diff)
		}
	}
}

func FuzzDecodeReply(f *testing.F) {
	addSeeds(f)
	f.Add([]byte(`{"archiveId":"a","records":[{"id":"rec-1","kind":"note","body":{"n": 1},"file":{"id":2,"size":1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		reply, err := DecodeReply(data)
		full, fullErr := Decode[Reply](data)
		switch {
		case fullErr == nil && (err != nil || !reflect.DeepEqual(full, reply)):
			t.Fatalf("%q: %+v, %v; as a Reply %+v", data, reply, err, full)
		case err != nil || fullErr == nil:
			return
		}
		if _, err := parse(data); err != nil {
			t.Fatalf("%q: accepted, but it is no JSON: %v", data, err)
		}
		// What was read travels on as a reply like any other.
		out, err := Encode(reply)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if again, err := Decode[Reply](out); err != nil || len(again.Records) != len(reply.Records) {
			t.Fatalf("%q: %s: %v", data, out, err)
		}
	})
}
