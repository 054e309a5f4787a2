package pebblex

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func sampleManifest() Manifest {
	return Manifest{
		Kind: "archive", ID: "archive-a", Created: "2026-11-30T18:00:00.000000001Z",
		Log: &BackupLog{
			Origin: "archive-a/g1", Generation: 1, Seq: 3, Size: 3, Root: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
			Checkpoint: "archive-a/g1\n3\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— archive-a/g1 c2ln\n",
		},
		Dirs: []string{"files", "files/files", "records", "records/records"},
		Files: []BackupFile{
			{Path: "records/records/000004.log", Size: 0, SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
			{Path: "records/witness", Size: 4096, SHA256: strings.Repeat("0f", 32)},
		},
	}
}

const goldenManifest = "testdata/manifest.v1.json"

func TestGoldenManifest(t *testing.T) {
	m := sampleManifest()
	got, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(goldenManifest)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s:\n%s\n%v; encoded:\n%s", goldenManifest, want, err, got)
	}
	back, err := decodeManifest(want)
	if err != nil || back.Log.Seq != 3 || len(back.Files) != 2 || back.Sum != m.Sum {
		t.Errorf("%+v, %v", back, err)
	}
}

// Every byte of a manifest counts.
func TestChangedManifestIsRefused(t *testing.T) {
	m := sampleManifest()
	good, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if _, err := decodeManifest(bad); err == nil {
				t.Errorf("bit %d of byte %d (%q) was changed", bit, i, good[i])
			}
		}
		if _, err := decodeManifest(good[:i]); err == nil {
			t.Errorf("cut after %d bytes", i)
		}
	}
}

// A manifest with a right sum is still not believed to name any path.
func TestManifestNamesOnlyWhatIsInTheBackup(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"up":                func(m *Manifest) { m.Files[0].Path = "../x" },
		"absolute":          func(m *Manifest) { m.Files[0].Path = "/etc/x" },
		"not clean":         func(m *Manifest) { m.Files[0].Path = "records/../x" },
		"the manifest":      func(m *Manifest) { m.Files = []BackupFile{m.Files[0]}; m.Files[0].Path = ManifestName },
		"no directory":      func(m *Manifest) { m.Files[0].Path = "elsewhere/x" },
		"a directory":       func(m *Manifest) { m.Files[1].Path = "records/records" },
		"twice":             func(m *Manifest) { m.Files[1] = m.Files[0] },
		"out of order":      func(m *Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] },
		"backslash":         func(m *Manifest) { m.Files[1].Path = "records\\witness" },
		"drive":             func(m *Manifest) { m.Files[1].Path = "records/c:x" },
		"negative":          func(m *Manifest) { m.Files[1].Size = -1 },
		"no hash":           func(m *Manifest) { m.Files[1].SHA256 = "00" },
		"upper case":        func(m *Manifest) { m.Files[1].SHA256 = strings.Repeat("0F", 32) },
		"scratch":           func(m *Manifest) { m.Dirs = []string{scratchName}; m.Files = []BackupFile{} },
		"directory up":      func(m *Manifest) { m.Dirs = append([]string{"../a"}, m.Dirs...) },
		"directory twice":   func(m *Manifest) { m.Dirs = append([]string{"files"}, m.Dirs...) },
		"directory lost":    func(m *Manifest) { m.Dirs = []string{"records", "records/x/y"}; m.Files = []BackupFile{} },
		"no kind":           func(m *Manifest) { m.Kind = "" },
		"no time":           func(m *Manifest) { m.Created = "yesterday" },
		"directories apart": func(m *Manifest) { m.Dirs[0], m.Dirs[1] = m.Dirs[1], m.Dirs[0] },
	} {
		m := sampleManifest()
		change(&m)
		data, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(data); err == nil {
			t.Errorf("%s: it was believed", name)
		}
	}
}

func FuzzManifest(f *testing.F) {
	m := sampleManifest()
	good, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q was read and is written as %q, %v", data, again, err)
		}
	})
}
