package daemon

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// fileURLKey is the key in the data directory that signs URLs of files. It is no
// part of a backup: what it signed has long expired when it is missed.
const fileURLKey = "url-key.pem"

const maxURLKey = 4 << 10 // bytes of its file

// startURLs reads the key that signs URLs, and makes the one in the data
// directory if it is not there.
func (a *aggregator) startURLs() (err error) {
	path := a.URLKeyFile
	if path == "" {
		path = a.path(fileURLKey)
		if there, err := exists(path); err != nil || !there {
			if err = errors.Join(err, makeURLKey(path)); err != nil {
				return fmt.Errorf("daemon: %w", err)
			}
		}
	}
	if a.urlKey, err = readURLKey(path); err != nil {
		return err
	}
	a.running.URLKey = base64.StdEncoding.EncodeToString(a.urlKey.Public().(ed25519.PublicKey))
	a.log.Info("archives with URL_KEYS and this key serve what is signed here", "urlKey", a.running.URLKey)
	return nil
}

func makeURLKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return pebblex.WriteFile(nil, path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// readURLKey reads an Ed25519 key in PEM (PKCS #8, RFC 8410).
func readURLKey(path string) (ed25519.PrivateKey, error) {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "URL_KEY", "URL_KEY_FILE: %s: %w; openssl genpkey -algorithm ed25519 makes one", path, fmt.Errorf(format, args...)).InField("URL_KEY_FILE")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, refuse("%w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, refuse("it has mode %04o, so others can read it: chmod go-rwx it, or make another if they may have", info.Mode().Perm())
	}
	text, err := pebblex.ReadFile(nil, path, maxURLKey)
	if err != nil {
		return nil, refuse("%w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, refuse("it is not in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, refuse("%w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, refuse("it is not an Ed25519 key")
	}
	return key, nil
}

// parseURLKeys reads URL_KEYS.
func parseURLKeys(list string) (keys []ed25519.PublicKey, err error) {
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, fault.New(fault.Invalid, "OUT_OF_RANGE", "URL_KEYS: %q is not an Ed25519 public key in standard base64; an aggregator logs its own as urlKey when it starts", text).InField("URL_KEYS")
		}
		keys = append(keys, key)
	}
	return keys, nil
}
