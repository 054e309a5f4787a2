package pebblex

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// ManifestName is the file of a backup that makes it one.
const ManifestName = "manifest.json"

const (
	manifestMagic  = "verae-backup"
	manifestFormat = 1         // raised when a reader of the old format would misread the new
	maxManifest    = 512 << 20 // bytes of the file: some 3 million files
)

// Manifest is what a backup says of itself. It is one JSON object on one line,
// written last; of every manifest there is one spelling only. Sum is the
// SHA-256, in hex, of the same object with an empty sum.
type Manifest struct {
	Magic   string       `json:"magic"`
	Format  int          `json:"format"`
	Kind    string       `json:"kind"` // archive, aggregator or vault
	ID      string       `json:"id"`   // of what it is a copy: an archive's id, a ledger's origin
	Created string       `json:"createdAt"`
	Log     *BackupLog   `json:"log,omitempty"`
	Dirs    []string     `json:"dirs"`  // sorted; those of files included
	Files   []BackupFile `json:"files"` // sorted by path
	Sum     string       `json:"sum"`
}

// BackupFile is one file of a backup. Its path is relative, with slashes.
type BackupFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// BackupLog is the end of the Merkle log in a backup, as the copy itself gave it
// when it was opened and checked.
type BackupLog struct {
	Origin     string `json:"origin"`
	Generation int    `json:"generation,omitempty"` // an archive's
	Seq        uint64 `json:"seq,omitempty"`        // the archive's last
	Size       int64  `json:"size"`                 // leaves
	Root       string `json:"root"`                 // standard base64
	Checkpoint string `json:"checkpoint"`           // a signed note of this log that the copy contains
}

// encode returns the bytes of the manifest file and sets the sum in m.
func (m *Manifest) encode() ([]byte, error) {
	m.Magic, m.Format, m.Sum = manifestMagic, manifestFormat, ""
	plain, err := marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	m.Sum = hex.EncodeToString(sum[:])
	line, err := marshal(m)
	return append(line, '\n'), err
}

func marshal(m *Manifest) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("pebblex: encode a manifest: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeManifest reads what encode wrote, and nothing else.
func decodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return Manifest{}, err
	}
	if m.Magic != manifestMagic || m.Format != manifestFormat {
		return Manifest{}, fmt.Errorf("magic %q, format %d; this program reads %q, %d", m.Magic, m.Format, manifestMagic, manifestFormat)
	}
	again, err := (&Manifest{
		Kind: m.Kind, ID: m.ID, Created: m.Created, Log: m.Log, Dirs: m.Dirs, Files: m.Files,
	}).encode()
	if err != nil {
		return Manifest{}, err
	}
	if !bytes.Equal(again, data) {
		return Manifest{}, errors.New("it does not match its sum, or is not spelled as it was written")
	}
	return m, m.check()
}

// check refuses paths that would leave the directory of a backup, and lists that
// are not in order.
func (m *Manifest) check() error {
	if _, err := time.Parse(time.RFC3339Nano, m.Created); err != nil || m.Kind == "" {
		return fmt.Errorf("kind %q, createdAt %q", m.Kind, m.Created)
	}
	if m.Dirs == nil || m.Files == nil || !slices.IsSorted(m.Dirs) {
		return errors.New("the directories are not in order")
	}
	for i, dir := range m.Dirs {
		if err := checkPath(dir); err != nil {
			return err
		}
		if i > 0 && m.Dirs[i-1] == dir || path.Dir(dir) != "." && !m.hasDir(path.Dir(dir)) {
			return fmt.Errorf("directory %q is there twice, or the one it is in is not", dir)
		}
	}
	for i, f := range m.Files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size || strings.ToLower(f.SHA256) != f.SHA256 || f.Size < 0:
			return fmt.Errorf("file %q has size %d and SHA-256 %q", f.Path, f.Size, f.SHA256)
		case i > 0 && m.Files[i-1].Path >= f.Path:
			return fmt.Errorf("file %q is not in order", f.Path)
		case path.Dir(f.Path) != "." && !m.hasDir(path.Dir(f.Path)) || m.hasDir(f.Path):
			return fmt.Errorf("file %q has no directory, or is one", f.Path)
		}
	}
	return nil
}

func (m *Manifest) hasDir(dir string) bool {
	_, ok := slices.BinarySearch(m.Dirs, dir)
	return ok
}

// checkPath refuses what is not a plain relative path.
func checkPath(p string) error {
	if p == "" || p == "." || path.Clean(p) != p || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") ||
		strings.ContainsAny(p, "\\:\x00") || p == ManifestName || strings.Split(p, "/")[0] == scratchName {
		return fmt.Errorf("path %q can not be in a backup", p)
	}
	return nil
}
