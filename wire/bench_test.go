package wire

import (
	"encoding/json"
	"testing"
)

var benchQuery = []byte(`{"correlationId":"01a22ce1-1db7-7323-896b-87d33f086311","sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","tenantId":"acme","kinds":[]}`)

func BenchmarkQuery(b *testing.B) {
	b.Run("QueryDigest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := QueryDigest(benchQuery); !ok {
				b.Fatal("refused")
			}
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode[Query](benchQuery); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var q Query
			if err := json.Unmarshal(benchQuery, &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}
