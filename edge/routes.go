package edge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

// A route is a path and what may be done there. Paths are patterns of
// http.ServeMux without a method: the method is looked at here, because a
// refusal has to be a problem like all others.
type route struct {
	path    string
	methods []string
	open    bool  // no key is asked for
	public  bool  // of what everybody may see no key is asked for
	scope   Scope // of the key; "" means any key
	body    bool  // the handler reads a body
	kept    bool  // of something that is stored, and never erased
	kubo    bool  // it speaks as Kubo does
	handle  func(*exchange) error
}

var (
	get  = []string{http.MethodGet, http.MethodHead}
	post = []string{http.MethodPost}
)

// routes is the table of all there is, in the order of the contract.
func (s *Server) routes() []route {
	return []route{
		{path: "/zapier/v1/timestamp", methods: post, scope: ScopeStamp, body: true, handle: s.postTimestamp},
		{path: "/zapier/v1/timestamp/wait", methods: post, scope: ScopeStamp, body: true, handle: s.postTimestampWait},
		{path: "/zapier/v1/timestamp/{jobId}", methods: get, scope: ScopeRead, kept: true, handle: s.getJob},
		{path: "/zapier/v1/timestamp/{jobId}/wait", methods: []string{http.MethodGet}, scope: ScopeRead, handle: s.getJobWait},
		{path: "/zapier/v1/receipts/{sha256}", methods: get, scope: ScopeRead, kept: true, handle: s.getReceipts},
		{path: "/zapier/v1/records/{id}", methods: get, scope: ScopeRead, kept: true, handle: s.getRecord},
		{path: "/zapier/v1/records/{id}/retention", methods: get, scope: ScopeRead, kept: true, handle: s.getRecordRetention},
		{path: "/zapier/v1/files/{id}", methods: get, scope: ScopeFiles, kept: true, handle: s.getFile},
		{path: "/zapier/v1/urls", methods: post, scope: ScopeFiles, body: true, handle: s.postURL},
		{path: "/zapier/v1/retentions", methods: post, scope: ScopeStamp, body: true, handle: s.postRetention},
		{path: "/zapier/v1/retentions/{sha256}", methods: get, scope: ScopeRead, kept: true, handle: s.getRetentions},
		{path: "/zapier/v1/holds", methods: post, scope: ScopeStamp, body: true, handle: s.postHold},
		{path: "/zapier/v1/holds/{sha256}", methods: []string{http.MethodDelete}, scope: ScopeAdmin, handle: s.deleteHold},
		{path: "/zapier/v1/me", methods: get, handle: s.getMe},
		{path: "/zapier/v1/archives", methods: get, scope: ScopeAdmin, handle: s.getArchives},
		{path: "/zapier/v1/archives/{id}/accept", methods: post, scope: ScopeAdmin, body: true, handle: s.postAccept},
		{path: "/zapier/v1/archives/{id}/retire", methods: post, scope: ScopeAdmin, body: true, handle: s.postRetire},
		{path: "/zapier/v1/archives/{id}/lost", methods: get, scope: ScopeAdmin, handle: s.getLost},
		{path: "/ipfs/{cid}", methods: get, public: true, scope: ScopeFiles, kept: true, handle: s.getIPFS},
		{path: "/api/v0/add", methods: kuboMethods, scope: ScopeStamp, body: true, kubo: true, handle: s.postAdd},
		{path: "/api/v0/cat", methods: kuboMethods, scope: ScopeFiles, kubo: true, handle: s.postCat},
		{path: "/api/v0/block/get", methods: kuboMethods, scope: ScopeFiles, kubo: true, handle: s.postBlockGet},
		{path: "/api/v0/version", methods: kuboMethods, kubo: true, handle: s.postVersion},
		{path: "/livez", methods: get, open: true, handle: s.getLive},
		{path: "/readyz", methods: get, open: true, handle: s.getReady},
	}
}

func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range s.routes() {
		s.handle(mux, &rt)
	}
	mux.HandleFunc(kuboRoot, func(w http.ResponseWriter, _ *http.Request) { w.(*exchange).kuboUnknown() })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.(*exchange).refuse(errNoRoute) })
	return mux
}

// handle puts a route into mux, which ServeHTTP alone may call.
func (s *Server) handle(mux *http.ServeMux, rt *route) {
	mux.HandleFunc(rt.path, func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.r, x.route, x.kubo = r, rt.path, rt.kubo
		if err := s.run(x, rt); err != nil {
			x.refuse(err)
		}
	})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := s.begin(w, r)
	defer s.end(x)
	if !cleanPath(r.URL.EscapedPath()) {
		x.refuse(errNoRoute)
		return
	}
	s.mux.ServeHTTP(x, x.r)
}

