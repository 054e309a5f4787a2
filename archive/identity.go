package archive

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// layoutVersion is the version of the keys, frames and rows in a store. It is
// raised when an older program could not read what a newer one writes.
const layoutVersion = 2

// firstGeneration numbers the log of an archive. A log that is begun anew under
// the same id gets the next number.
const firstGeneration = 1

// Names of meta keys.
const (
	metaLayout     = "layout"
	metaArchive    = "archive"
	metaGeneration = "generation"
	metaCreated    = "created"
	metaFormat     = "format"
	metaPublicKey  = "key"
)

// CodeKeyLost is the code of refusals of an archive whose key file is not there.
const CodeKeyLost = "KEY_LOST"

const (
	keyPerm    = 0o600
	pemType    = "PRIVATE KEY"
	maxKeyFile = 4 << 10 // bytes
)

// Init makes a new archive in c.Dir, which must be absent or empty. The archive
// gets an Ed25519 key of its own. All of it is durable when Init returns; a Dir
// left by an Init that was interrupted opens nowhere and can be removed.
func Init(c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	switch names, err := c.FS.List(c.Dir); {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("archive: init %s: %w", c.Dir, err)
	case len(names) > 0:
		return fault.New(fault.Conflict, "NOT_EMPTY",
			"archive: init %s: the directory is not empty (%s is in it); an archive is made in a directory of its own", c.Dir, names[0])
	}
	if err := pebblex.Mkdir(c.FS, c.Dir); err != nil {
		return err
	}
	key, err := writeKey(c)
	if err != nil {
		return err
	}
	db, err := pebblex.Open(c.storeOptions(true, c.OnFatal, nil))
	if err != nil {
		return err
	}
	return errors.Join(begin(db, c, key), db.Close())
}

// begin makes the first generation of the log in a new store, the identity last.
func begin(db *pebble.DB, c Config, key ed25519.PrivateKey) error {
	public, _ := key.Public().(ed25519.PublicKey)
	first := generation{
		Version: generationVersion, ArchiveID: string(c.ID), Generation: firstGeneration, PublicKey: public,
		FirstSeq: 1, CreatedAt: c.Now().UnixNano(),
	}
	id, err := identity{key: key, lineage: lineage{first}}.withSigner()
	if err != nil {
		return err
	}
	if err := pebblex.WriteFile(c.FS, c.skeletonPath(), skeletonHead(), markPerm); err != nil {
		return fmt.Errorf("archive: init %s: %w", c.Dir, err)
	}
	if err := writeLineageFile(c, id.lineage); err != nil {
		return err
	}
	if _, err := writeMarkFile(c, id, treeHead{root: new(tlogx.Edge).Root()}); err != nil {
		return err
	}
	return writeIdentity(db, c, first)
}

func writeKey(c Config) (ed25519.PrivateKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("archive: make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("archive: encode the key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})
	return private, pebblex.WriteFile(c.FS, c.keyPath(), text, keyPerm)
}

