package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
)

// How a connection to NATS behaves. A daemon never gives up reconnecting.
const (
	// MinPayload is the smallest max_payload, in bytes, of a server that can
	// carry the system: one record with a body of wire.MaxBody as base64, its
	// file and its shares, must fit into one message.
	MinPayload = 512 << 10

	connectTimeout = 2 * time.Second        // of one attempt
	reconnectWait  = 250 * time.Millisecond // between attempts, plus as much jitter
	pingInterval   = 10 * time.Second       // a dead peer is noticed after maxPingsOut of them
	maxPingsOut    = 2
	flushTimeout   = 5 * time.Second // of a round trip to the server
	closeTimeout   = 5 * time.Second // until nats.go has ended its goroutines
	pendingMsgs    = 1 << 17         // messages a subscription may hold in memory
	pendingBytes   = 256 << 20       // and bytes; beyond them nats.go drops the newest
)

// The parts of a Conn, which are in the names of its connections.
const (
	partControl = "control"
	partBulk    = "bulk"
)

// InProcess gives out connections to a server in the same process, as
// server.Server does.
type InProcess interface {
	InProcessConn() (net.Conn, error)
}

// Config configures a connection. URL or InProcess is required.
type Config struct {
	// URL of the server, or several separated by commas.
	URL string
	// Name of this role, such as "aggregator" or the id of an archive. Servers
	// show it, and answers to requests travel below _INBOX_<Name>, so that
	// permissions can keep roles from reading each other's answers.
	Name string
	// InProcess, when set, carries the control connection through a pipe in
	// memory: a third of TCP's latency. Without a URL bulk takes it too.
	InProcess InProcess
	// NKeyFile is the path of the seed this role authenticates with; empty: none.
	NKeyFile string
	// Log gets changes of the connection's state; nil discards.
	Log *slog.Logger
}

// Conn is a pair of NATS connections: control for what must be quick, bulk for
// what is large. Its methods may be called from many goroutines.
type Conn struct {
	name    string
	log     *slog.Logger
	ctl     *nats.Conn
	bulk    *nats.Conn
	ended   map[*nats.Conn]chan struct{} // closed when that connection ended for good
	lost    chan struct{}                // closed when the first of them did
	metrics connMetrics

	mu   sync.Mutex // guards all below
	subs map[*nats.Subscription]struct{}
	ups  map[*func()]struct{} // of onUp
}

type connMetrics struct {
	disconnects, reconnects prometheus.Counter
	errors                  *prometheus.CounterVec
	dropped                 *dropCounter
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

// Connect connects to NATS. A server that can not be reached yet is no error:
// the connection keeps trying, subscriptions wait for it, and publishing fails
// with code BUS_DISCONNECTED meanwhile. A configuration that can not work, or a
// server whose max_payload is below MinPayload, is an error of kind Invalid.
func Connect(cfg Config) (*Conn, error) {
	if cfg.URL == "" && cfg.InProcess == nil {
		return nil, fault.New(fault.Invalid, "", "bus: no server to connect to; set NATS_URL, or embed one").InField("NATS_URL")
	}
	if !nameRule.MatchString(cfg.Name) {
		return nil, fault.New(fault.Invalid, "", "bus: name %q of the connection must match %s", cfg.Name, nameRule).InField("name")
	}
	c := &Conn{
		name:  cfg.Name,
		log:   orDiscard(cfg.Log).With("conn", cfg.Name),
		ended: map[*nats.Conn]chan struct{}{},
		lost:  make(chan struct{}),
		subs:  map[*nats.Subscription]struct{}{},
		ups:   map[*func()]struct{}{},
	}
	lost := sync.OnceFunc(func() { close(c.lost) })
	c.metrics = newConnMetrics(c)
	var err error
	if c.ctl, err = c.dial(cfg, partControl, cfg.InProcess, lost); err != nil {
		return nil, err
	}
	bulkBy := cfg.InProcess
	if cfg.URL != "" {
		bulkBy = nil
	}
	if c.bulk, err = c.dial(cfg, partBulk, bulkBy, lost); err != nil {
		c.ctl.Close()
		return nil, err
	}
	return c, nil
}

// RoleOf returns whose connection one is, Config.Name, by the name that servers
// show of it. It is empty for connections that are not made here.
func RoleOf(connection string) string {
	role, part, _ := strings.Cut(connection, "/")
	if part != partControl && part != partBulk {
		return ""
	}
	return role
}

func (c *Conn) dial(cfg Config, part string, pipe InProcess, lost func()) (*nats.Conn, error) {
	ended := make(chan struct{})
	opts := []nats.Option{
		nats.Name(cfg.Name + "/" + part),
		nats.CustomInboxPrefix("_INBOX_" + cfg.Name),
		nats.Timeout(connectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ReconnectBufSize(-1), // publishing while disconnected is an error
		nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.ErrorHandler(c.onError),
		nats.ConnectHandler(func(nc *nats.Conn) { c.onConnect(nc, part, "connected") }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.metrics.reconnects.Inc()
			c.onConnect(nc, part, "reconnected")
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() {
				c.metrics.disconnects.Inc()
				c.log.Warn("disconnected from NATS", "part", part, "err", err)
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) {
			close(ended)
			lost()
		}),
	}
	if pipe != nil {
		opts = append(opts, nats.InProcessServer(pipe))
	}
	if cfg.NKeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.NKeyFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "", "bus: seed file %s: %w", cfg.NKeyFile, err).InField("NATS_NKEY_FILE")
		}
		opts = append(opts, nkey)
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect: %w", err)
	}
	c.ended[nc] = ended
	if err := checkPayload(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// checkPayload refuses a connected server that could not carry one record.
func checkPayload(nc *nats.Conn) error {
	if limit := nc.MaxPayload(); nc.IsConnected() && limit < MinPayload {
		return fault.New(fault.Invalid, "", "bus: max_payload of the NATS server is %d bytes; set it to at least %d", limit, MinPayload)
	}
	return nil
}

// Connected reports whether both connections are up now.
func (c *Conn) Connected() bool { return c.ctl.IsConnected() && c.bulk.IsConnected() }

// Lost returns a channel that is closed when a connection ended for good: after
// Close, or because the server refused it in a way that is never retried. A
// daemon ends then.
func (c *Conn) Lost() <-chan struct{} { return c.lost }

// Flush returns when the server has seen all that was sent before, on both
// connections: subscriptions made before it are in force. It waits at most
// until ctx is done, or 5 s.
func (c *Conn) Flush(ctx context.Context) error {
	return errors.Join(flush(ctx, c.ctl), flush(ctx, c.bulk))
}

func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return sendFault(nc.FlushWithContext(ctx), "bus: flush")
}

// settle makes subscriptions take effect before it returns. Without a
// connection there is nothing to wait for: they are sent when one is made.
func settle(ncs ...*nats.Conn) error {
	for _, nc := range ncs {
		if !nc.IsConnected() {
			continue
		}
		if err := flush(context.Background(), nc); err != nil && nc.IsConnected() {
			return err
		}
	}
	return nil
}

// Metrics returns the collectors of the connection, labelled with its name.
func (c *Conn) Metrics() []prometheus.Collector {
	m := &c.metrics
	return []prometheus.Collector{m.disconnects, m.reconnects, m.errors, m.dropped}
}