var errNoRoute = fault.New(fault.NotFound, codeRouteNotFound, "there is nothing at this path")

// cleanPath reports whether a path is the shortest form of itself. http.ServeMux
// would redirect the others, which turns a POST into something else.
func cleanPath(p string) bool {
	return p == "/" || strings.HasPrefix(p, "/") && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// begin sets up an exchange.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{w: w, conn: http.NewResponseController(w), limits: &s.Limits, requestID: requestID(r.Header), start: time.Now()}
	x.r = r.WithContext(serve.With(r.Context(), slog.String("request", x.requestID)))
	x.body = &body{in: r.Body, conn: x.conn, limits: &s.Limits, large: func() error { return s.takeUpload(x) }}
	if r.Body == nil || r.Body == http.NoBody {
		x.body.whole, x.body.err = true, io.EOF
	}
	s.metrics.inFlight.Inc()
	h := x.Header()
	h.Set("X-Request-Id", x.requestID)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	return x
}

// run takes the exchange through the checks that all routes share, and then to
// its handler.
func (s *Server) run(x *exchange, rt *route) error {
	if !slices.Contains(rt.methods, x.r.Method) {
		x.Header().Set("Allow", strings.Join(rt.methods, ", "))
		return wrongMethod(x.r.Method, rt)
	}
	if rt.kubo {
		if answered, err := x.kuboRequest(); answered || err != nil {
			return err
		}
	}
	if !rt.open {
		leave, err := s.admit(x, rt)
		if err != nil {
			return err
		}
		defer leave()
	}
	if !rt.body {
		if err := x.body.ignore(); err != nil {
			return err
		}
	}
	return rt.handle(x)
}

// wrongMethod refuses a method. Who wants to delete learns that nobody can.
func wrongMethod(method string, rt *route) error {
	never := ""
	if method == http.MethodDelete && rt.kept {
		never = "; what is stored is never erased, by anybody, retained or not"
	}
	return fault.New(fault.Invalid, codeMethodNotAllowed, "this path takes %s%s", strings.Join(rt.methods, " and "), never)
}

// noKey counts, as if it were the id of a key, what all who have none have under
// way.
const noKey = "none"

// admit checks the key of a request, what it may do, and what it has under way.
func (s *Server) admit(x *exchange, rt *route) (leave func(), err error) {
	text, err := credentials(x.r.Header)
	if errors.Is(err, errKeyRequired) && rt.public {
		return s.bounds.enter(noKey)
	}
	if err != nil {
		return nil, err
	}
	key, err := s.Keys.Authenticate(x.r.Context(), text)
	if err != nil {
		return nil, err
	}
	x.key = key
	if rt.scope != "" && !key.May(rt.scope) {
		return nil, fault.New(fault.Denied, codeScopeMissing, "this key does not have the scope %q that this route needs", rt.scope)
	}
	x.Header().Set("Vary", "Authorization, X-Api-Key")
	return s.bounds.enter(key.ID)
}

// takeUpload takes an upload slot for the exchange, unless it has one.
func (s *Server) takeUpload(x *exchange) error {
	if x.closeUpload != nil {
		return nil
	}
	done, err := s.bounds.openUpload(x.key.ID)
	if err != nil {
		return err
	}
	s.metrics.uploads.Inc()
	x.closeUpload = func() {
		done()
		s.metrics.uploads.Dec()
	}
	return nil
}

// end closes an exchange: it lets go of what is held, answers for a handler
// that panicked, and writes the access line. An exchange whose answer can not
// be completed breaks the connection off.
func (s *Server) end(x *exchange) {
	caught := recover()
	if caught != nil && caught != any(http.ErrAbortHandler) {
		s.metrics.panics.Inc()
		s.Log.ErrorContext(x.r.Context(), "a handler panicked", "route", x.route, "panic", caught, "stack", string(debug.Stack()))
		caught = answerPanic(x, fmt.Errorf("edge: panic: %v", caught))
	}
	if caught != nil {
		x.note(errAborted)
	}
	x.endUpload()
	s.metrics.inFlight.Dec()
	s.metrics.done(x)
	s.Log.LogAttrs(x.r.Context(), x.level(), "request", x.attrs()...)
	if caught != nil {
		panic(caught)
	}
}

var errAborted = errors.New("edge: the answer was broken off")

// answerPanic answers 500 if nothing was answered yet, and returns what is to
// be panicked with otherwise.
func answerPanic(x *exchange, err error) (abort any) {
	defer func() { abort = recover() }()
	x.refuse(err)
	return nil
}
