package blob

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
)

// MaxURLLife is the longest that a signed URL holds. It is meant for one fetch
// that begins now, by somebody who has no key.
const MaxURLLife = 300 * time.Second

// maxClockSkew is how far the clock of whoever signed may be ahead of ours.
const maxClockSkew = 30 * time.Second

// Parameters of a signed URL. Others, such as filename and format, are not
// signed: they change how the bytes are sent, never which.
const (
	paramTenant    = "tenant"
	paramExpires   = "expires"
	paramSignature = "signature"
)

// A Grant lets whoever holds a URL read one block, or the file of which it is
// the root, in the name of a tenant. It opens nothing that the tenant may not
// read when the URL is used.
type Grant struct {
	Tenant  string
	Digest  [32]byte  // of the multihash: the URL holds for every spelling of the CID
	Method  string    // GET, which admits HEAD too, or HEAD
	Expires time.Time // whole seconds count
}

// text is what is signed. No part of it can contain a line end.
func (g Grant) text() []byte {
	return fmt.Appendf(nil, "verae-url/1\n%s\n%s\n%x\n%d\n", g.Method, g.Tenant, g.Digest, g.Expires.Unix())
}

// SignURL returns the query of a URL that g admits, signed with Ed25519 (RFC
// 8032). Equal grants give equal queries.
func SignURL(key ed25519.PrivateKey, g Grant) url.Values {
	return url.Values{
		paramTenant:    {g.Tenant},
		paramExpires:   {strconv.FormatInt(g.Expires.Unix(), 10)},
		paramSignature: {base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, g.text()))},
	}
}

// SignedURL reports whether a query is that of a signed URL, valid or not.
func SignedURL(query url.Values) bool { return query.Has(paramSignature) }

// CheckURL returns the tenant in whose name a signed URL may be read: it must be
// signed, for this digest and method, by the holder of one of keys, and not have
// expired at now. Every error is of kind Denied; URL_EXPIRED is told only of a
// URL whose signature is right.
func CheckURL(keys []ed25519.PublicKey, method string, digest [32]byte, query url.Values, now time.Time) (tenant string, err error) {
	var parts [3]string
	for i, name := range []string{paramTenant, paramExpires, paramSignature} {
		if len(query[name]) != 1 || strings.ContainsAny(query[name][0], "\n\r") {
			return "", errURL
		}
		parts[i] = query[name][0]
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != parts[1] {
		return "", errURL
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return "", errURL
	}
	g := Grant{Tenant: parts[0], Digest: digest, Expires: time.Unix(seconds, 0)}
	if !g.signedFor(keys, method, signature) {
		return "", errURL
	}
	if left := g.Expires.Sub(now); left <= 0 || left > MaxURLLife+maxClockSkew {
		return "", fault.New(fault.Denied, CodeURLExpired, "the signed URL holds until %s and for %s at most: ask for a new one, and compare the clocks if this one is new",
			g.Expires.UTC().Format(time.RFC3339), MaxURLLife)
	}
	return g.Tenant, nil
}

// signedFor reports whether a signature admits a method. One for GET admits HEAD.
func (g Grant) signedFor(keys []ed25519.PublicKey, method string, signature []byte) bool {
	for _, g.Method = range []string{method, "GET"} {
		if g.Method == "GET" && method != "GET" && method != "HEAD" {
			continue
		}
		if slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return ed25519.Verify(k, g.text(), signature) }) {
			return true
		}
	}
	return false
}

var errURL = fault.New(fault.Denied, CodeURLSignature, "the URL is not signed for this file and method by anybody whom this program trusts; it may have been cut or changed on the way: ask for a new one")