// writeIdentity stores what Open compares. It is the last step of Init and one
// atomic commit: a store without it was never finished.
func writeIdentity(db *pebble.DB, c Config, g generation) error {
	row, err := g.encode()
	if err != nil {
		return err
	}
	batch := db.NewBatch()
	values := map[string][]byte{
		string(metaKey(metaLayout)):         strconv.AppendInt(nil, layoutVersion, 10),
		string(metaKey(metaArchive)):        []byte(g.ArchiveID),
		string(metaKey(metaGeneration)):     strconv.AppendInt(nil, int64(g.Generation), 10),
		string(metaKey(metaCreated)):        []byte(wire.At(time.Unix(0, g.CreatedAt))),
		string(metaKey(metaFormat)):         strconv.AppendUint(nil, uint64(db.FormatMajorVersion()), 10),
		string(metaKey(metaPublicKey)):      g.PublicKey,
		string(generationKey(g.Generation)): row,
	}
	for key, v := range values {
		if err := batch.Set([]byte(key), v, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := pebblex.AppendOnly(db, batch); err != nil {
		return errors.Join(err, batch.Close())
	}
	if err := db.Apply(batch, pebble.Sync); err != nil {
		return errors.Join(fmt.Errorf("archive: write the identity: %w", err), batch.Close())
	}
	return batch.Close()
}

// identity is what a store says of itself.
type identity struct {
	generation int
	created    time.Time
	key        ed25519.PrivateKey
	lineage    lineage
	signer     note.Signer // of checkpoints of the current generation
}

// withSigner completes an identity that has its key and lineage.
func (id identity) withSigner() (identity, error) {
	var err error
	if id.signer, err = tlogx.NewSigner(id.lineage.current().origin(), id.key); err != nil {
		return identity{}, fmt.Errorf("archive: %w", err)
	}
	return id, nil
}

// readIdentity reads the identity and compares it with the configuration and
// with the key file.
func readIdentity(db *pebble.DB, c Config) (identity, error) {
	meta := make(map[string][]byte)
	for _, name := range []string{metaLayout, metaArchive, metaGeneration, metaCreated, metaPublicKey} {
		v, closer, err := db.Get(metaKey(name))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return identity{}, fault.New(fault.Corrupt, "NO_IDENTITY",
				"archive: open %s: the store has no %s; if its init was interrupted, remove the directory and init again", c.Dir, name)
		case err != nil:
			return identity{}, fmt.Errorf("archive: open %s: read %s: %w", c.Dir, name, err)
		}
		meta[name] = bytes.Clone(v)
		if err := closer.Close(); err != nil {
			return identity{}, fmt.Errorf("archive: open %s: read %s: %w", c.Dir, name, err)
		}
	}
	if got := string(meta[metaLayout]); got != strconv.Itoa(layoutVersion) {
		return identity{}, fault.New(fault.Conflict, "LAYOUT",
			"archive: open %s: the store has layout %q, this program reads %d; open it with the version that wrote it", c.Dir, got, layoutVersion)
	}
	if got := string(meta[metaArchive]); got != string(c.ID) {
		return identity{}, fault.New(fault.Conflict, "ARCHIVE_ID",
			"archive: open %s: it holds the archive %q, not %q; give the right directory or id", c.Dir, got, c.ID)
	}
	generation, err := strconv.Atoi(string(meta[metaGeneration]))
	if err != nil {
		return identity{}, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: open %s: generation: %w", c.Dir, err)
	}
	created, ok := wire.Time(meta[metaCreated]).Instant()
	if !ok {
		return identity{}, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: open %s: created at %q", c.Dir, meta[metaCreated])
	}
	key, err := readKey(c, meta[metaPublicKey])
	if err != nil {
		return identity{}, err
	}
	log, err := readLineage(db, c, generation, meta[metaPublicKey])
	if err != nil {
		return identity{}, err
	}
	return identity{generation: generation, created: created, key: key, lineage: log}.withSigner()
}

// readLineage reads the generation rows, of which the last must agree with the
// identity.
func readLineage(db *pebble.DB, c Config, number int, public ed25519.PublicKey) (log lineage, err error) {
	lower, upper := prefixBounds(prefixGeneration)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("archive: open %s: %w", c.Dir, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		n, ok := generationOf(it.Key())
		if !ok {
			return nil, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: open %s: generation key %x; %s", c.Dir, it.Key(), howToRepair)
		}
		g, err := decodeGeneration(n, it.Value())
		if err != nil {
			return nil, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: open %s: %w; %s", c.Dir, err, howToRepair)
		}
		log = append(log, g)
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("archive: open %s: generations: %w", c.Dir, err)
	}
	if err := log.check(c.ID); err != nil {
		return nil, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: open %s: %w; %s", c.Dir, err, howToRepair)
	}
	if g := log.current(); g.Generation != number || !public.Equal(ed25519.PublicKey(g.PublicKey)) {
		return nil, fault.New(fault.Corrupt, "NO_IDENTITY",
			"archive: open %s: the identity is of generation %d, the newest row of %d, or of another key; %s", c.Dir, number, g.Generation, howToRepair)
	}
	return log, nil
}

// readKey reads the key file and holds it against the public key of the store.
func readKey(c Config, public ed25519.PublicKey) (ed25519.PrivateKey, error) {
	private, err := readKeyFile(c)
	if err != nil {
		return nil, err
	}
	if !public.Equal(private.Public()) {
		return nil, fault.New(fault.Conflict, "KEY",
			"archive: open %s: %s is not the key that this archive was made with", c.Dir, c.keyPath())
	}
	return private, nil
}

func readKeyFile(c Config) (ed25519.PrivateKey, error) {
	text, err := pebblex.ReadFile(c.FS, c.keyPath(), maxKeyFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Corrupt, CodeKeyLost, "archive: open %s: the private key %s is not there: put it back; if it is lost for good, `archived backup` copies all the rest, and `archived restore` makes a new generation of that, with a new key", c.Dir, c.keyPath())
	}
	if err != nil {
		return nil, fmt.Errorf("archive: open %s: %w", c.Dir, err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, fault.New(fault.Corrupt, "KEY", "archive: open %s: %s is not a private key in PEM", c.Dir, c.keyPath())
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fault.New(fault.Corrupt, "KEY", "archive: open %s: %s: %w", c.Dir, c.keyPath(), err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fault.New(fault.Corrupt, "KEY", "archive: open %s: %s is not an Ed25519 key", c.Dir, c.keyPath())
	}
	return private, nil
}
