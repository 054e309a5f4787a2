package edge

import (
	"net/http"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// credentials returns the text of the one key that a request presents, in the
// header x-api-key or as a Bearer token (RFC 6750, section 2.1). White space
// around it is taken off in both alike, because keys are pasted. Two that
// disagree are refused: something in front of us would have believed the other.
// A scheme other than Bearer belongs to somebody else and is passed over.
func credentials(h http.Header) (string, error) {
	var found []string
	for _, v := range h.Values("X-Api-Key") {
		found = append(found, pasted(v))
	}
	for _, v := range h.Values("Authorization") {
		scheme, token, _ := strings.Cut(pasted(v), " ")
		if strings.EqualFold(scheme, "Bearer") {
			found = append(found, pasted(token))
		}
	}
	key := ""
	for _, text := range found {
		switch {
		case text == "" || text == key:
		case key != "":
			return "", fault.New(fault.Invalid, codeKeyAmbiguous, "the request presents two different API keys; send one, in x-api-key or as a Bearer token")
		default:
			key = text
		}
	}
	if key == "" {
		return "", errKeyRequired
	}
	return key, nil
}

var errKeyRequired = fault.New(fault.Denied, codeKeyRequired, "this route needs an API key: send it in the header x-api-key, or as Authorization: Bearer KEY")

// pasted takes off the ASCII white space around a pasted text.
func pasted(s string) string { return strings.Trim(s, " \t\r\n\v\f") }
