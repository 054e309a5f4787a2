package layers

// The rules of this module. Paths are relative to its root; "*" stands for one
// path element.
var ours = rules{
	module: "github.com/verae/archive",

	floors: []floor{
		{"0", []string{"internal/fault"}},
		{"0", []string{"internal/boottime", "internal/child", "internal/layers", "internal/need", "internal/pebblex", "internal/pebblex/faultfs", "internal/serve", "internal/tlogx"}},
		{"0'", []string{"wire", "bloom", "blob", "bridge/verilib", "bridge/orazaka"}},
		{"0''", []string{"mirror", "bridge/envelope"}},
		{"1", []string{"chain", "splitter", "archive", "vault", "client"}},
		{"2", []string{"receipts", "bus", "bus/server", "chain/ledger", "chain/remote", "chain/verae", "chain/chaintest", "bridge/rabbit"}},
		{"3", []string{"jobs"}},
		{"4", []string{"edge"}},
		{"4", []string{"daemon"}},
		{"4'", []string{"harness/world"}},
		{"5", []string{"cmd/*", "harness"}},
	},

	owners: []owner{
		{"github.com/nats-io/nats.go", []string{"bus"}, "everything else works on wire types, so that it can be tested without a server"},
		{"github.com/nats-io/nkeys", []string{"bus", "bus/server"}, "keys of NATS connections are the bus's matter"},
		{"github.com/nats-io/nats-server", []string{"bus/server"}, "one place embeds the server and keeps its signal handling off"},
		{"github.com/cockroachdb/pebble", []string{"internal/pebblex", "internal/pebblex/faultfs", "archive", "chain/ledger", "jobs", "blob"}, "a store keeps its Pebble in an unexported field, opened through internal/pebblex"},
		{"github.com/rabbitmq/amqp091-go", []string{"bridge/rabbit"}, "the neighbours' broker has one door"},
		{"github.com/ipfs", []string{"blob"}, "CIDs and UnixFS are read and written in one place"},
		{"github.com/multiformats", []string{"blob"}, "CIDs and UnixFS are read and written in one place"},
		{"github.com/bits-and-blooms", []string{"bloom"}, "its parameters and files need guards that package bloom has"},
		{"github.com/dchest/siphash", []string{"bloom", "archive"}, "every filter of a fleet derives its positions in one place; a check sums up rows under a key of its own"},
		{"github.com/fxamacker/cbor", []string{"archive"}, "record ids have their own encoder; only stored frames use the library"},
		{"golang.org/x/crypto", nil, "add the one subpackage that is needed, with its owner"},
		{"golang.org/x/crypto/chacha20poly1305", []string{"vault"}, "only the vault encrypts"},
		{"golang.org/x/crypto/argon2", []string{"vault"}, "only the vault derives keys from passphrases"},
		{"golang.org/x/crypto/sha3", []string{"bridge/verilib"}, "only Verilib's certificates use it"},
		{"golang.org/x/mod/sumdb", []string{"internal/tlogx", "archive", "bus", "chain/ledger", "receipts"}, "the ledger's proofs and notes"},
		{"github.com/prometheus/client_golang", []string{"internal/serve", "archive", "vault", "receipts", "bus", "chain/ledger", "bridge/rabbit", "jobs", "edge", "daemon"}, "vocabulary and leaves stay free of metrics"},
		{"github.com/alecthomas/kong", []string{"daemon", "cmd/*", "harness"}, "flags and environment are read where a program starts"},
		{"github.com/schollz/progressbar", []string{"cmd/*", "harness"}, "only programs speak to a terminal"},
		{"golang.org/x/term", []string{"internal/serve", "cmd/*", "harness"}, "only programs, and their logs, speak to a terminal"},
		{"golang.org/x/sync", anyone, "it is small and has no state of its own"},
		{"golang.org/x/time", []string{"edge"}, "rates are limited where callers arrive"},
		{"golang.org/x/sys", []string{"internal/*", "blob", "vault"}, "system calls are wrapped once"},

		{"testing", testSupport, "no program links the test framework"},
		{"github.com/google/go-cmp", testSupport, "for tests only"},
		{"pgregory.net/rapid", testSupport, "for tests only"},
		{"github.com/rogpeppe/go-internal", testSupport, "for tests only"},
		{"github.com/transparency-dev", []string{"chain/chaintest"}, "an independent verifier that shares no code with the ledger, for tests only"},

		{"C", nil, "the module builds with CGO_ENABLED=0"},
		{"log", nil, "logs go to the *slog.Logger that was passed in"},
		{"log/slog", anyone, "logs are structured"},
	},

	users: []user{
		{"bus", programs, "jobs, receipts and edge declare the slice they need; the bus is wired to them where a program starts"},
		{"bus/server", programs, "a server is embedded where a program starts"},
		{"chain/ledger", programs, "others know chain.Ledger, of which this is one"},
		{"archive", append([]string{"bus"}, programs...), "an archive is reached by message, never by a call from the aggregator's side"},
		{"vault", append([]string{"jobs", "edge"}, programs...), "keys stay with the aggregator"},
		{"chain/chaintest", nil, "a conformance suite is imported by tests"},
		{"internal/pebblex/faultfs", nil, "a disk that fails is imported by tests"},
		{"internal/need", []string{"harness/world"}, "it is imported by tests"},
		{"internal/layers", nil, "it has nothing to import"},
		{"harness/world", []string{"harness"}, "the library of the harness and of tests"},
	},

	stdOnly: map[string]string{
		"wire": "it is the vocabulary that other programs may copy",
	},

	plainJSON: map[string]string{
		"wire":             "it is the strict decoder",
		"jobs":             "it reads rows that it wrote",
		"internal/pebblex": "it reads manifests that it wrote, in the one spelling they have",
		"client":           "it reads answers of the aggregator it was told to trust",
		"harness/world":    "it reads files and answers of programs it started",
		"cmd/*":            "it reads answers of the aggregator it was told to trust",
	},
}

// testSupport are packages that are not test files themselves, but exist for
// them.
var testSupport = []string{"chain/chaintest", "harness/world", "internal/need"}

// anyone is every package, however deep.
var anyone = []string{"*", "*/*", "*/*/*"}

// programs are the packages that wire a program together.
var programs = []string{"daemon", "harness/world", "cmd/*", "harness"}
