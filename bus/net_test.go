package bus

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A lane's messages reach stores in memory through a net, which loses, repeats
// and reorders them as a test says, under the clock of a synctest bubble.
type testNet struct {
	t        testing.TB
	archives *Archives
	mu       sync.Mutex
	peers    map[wire.ArchiveID]*netPeer
	running  sync.WaitGroup
	closed   bool
	onFrame  func(p *netPeer, msg *nats.Msg) []*nats.Msg // what arrives; nil: all as sent
	onReply  func(p *netPeer, msg *nats.Msg) []*nats.Msg
}

// A netPeer is an archive.
type netPeer struct {
	net   *testNet
	id    wire.ArchiveID
	queue chan *nats.Msg
	disk  *vfs.MemFS
	syncs uploadSyncs

	mu    sync.Mutex
	store *blob.Store // nil: it is down
}

// startNet starts archives with empty stores, and a client that ranks them.
func startNet(t testing.TB, cfg ArchivesConfig, ids ...wire.ArchiveID) *testNet {
	t.Helper()
	n := &testNet{t: t, peers: map[wire.ArchiveID]*netPeer{}}
	a := &Archives{ranker: static(ids), cfg: cfg, log: orDiscard(nil), peers: map[wire.ArchiveID]*peer{}, frames: n, shared: newShared()}
	a.metrics = newClientMetrics(a)
	a.acks = newMux("acks.", a.metrics.lateAcks)
	n.archives = a
	for _, id := range ids {
		p := &netPeer{net: n, id: id, queue: make(chan *nats.Msg, 1<<16), disk: vfs.NewCrashableMem()}
		p.start(true)
		n.peers[id] = p
		n.running.Go(func() {
			for msg := range p.queue {
				p.hear(msg)
			}
		})
	}
	t.Cleanup(n.close)
	return n
}

func (n *testNet) close() {
	n.archives.acks.close()
	n.mu.Lock()
	n.closed = true
	for _, p := range n.peers {
		close(p.queue)
	}
	n.mu.Unlock()
	n.running.Wait()
	for _, p := range n.peers {
		p.syncs.running.Wait()
		p.stop()
	}
}

// open opens an upload on all archives.
func (n *testNet) open(ctx context.Context, least int, profile blob.Profile) *upload {
	n.t.Helper()
	u := &upload{id: newUploadID(), min: least, room: newRoom(n.archives.shared), ended: make(chan struct{}), idle: make(chan struct{})}
	for _, id := range n.archives.ranker.Rank([32]byte{}) {
		if err := n.peers[id].store.Open(u.id, profile); err != nil {
			n.t.Fatal(err)
		}
		l := n.archives.newLane(id, profile)
		l.allowed = UploadWindow
		u.lanes = append(u.lanes, l)
	}
	u.running = len(u.lanes)
	u.free = context.AfterFunc(ctx, func() { u.fail(ctx.Err()) })
	for _, l := range u.lanes {
		n.archives.acks.add(l.token, l, func() { l.run(u) })
	}
	return u
}

func (n *testNet) PublishMsg(msg *nats.Msg) error {
	p := n.peers[wire.ArchiveID(msg.Subject[len(wire.SubjectBlobPrefix):])]
	msg = &nats.Msg{Subject: msg.Subject, Reply: msg.Reply, Header: msg.Header, Data: bytes.Clone(msg.Data)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nats.ErrConnectionClosed
	}
	all := []*nats.Msg{msg}
	if n.onFrame != nil {
		all = n.onFrame(p, msg)
	}
	for _, m := range all {
		p.queue <- m
	}
	return nil
}

// start starts the archive on its disk.
func (p *netPeer) start(create bool) {
	s, err := blob.OpenStore(blob.StoreConfig{Dir: "files", FS: p.disk, Create: create})
	if err != nil {
		p.net.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store = s
}

// stop ends the process of the archive.
func (p *netPeer) stop() {
	p.mu.Lock()
	s := p.store
	p.store = nil
	p.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			p.net.t.Error(err)
		}
	}
}

