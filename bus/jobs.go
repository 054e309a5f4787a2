package bus

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Queue groups: of all members one gets each message.
const (
	groupPollers     = "verae-pollers"
	groupAggregators = "verae-aggregators"
)

// PublishWatch announces a submission to the pollers. A nil error says that the
// connection has it, not that a poller heard it: the job store is the truth and
// is read again on a timer.
func (c *Conn) PublishWatch(w wire.Watch) error {
	data, err := wire.Encode(w)
	if err != nil {
		return err
	}
	return sendFault(c.ctl.Publish(wire.SubjectJobsWatch, data), "bus: jobs.watch")
}

// PublishEvent announces an event in the bytes that were made once and stored.
// Like PublishWatch it promises delivery to nobody.
func (c *Conn) PublishEvent(event []byte) error {
	err := c.ctl.Publish(wire.SubjectJobsEvents, event)
	if errors.Is(err, nats.ErrMaxPayload) {
		return fault.New(fault.Invalid, CodeTooLarge, "bus: an event of %d bytes does not fit into the server's max_payload of %d", len(event), c.ctl.MaxPayload())
	}
	return sendFault(err, "bus: jobs.events")
}

// SubscribeWatch calls handle for each watch that this process is the one to
// hear: pollers share a queue group. Payloads that are no watch are dropped with
// a log line. handle runs on one goroutine and must not block for long. When
// SubscribeWatch returns, a watch published by anybody is heard. stop ends the
// subscription without waiting for a running handle.
func (c *Conn) SubscribeWatch(handle func(wire.Watch)) (stop func(), err error) {
	var logged throttle
	return c.listen(wire.SubjectJobsWatch, groupPollers, func(msg *nats.Msg) {
		w, err := wire.Decode[wire.Watch](msg.Data)
		if err == nil {
			err = w.Check()
		}
		if err != nil {
			c.metrics.errors.WithLabelValues("bad-watch").Inc()
			if logged.now() {
				c.log.Warn("ignoring a message on "+wire.SubjectJobsWatch, "err", err)
			}
			return
		}
		handle(w)
	})
}

// SubscribeEvents calls handle for every event, with its exact bytes. handle runs
// on one goroutine and must not block for long. When SubscribeEvents returns, an
// event published by anybody is heard: subscribe, then read the stored state,
// then wait, and nothing is missed.
func (c *Conn) SubscribeEvents(handle func(event []byte)) (stop func(), err error) {
	return c.listen(wire.SubjectJobsEvents, "", func(msg *nats.Msg) { handle(msg.Data) })
}

// listen subscribes on the control connection and makes it take effect.
func (c *Conn) listen(subject, group string, handle nats.MsgHandler) (stop func(), err error) {
	sub, err := c.subscribe(c.ctl, subject, group, handle)
	if err != nil {
		return nil, err
	}
	if err := settle(c.ctl); err != nil {
		c.unsubscribe(sub)
		return nil, err
	}
	return func() { c.unsubscribe(sub) }, nil
}
