package chain_test

import (
	"crypto/sha256"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/chain"
)

var sampleLeaf = chain.Leaf{
	Digest: sha256.Sum256([]byte("hello\n")),
	Time:   time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC),
}

func TestLeafIsFrozen(t *testing.T) {
	want, err := os.ReadFile("testdata/leaf.v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(sampleLeaf.Bytes())); diff != "" {
		t.Errorf("the leaf is frozen (-want +got):\n%s", diff)
	}
	got, err := chain.ParseLeaf(want)
	if err != nil || got != sampleLeaf {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLeafIsReadAsWritten(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(0, 1<<63-1), time.Date(2026, 7, 1, 12, 0, 0, 5, time.FixedZone("", 7200))} {
		l := chain.Leaf{Digest: sampleLeaf.Digest, Time: at}
		got, err := chain.ParseLeaf(l.Bytes())
		if err != nil || !got.Time.Equal(at) || got.Time.Location() != time.UTC || got.Digest != l.Digest {
			t.Errorf("%v became %+v, %v", at, got, err)
		}
		if len(l.Bytes()) > chain.MaxLeafSize {
			t.Errorf("%d bytes", len(l.Bytes()))
		}
	}
}

func TestLeafHasOneSpelling(t *testing.T) {
	good := string(sampleLeaf.Bytes())
	hex := sampleLeaf.Digest.String()
	for name, text := range map[string]string{
		"empty":          "",
		"header":         "verae-seal/v1\n",
		"other version":  strings.Replace(good, "v1", "v2", 1),
		"upper case":     strings.Replace(good, hex, strings.ToUpper(hex), 1),
		"short digest":   strings.Replace(good, hex, hex[:62], 1),
		"not hex":        strings.Replace(good, hex, "zz"+hex[2:], 1),
		"no time":        "verae-seal/v1\n" + hex + "\n\n",
		"leading zero":   strings.Replace(good, "\n17", "\n017", 1),
		"plus":           strings.Replace(good, "\n17", "\n+17", 1),
		"negative":       strings.Replace(good, "\n17", "\n-17", 1),
		"too late":       "verae-seal/v1\n" + hex + "\n9223372036854775808\n",
		"no newline":     strings.TrimSuffix(good, "\n"),
		"one more line":  good + "tenant\n",
		"carriage":       strings.ReplaceAll(good, "\n", "\r\n"),
		"trailing space": strings.TrimSuffix(good, "\n") + " \n",
	} {
		if l, err := chain.ParseLeaf([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, l)
		}
	}
}

func FuzzParseLeaf(f *testing.F) {
	f.Add(sampleLeaf.Bytes())
	f.Add([]byte("verae-seal/v1\n\n0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := chain.ParseLeaf(data)
		if err == nil && string(l.Bytes()) != string(data) {
			t.Errorf("two spellings: %q and %q", data, l.Bytes())
		}
	})
}