// cut takes the power away from the archive: nothing is left that was not synced.
func (p *netPeer) cut() {
	p.mu.Lock()
	s, after := p.store, p.disk.CrashClone(vfs.CrashCloneCfg{})
	p.store = nil
	p.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			p.net.t.Error(err)
		}
	}
	p.disk = after
}

func (p *netPeer) hear(msg *nats.Msg) {
	p.mu.Lock()
	s := p.store
	p.mu.Unlock()
	if s == nil {
		p.reply(nil, msg.Reply, &nats.Msg{Header: nats.Header{"Status": {"503"}}})
		return
	}
	ack, err := p.frame(s, msg)
	p.answer(s, msg, ack, err)
}

// frame does what ArchiveService.frame does.
func (p *netPeer) frame(s *blob.Store, msg *nats.Msg) (ack wire.BlobAck, err error) {
	id := msg.Header.Get(wire.HeaderUpload)
	ack.Credit = UploadWindow
	switch msg.Header.Get(wire.HeaderOp) {
	case wire.OpOpen:
		var open wire.BlobOpen
		if open, err = wire.Decode[wire.BlobOpen](msg.Data); err == nil {
			ack.Received, err = s.Resume(id, blob.Profile{ChunkSize: open.ChunkSize, MaxLinks: open.MaxLinks}, open.Offset)
		}
	case wire.OpAbort:
		err = s.Abort(id)
	case wire.OpData:
		offset, _ := strconv.ParseInt(msg.Header.Get(wire.HeaderOffset), 10, 64)
		ack.Received, err = s.Write(id, offset, msg.Data)
		asked := msg.Header.Get(wire.HeaderSync) == "1"
		if err == nil && (asked || ack.Received-s.Durable(id) >= SyncBytes) {
			p.syncs.start(id, msg, ack.Received, asked, func(string, *nats.Msg) {
				if durable, err := s.Sync(id); !fault.Is(err, fault.NotFound) {
					p.answer(s, msg, wire.BlobAck{Received: durable, Credit: UploadWindow, Durable: durable}, err)
				}
			})
		}
	}
	ack.Durable = s.Durable(id)
	return ack, err
}

// answer answers a frame, if the process that took it still runs.
func (p *netPeer) answer(s *blob.Store, msg *nats.Msg, ack wire.BlobAck, err error) {
	out := &nats.Msg{Header: nats.Header{}}
	if err != nil {
		out.Header.Set(wire.HeaderProblem, fault.CodeOf(err))
		out.Data = encode(p.net.t, ProblemOf(err))
	} else {
		out.Data = encode(p.net.t, ack)
	}
	p.reply(s, msg.Reply, out)
}

// reply sends what the process with the store s says, nil for a process that is not
// there. The net is locked before the archive, since tests stop archives while a
// frame is on its way.
func (p *netPeer) reply(s *blob.Store, subject string, msg *nats.Msg) {
	if subject == "" {
		return
	}
	msg.Subject = subject
	for _, m := range p.arriving(s, msg) {
		p.net.archives.acks.dispatch(m)
	}
}

// arriving is what arrives of a reply.
func (p *netPeer) arriving(s *blob.Store, msg *nats.Msg) []*nats.Msg {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if s != nil && !p.runs(s) {
		return nil
	}
	if p.net.onReply != nil {
		return p.net.onReply(p, msg)
	}
	return []*nats.Msg{msg}
}

func (p *netPeer) runs(s *blob.Store) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store == s
}

// commit commits an upload at an archive, and checks what is there then.
func (p *netPeer) commit(u *upload, data []byte, profile blob.Profile) error {
	c := describeIn(data, profile)
	if _, err := p.store.CommitFile(context.Background(), u.id, blob.FileRef{SHA256: c.SHA256, CID: c.CID, Size: c.Size, Profile: profile}); err != nil {
		return err
	}
	r, err := p.store.NewReader(context.Background(), c.CID)
	if err != nil {
		return err
	}
	defer r.Close()
	var got bytes.Buffer
	if _, err := r.WriteTo(&got); err != nil {
		return err
	}
	if !bytes.Equal(got.Bytes(), data) {
		p.net.t.Errorf("%s: other bytes", p.id)
	}
	return nil
}
