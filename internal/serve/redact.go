package serve

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// Redacted stands in the log where a secret would have been.
const Redacted = "[redacted]"

// secretNames are attribute names, in lower case and without "-", "_" and ".",
// whose values are never logged.
var secretNames = map[string]bool{
	"apikey": true, "xapikey": true, "authorization": true, "proxyauthorization": true,
	"cookie": true, "setcookie": true, "token": true, "accesstoken": true, "secret": true,
	"password": true, "passphrase": true, "privatekey": true, "seed": true, "kek": true,
	"signature": true, "privatemetadata": true, "plaintext": true, "body": true, "payload": true,
}

var squeeze = strings.NewReplacer("-", "", "_", "", ".", "")

func isSecretName(name string) bool {
	return secretNames[strings.ToLower(squeeze.Replace(name))]
}

// Redact is the ReplaceAttr of every handler here. It blacks out the values of
// attributes that are named like a secret, also inside groups named so, and
// those headers of an http.Header. It is the second net, not the first: code
// does not log secrets, and types that hold one implement slog.LogValuer.
func Redact(groups []string, a slog.Attr) slog.Attr {
	if isSecretName(a.Key) {
		return slog.String(a.Key, Redacted)
	}
	if slices.ContainsFunc(groups, isSecretName) {
		return slog.String(a.Key, Redacted)
	}
	if h, ok := a.Value.Any().(http.Header); ok {
		return slog.Any(a.Key, redactHeader(h))
	}
	return a
}

func redactHeader(h http.Header) http.Header {
	out := h.Clone()
	for name := range out {
		if isSecretName(name) {
			out[name] = []string{Redacted}
		}
	}
	return out
}

// Secret is a text that prints as [Redacted] wherever it is formatted or
// logged. Convert it to string to use it.
type Secret string

// String returns [Redacted].
func (Secret) String() string { return Redacted }

// GoString returns [Redacted], so that %#v does not leak either.
func (Secret) GoString() string { return Redacted }

// LogValue returns [Redacted].
func (Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalText returns [Redacted], so that encoding/json does not leak either.
func (Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
