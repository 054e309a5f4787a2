package blob

import (
	"crypto/ed25519"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
)

func signer(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+seed)), ed25519.SeedSize)))
}

func publicOf(keys ...ed25519.PrivateKey) (list []ed25519.PublicKey) {
	for _, k := range keys {
		list = append(list, k.Public().(ed25519.PublicKey))
	}
	return list
}

// A signed URL admits what was signed and nothing else.
func TestSignedURLAdmitsOneFileOneTenantOneMethod(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ours, theirs := signer(0), signer(1)
	grant := Grant{Tenant: "acme", Digest: [32]byte{1}, Method: http.MethodGet, Expires: now.Add(MaxURLLife)}
	with := func(change func(*Grant)) url.Values {
		g := grant
		change(&g)
		return SignURL(ours, g)
	}
	edited := func(name, value string) url.Values {
		q := maps.Clone(SignURL(ours, grant))
		q[name] = []string{value}
		return q
	}
	good := SignURL(ours, grant)
	for name, tc := range map[string]struct {
		query  url.Values
		method string
		digest byte
		keys   []ed25519.PublicKey
		at     time.Time
		code   string
	}{
		"as signed":                {query: good},
		"HEAD under GET":           {query: good, method: http.MethodHead},
		"of the second key":        {query: good, keys: publicOf(theirs, ours)},
		"in its last second":       {query: good, at: now.Add(MaxURLLife - time.Second)},
		"of a clock ahead of ours": {query: good, at: now.Add(-maxClockSkew)},
		"expired":                  {query: good, at: now.Add(MaxURLLife), code: CodeURLExpired},
		"too long":                 {query: with(func(g *Grant) { g.Expires = now.Add(MaxURLLife + maxClockSkew + time.Second) }), code: CodeURLExpired},
		"POST":                     {query: good, method: http.MethodPost, code: CodeURLSignature},
		"GET under HEAD":           {query: with(func(g *Grant) { g.Method = http.MethodHead }), code: CodeURLSignature},
		"HEAD under HEAD":          {query: with(func(g *Grant) { g.Method = http.MethodHead }), method: http.MethodHead},
		"another file":             {query: good, digest: 2, code: CodeURLSignature},
		"another tenant":           {query: edited(paramTenant, "emca"), code: CodeURLSignature},
		"another time":             {query: edited(paramExpires, "1800000299"), code: CodeURLSignature},
		"a time spelt differently": {query: edited(paramExpires, "+1800000300"), code: CodeURLSignature},
		"another's key":            {query: good, keys: publicOf(theirs), code: CodeURLSignature},
		"nobody is trusted":        {query: good, keys: []ed25519.PublicKey{}, code: CodeURLSignature},
		"a signature cut short":    {query: edited(paramSignature, good.Get(paramSignature)[:80]), code: CodeURLSignature},
		"a signature spelt anew":   {query: edited(paramSignature, good.Get(paramSignature)+"="), code: CodeURLSignature},
		"no signature":             {query: edited(paramSignature, ""), code: CodeURLSignature},
		"two tenants":              {query: url.Values{paramTenant: {"acme", "emca"}, paramExpires: good[paramExpires], paramSignature: good[paramSignature]}, code: CodeURLSignature},
		"a tenant with a line end": {query: with(func(g *Grant) { g.Tenant = "acme\nGET" }), code: CodeURLSignature},
		"no tenant":                {query: url.Values{paramExpires: good[paramExpires], paramSignature: good[paramSignature]}, code: CodeURLSignature},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			if tc.digest == 0 {
				tc.digest = 1
			}
			if tc.keys == nil {
				tc.keys = publicOf(ours)
			}
			if tc.at.IsZero() {
				tc.at = now
			}
			tenant, err := CheckURL(tc.keys, tc.method, [32]byte{tc.digest}, tc.query, tc.at)
			if fault.CodeOf(err) != tc.code || (err == nil) != (tenant == "acme") {
				t.Errorf("%q, %v; want code %q", tenant, err, tc.code)
			}
		})
	}
}

// The form of a signed URL is fixed: archives of one version read what an
// aggregator of another signs.
func TestSignedURLGolden(t *testing.T) {
	q := SignURL(signer(0), Grant{Tenant: "acme", Digest: [32]byte{0xba, 0x78}, Method: http.MethodGet, Expires: time.Unix(1_800_000_000, 0)})
	const want = "expires=1800000000&signature=a1PoSqxrOhTm6YRWC870mFykYcb5DjNNlEFiXXEsQK4FFy72piIcmnOiFJEYss5oCmex3JXw-JfJsD89_3-FCQ&tenant=acme"
	if got := q.Encode(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
