package edge

import (
	"net/http"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// The routes below kuboRoot speak as Kubo's RPC does, so that programs which
// upload to Kubo need another address and a key, and nothing else. What they
// refuse they refuse in Kubo's words: see kuboError.
const kuboRoot = "/api/v0/"

// kuboMethods is what Kubo allows on every command, and what only a browser asks
// for: OPTIONS is answered, and allows nothing to other origins.
var kuboMethods = []string{http.MethodOptions, http.MethodPost}

// kuboError is how Kubo tells of an error. Its clients show Message.
type kuboError struct {
	Message string
	Code    int    // what kind it is, in Kubo's numbers
	Type    string // always "error"
	Reason  string // the code that a problem would have: for programs
}

// kuboErrorOf tells of a problem as Kubo would.
func kuboErrorOf(p Problem) kuboError {
	e := kuboError{Message: p.Detail, Type: "error", Reason: p.Code}
	switch {
	case p.Status == http.StatusTooManyRequests:
		e.Code = 3
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden:
		e.Code = 4
	case p.Status < http.StatusInternalServerError:
		e.Code = 1
	}
	return e
}

// kuboRequest takes a request of a command through Kubo's own checks. answered is
// true if there is nothing else to do.
func (x *exchange) kuboRequest() (answered bool, err error) {
	if x.r.Method != http.MethodOptions {
		return false, sameSite(x.r.Header)
	}
	x.Header().Set("Allow", strings.Join(kuboMethods, ", "))
	x.WriteHeader(http.StatusNoContent)
	return true, nil
}

// sameSite refuses what a page in a browser sends from anywhere. A form can post
// a file to any address without the user's knowledge; it can not hide that it is
// a browser.
func sameSite(h http.Header) error {
	if h.Get("Origin") != "" || h.Get("Referer") != "" || strings.HasPrefix(h.Get("User-Agent"), "Mozilla") {
		return fault.New(fault.Denied, codeCrossSite, "pages in browsers may not call this: send the request from a server or a program, without Origin and Referer")
	}
	return nil
}

// kuboUnknown answers for the commands of Kubo that there are not.
func (x *exchange) kuboUnknown() {
	x.note(errNoRoute)
	x.send(http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n"))
}

// kuboVersion is the answer of the command version. It names what the command
// line of Kubo shows, and not what somebody could look for holes in.
type kuboVersion struct{ Version, Commit, Repo, System, Golang string }

// postVersion answers which version of the interface this is.
func (s *Server) postVersion(x *exchange) error {
	return x.answer(http.StatusOK, kuboVersion{Version: kuboSpoken})
}

// kuboSpoken is the version of Kubo whose interface was measured.
const kuboSpoken = "0.43.0"
