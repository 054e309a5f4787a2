package bus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// OpenUpload opens an upload on the archives that own key: the first PUT_COPIES
// that take it, in the order of the ranking. With fewer than PUT_MIN_COPIES of
// them the error is Transient, NO_ARCHIVE. Until Finish returned, the upload
// fails when ctx is done. p is the profile that the archives build the DAG by.
func (a *Archives) OpenUpload(ctx context.Context, key [32]byte, p blob.Profile) (splitter.Upload, error) {
	u, err := a.openUpload(ctx, a.ranker.Rank(key), p, a.cfg.Copies, a.cfg.MinCopies)
	if err != nil {
		return nil, err
	}
	return u, nil
}

func (a *Archives) openUpload(ctx context.Context, ids []wire.ArchiveID, p blob.Profile, copies, least int) (*upload, error) {
	u := &upload{
		id: newUploadID(), min: least,
		room:  newRoom(a.shared),
		ended: make(chan struct{}), idle: make(chan struct{}),
	}
	if err := a.openLanes(ctx, u, ids, p, copies); err != nil {
		return nil, err
	}
	lanes := u.lanes
	u.running = len(lanes)
	for _, l := range lanes {
		if !a.acks.add(l.token, l, func() { l.run(u) }) {
			u.Abort()
			return nil, fault.New(fault.Transient, CodeDisconnected, "bus: the client is closed")
		}
	}
	u.free = context.AfterFunc(ctx, func() {
		u.fail(fault.New(fault.Transient, CodeTimeout, "bus: upload %s: %w", u.id, context.Cause(ctx)))
	})
	return u, nil
}

// openLanes opens the upload on archives until there are enough copies: as many
// at a time as are lacking, the next ones in place of those that refuse.
func (a *Archives) openLanes(ctx context.Context, u *upload, ids []wire.ArchiveID, p blob.Profile, copies int) error {
	var errs []error
	for len(u.lanes) < copies && len(ids) > 0 {
		try := ids[:min(copies-len(u.lanes), len(ids))]
		ids = ids[len(try):]
		lanes, fails := make([]*lane, len(try)), make([]error, len(try))
		var wg sync.WaitGroup
		for i, id := range try {
			wg.Go(func() { lanes[i], fails[i] = a.openLane(ctx, id, u.id, p) })
		}
		wg.Wait()
		for i, l := range lanes {
			if l != nil {
				u.lanes = append(u.lanes, l)
				continue
			}
			a.metrics.lanes.WithLabelValues("refused").Inc()
			a.log.Warn("an archive does not take an upload", "archive", try[i], "err", fails[i])
			errs = append(errs, fails[i])
		}
	}
	if len(u.lanes) < u.min {
		have := len(u.lanes)
		u.Abort()
		shortage := fault.New(fault.Transient, CodeNoArchive, "archives: %d take files now and %d are needed: send the request again later", have, u.min)
		if len(errs) > 0 {
			shortage.Err = fmt.Errorf("%w: %w", shortage.Err, errors.Join(errs...))
		}
		return shortage.After(retryPlacement)
	}
	return nil
}

// newUploadID returns 32 random hex characters.
func newUploadID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// openLane opens the upload on one archive.
func (a *Archives) openLane(ctx context.Context, id wire.ArchiveID, uploadID string, p blob.Profile) (*lane, error) {
	data, err := wire.Encode(wire.BlobOpen{ChunkSize: p.ChunkSize, MaxLinks: p.MaxLinks})
	if err != nil {
		return nil, err
	}
	reply, err := a.request(ctx, id, frame(id, wire.OpOpen, uploadID, data), a.cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	ack, err := decodeAck(id, reply)
	if err != nil {
		return nil, err
	}
	l := a.newLane(id, p)
	l.allowed = ack.Credit
	return l, nil
}

func (a *Archives) newLane(id wire.ArchiveID, p blob.Profile) *lane {
	return &lane{
		a: a, id: id, profile: p, token: a.laneToken(),
		frames: make(chan *fragment, roomMost), flush: make(chan struct{}, 1),
		acks: make(chan *nats.Msg, queuedAcks), done: make(chan struct{}),
	}
}

// laneToken returns a new reply token.
func (a *Archives) laneToken() string { return strconv.FormatUint(a.lanes.Add(1), 36) }
