package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

var benchQuery = []byte(`{"correlationId":"01a22ce1-1db7-7323-896b-87d33f086311","sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","tenantId":"acme","kinds":[]}`)

// BenchmarkQueryDigest is the wire's part of a filter miss, whose limit is 2 us
// and no allocation for decoding and probing together.
func BenchmarkQueryDigest(b *testing.B) {
	for name, query := range map[string][]byte{
		"plain": benchQuery, "scanned": bytes.Replace(benchQuery, []byte(`,"`), []byte(`, "`), 1),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(query)))
			for b.Loop() {
				if _, ok := QueryDigest(query); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkDecode compares strict decoding with encoding/json alone; the ratio
// of the two is what strictness costs.
func BenchmarkDecode(b *testing.B) {
	benchDecode[Query](b, "query", benchQuery)
	benchDecode[Put](b, "put", readSample(b, "put"))
	benchDecode[Job](b, "job", readSample(b, "job_completed"))
	big, err := Encode(Put{Record: PutRecord{Kind: "scan", SHA256: helloDigest, TenantID: "acme", Body: make([]byte, MaxBody)}})
	if err != nil {
		b.Fatal(err)
	}
	benchDecode[Put](b, "put-256KiB", big)
}

func readSample(b *testing.B, name string) []byte {
	b.Helper()
	data, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func benchDecode[T any](b *testing.B, name string, data []byte) {
	b.Run(name+"/strict", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := Decode[T](data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			var v T
			if err := json.Unmarshal(data, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCheckObject(b *testing.B) {
	data := readSample(b, "job_completed")
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := CheckObject(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	job, err := Decode[Job](readSample(b, "job_completed"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(&job); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLookupPayloads is what the text of a lookup costs, beside encoding/json
// behind the strict scan, which is the limit.
func BenchmarkLookupPayloads(b *testing.B) {
	data := plainSeeds(b)
	query, reply := data[0], data[len(data)-1]
	for _, text := range data {
		if len(text) > len(reply) {
			reply = text
		}
	}
	r, err := DecodeReply(reply)
	if err != nil {
		b.Fatal(err)
	}
	for name, run := range map[string]func() error{
		"query/decode":       func() error { _, err := DecodeQuery(query); return err },
		"query/decode-limit": func() error { _, err := Decode[Query](query); return err },
		"reply/decode":       func() error { _, err := DecodeReply(reply); return err },
		"reply/decode-limit": func() error { _, err := Decode[Reply](reply); return err },
		"reply/encode":       func() error { _, err := Encode(r); return err },
		"reply/encode-limit": func() error { _, err := encodeAny(r); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRecordID(b *testing.B) {
	r := validFile()
	b.ReportAllocs()
	for b.Loop() {
		r.ID()
	}
}

func BenchmarkParseDigest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseDigest(helloHex); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewJobID()
	}
}
