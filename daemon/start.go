package daemon

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// aggregator is an aggregator while it starts and runs: its parts in the order
// of the data flow.
type aggregator struct {
	Aggregator
	log   *slog.Logger
	level *slog.LevelVar
	stack *serve.Stack
	tasks []serve.Task
	asked context.Context // ends when the program is asked to stop

	nats      *server.Server // nil when NATS_URL names another
	conn      *bus.Conn
	roster    *bus.Roster
	mirrors   *bus.Mirrors // nil: there are none
	client    *bus.Archives
	ledger    *ledger.Ledger
	vault     *vault.Vault
	cosigning *ledger.Cosigning
	census    *census // nil unless UNLISTED_ARCHIVES asks for it
	gatherer  *receipts.Gatherer
	engine    *jobs.Engine
	outbox    *bus.OutboxService
	disks     disks
	edge      *edge.Server
	keys      *edge.Keyring
	urlKey    ed25519.PrivateKey
	health    serve.Health
	running   Running
}

// start starts every part, the stores first: their locks keep a second process on
// one directory from touching anything. What has started is on the stack when it
// fails.
func (a *aggregator) start() error {
	for _, step := range []func() error{
		a.startStores, a.startBus, a.startRoster, a.startMirrors, a.startCosigning, a.startKeys, a.startEngine, a.startDoors, a.startURLs, a.startHTTP, a.startAdmin,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (a *aggregator) startBus() error {
	cfg := bus.Config{URL: a.NATSURL, Name: "aggregator", NKeyFile: a.NKeyFile, Log: a.log}
	if a.NATSURL == "" {
		if err := a.startNATS(); err != nil {
			return err
		}
		cfg.URL, cfg.InProcess = a.nats.ClientURL(), a.nats
	}
	conn, err := bus.Connect(cfg)
	if err != nil {
		return err
	}
	a.conn, a.running.NATSURL = conn, cfg.URL
	a.tasks = append(a.tasks, watchBus(a.asked, conn))
	return a.stack.Push("bus", busLimit, conn.Drain)
}

func (a *aggregator) startNATS() error {
	host, port, err := splitAddr("NATS_LISTEN", a.NATSListen)
	if err != nil {
		return err
	}
	if port == 0 {
		port = server.RandomPort
	}
	if !loopback(a.NATSListen) {
		a.log.Warn("the embedded NATS server listens beyond this machine and asks for no credentials: whoever reaches it can submit and look up as any tenant", "addr", a.NATSListen)
	}
	a.nats, err = server.Start(server.Config{Host: host, Port: port, Log: a.log})
	if err != nil {
		return err
	}
	return a.stack.Push("nats", serverLimit, a.nats.Shutdown)
}

// splitAddr reads host:port.
func splitAddr(name, addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 || host == "" {
		return "", 0, fault.New(fault.Invalid, "OUT_OF_RANGE", "%s: %q is not host:port", name, addr).InField(name)
	}
	return host, port, nil
}

// startRoster learns who the archives are. Enrolment is open by default only
// where nobody from outside can say hello.
func (a *aggregator) startRoster() error {
	open := a.Enrol == "open" || a.Enrol == "auto" && a.nats != nil && loopback(a.NATSListen)
	roster, err := bus.OpenRoster(bus.RosterConfig{Path: a.path(fileRoster), Open: open, Keys: a.enrolKeys(), Log: a.log})
	if err != nil {
		return err
	}
	a.roster = roster
	if err := a.stack.Push("roster", busLimit, func(context.Context) error { return roster.Close() }); err != nil {
		return err
	}
	if err := roster.Listen(a.conn); err != nil {
		return err
	}
	stop, err := roster.ServeRoster(a.conn)
	if err != nil {
		return err
	}
	if err := a.stack.Push("roster service", busLimit, func(context.Context) error { stop(); return nil }); err != nil {
		return err
	}
	client, err := bus.NewArchives(a.conn, roster, bus.ArchivesConfig{Copies: a.PutCopies, MinCopies: a.PutMinCopies, UploadIdle: time.Duration(a.UploadIdle) * time.Second, Log: a.log})
	if err != nil {
		return err
	}
	a.client = client
	return a.stack.Push("archives", busLimit, func(context.Context) error { return client.Close() })
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *aggregator) startStores() (err error) {
	a.disks = watchDisks(a.DiskReserve, a.log, a.path(dirJobs), a.path(dirLedger))
	if a.ledger, err = ledger.Open(a.ledgerConfig(a.log)); err != nil {
		return err
	}
	if err := a.stack.Push("ledger", storeLimit, func(context.Context) error { return a.ledger.Close() }); err != nil {
		return err
	}
	if a.vault, err = vault.Open(vault.Config{Dir: a.vaultDir()}); err != nil {
		return err
	}
	return a.stack.Push("vault", storeLimit, func(context.Context) error { return a.vault.Close() })
}

// archives is the roster and the client as one, as package jobs sees them.
type archives struct {
	*bus.Archives
	roster *bus.Roster
}

func (a archives) Rank(key [32]byte) []wire.ArchiveID { return a.roster.Rank(key) }
func (a archives) Enrolled() []wire.ArchiveID         { return a.roster.Enrolled() }
func (a archives) Version() uint64                    { return a.roster.Version() }

func (a *aggregator) startEngine() (err error) {
	a.gatherer = &receipts.Gatherer{
		Asker: a.client, Roster: a.roster, Wait: time.Duration(a.WaitArchive) * time.Millisecond, Unlisted: a.unlisted(),
		Mirrors: a.silences(), Direct: a.direct(), Log: a.log,
	}
	a.engine, err = jobs.Open(jobs.Config{
		Dir: a.path(dirJobs), Ledger: a.ledger, Archives: archives{a.client, a.roster}, Copies: archives{a.client, a.roster}, Gatherer: a.gatherer, Vault: a.vault, Announce: a.conn, Fetchers: a.keys,
		PutCopies: a.PutCopies, PutMinCopies: a.PutMinCopies, PutWait: time.Duration(a.PutWait) * time.Millisecond,
		ResubmitWindow: a.window(), IdempotencyTTL: a.IdempotencyTTL, UploadIdle: time.Duration(a.UploadIdle) * time.Second, Late: time.Duration(a.Late) * time.Millisecond,
		Room: a.disks.full, Log: a.log, OnFatal: exitOnFatal(a.log),
	})
	if err != nil {
		return err
	}
	changes, stop := a.roster.Changes()
	a.tasks = append(a.tasks, serve.Task{Name: "heal", Run: func(ctx context.Context) error {
		defer stop()
		for {
			select {
			case <-changes:
				a.engine.Nudge()
			case <-ctx.Done():
				return nil
			}
		}
	}})
	return a.stack.Push("jobs", storeLimit, func(context.Context) error { return a.engine.Close() })
}

// maxWatches is how many watches are handled at a time; more wait on the bus. A
// watch for a known submission only wakes it, one of a foreign edge costs a
// commit.
const maxWatches = 256

// startDoors opens the entrances on the bus: the poller's, middleware's, and
// bridges'.
func (a *aggregator) startDoors() error {
	watches := newIntake(maxWatches)
	stop, err := a.conn.SubscribeWatch(func(w wire.Watch) {
		watches.run(func() {
			if err := a.engine.Watch(a.asked, w); err != nil && !fault.Is(err, fault.Transient) {
				a.log.Warn("a watch was refused", "job", w.JobID, "err", err)
			}
		})
	})
	if err != nil {
		return err
	}
	if err := a.stack.Push("poller", busLimit, func(context.Context) error { stop(); watches.stop(); return nil }); err != nil {
		return err
	}
	door := jobs.Door{Engine: a.engine, Limits: a.limits(), Uploader: a.client, MaxWait: time.Duration(a.WaitJob) * time.Millisecond}
	service, err := bus.ServeTimestamp(a.conn, door, bus.TimestampConfig{Log: a.log})
	if err != nil {
		return err
	}
	if err := a.stack.Push("middleware", serviceLimit, service.Drain); err != nil {
		return err
	}
	if a.outbox, err = bus.ServeOutbox(a.conn, a.engine, a.log); err != nil {
		return err
	}
	return a.stack.Push("outbox", serviceLimit, a.outbox.Drain)
}

// startKeys reads who may call. The engine asks it too: whether somebody could
// fetch a file.
func (a *aggregator) startKeys() (err error) {
	a.keys, err = edge.OpenKeyring(a.KeysFile(), a.log)
	return err
}

func (a *aggregator) startHTTP() (err error) {
	a.addChecks()
	a.edge, err = edge.New(edge.Config{
		Jobs: a.engine, Contents: a.engine, Controls: a.engine, Files: a.client, Uploader: a.client, Keys: a.keys, Roster: members{a.roster, a.engine, a.PutCopies},
		URLKey:  a.urlKey,
		Health:  &a.health,
		Body:    a.limits(),
		Limits:  a.edgeLimits(),
		WaitJob: time.Duration(a.WaitJob) * time.Millisecond, Log: a.log,
	})
	if err != nil {
		return err
	}
	srv := a.edge.HTTPServer(a.HTTPAddr)
	listener, err := net.Listen("tcp", a.HTTPAddr)
	if err != nil {
		return fault.New(fault.Invalid, "LISTEN", "HTTP_ADDR: %w", err).InField("HTTP_ADDR")
	}
	a.running.HTTPURL = "http://" + listener.Addr().String()
	a.tasks = append(a.tasks, serve.Task{Name: "http", Run: func(context.Context) error { return served(srv.Serve(listener)) }})
	return a.stack.Push("http", httpLimit, func(ctx context.Context) error {
		a.edge.Drain()
		return cut(ctx, srv, listener)
	})
}

// addChecks adds what must work before requests are sent here.
func (a *aggregator) addChecks() {
	a.health.Add(serve.Check{Name: "jobs", Func: func(context.Context) error { return a.engine.Ready() }})
	a.health.Add(serve.Check{Name: "keys", Func: a.keys.Ready})
	a.health.Add(serve.Check{Name: "bus", Func: func(context.Context) error { return connected(a.conn) }})
	a.health.Add(serve.Check{Name: "disk", Degraded: true, Func: func(context.Context) error { return a.disks.full() }})
	a.health.Add(serve.Check{Name: "archives", Degraded: true, Func: func(context.Context) error {
		if n := a.roster.Reachable(); n < a.PutCopies {
			return fault.New(fault.Transient, "NO_ARCHIVE", "%d archives take records now, %d copies are wanted", n, a.PutCopies)
		}
		return nil
	}})
	a.health.Add(serve.Check{Name: "losses", Degraded: true, Func: func(context.Context) error { return lossCheck(a.roster) }})
}

func (a *aggregator) startAdmin() error {
	task, err := a.admin(a.log, a.level, a.stack, &a.health, a.backupOrders(),
		a.conn.Metrics(), a.roster.Metrics(), a.mirrorMetrics(), a.client.Metrics(), a.ledger.Metrics(), a.cosigning.Metrics(), a.vault.Metrics(), a.gatherer.Metrics(), a.engine.Metrics(), a.outbox.Metrics(), a.edge.Metrics(), a.disks.metrics(), a.census.metrics())
	a.tasks = append(a.tasks, task)
	return err
}
