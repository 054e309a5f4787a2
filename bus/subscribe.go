package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// subscribe makes an asynchronous subscription with generous pending limits and
// counts what nats.go drops beyond them. An empty group means no queue group.
func (c *Conn) subscribe(nc *nats.Conn, subject, group string, handle nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := nc.QueueSubscribe(subject, group, handle)
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(pendingMsgs, pendingBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("bus: limits of %s: %w", subject, err), sub.Unsubscribe())
	}
	c.mu.Lock()
	c.subs[sub] = struct{}{}
	c.mu.Unlock()
	return sub, nil
}

// unsubscribe ends a subscription at once; messages not yet handled are lost. It
// is safe to call again.
func (c *Conn) unsubscribe(sub *nats.Subscription) {
	c.forget(sub)
	// An error says that it has ended before.
	_ = sub.Unsubscribe()
}

// forget stops counting sub's drops live and keeps what it dropped so far. It
// reports whether sub was in force.
func (c *Conn) forget(sub *nats.Subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.subs[sub]
	if ok {
		delete(c.subs, sub)
		c.metrics.dropped.keep(sub)
	}
	return ok
}

// drain ends subscriptions after the messages that have arrived for them are
// handled. It returns ctx's error if that takes too long; the subscriptions end
// in any case.
func (c *Conn) drain(ctx context.Context, subs ...*nats.Subscription) error {
	var ended []chan struct{}
	for _, sub := range subs {
		if !c.forget(sub) {
			continue // it has ended before, and would never say so again
		}
		if !c.Connected() {
			// Draining needs a round trip. What is in memory now was not
			// acknowledged, and its senders try again.
			c.unsubscribe(sub)
			continue
		}
		done := make(chan struct{})
		sub.SetClosedHandler(func(string) { close(done) })
		if err := sub.Drain(); err != nil {
			c.unsubscribe(sub)
			continue
		}
		ended = append(ended, done)
	}
	for _, done := range ended {
		select {
		case <-done:
		case <-c.lost:
		case <-ctx.Done():
			for _, sub := range subs {
				c.unsubscribe(sub)
			}
			return fmt.Errorf("bus: drain: %w", ctx.Err())
		}
	}
	return nil
}

// Drain ends the connections in order: subscriptions first, when their messages
// are handled, then what is published still. It returns when both are closed,
// which ctx hastens. Services on the connection have to be drained before it.
func (c *Conn) Drain(ctx context.Context) error {
	return errors.Join(c.drainConn(ctx, c.bulk), c.drainConn(ctx, c.ctl))
}

func (c *Conn) drainConn(ctx context.Context, nc *nats.Conn) error {
	switch err := nc.Drain(); {
	case err == nil, errors.Is(err, nats.ErrConnectionClosed):
	case errors.Is(err, nats.ErrConnectionReconnecting):
		nc.Close() // what is in memory was not acknowledged, and its senders try again
	default:
		nc.Close()
		return sendFault(err, "bus: drain")
	}
	select {
	case <-c.ended[nc]:
		return nil
	case <-ctx.Done():
		nc.Close()
		return fmt.Errorf("bus: drain: %w", ctx.Err())
	}
}

// Close sends what is published still, if that takes no longer than a moment,
// and closes both connections. It is safe to call again.
func (c *Conn) Close() error {
	var errs []error
	for _, nc := range []*nats.Conn{c.bulk, c.ctl} {
		if nc.IsConnected() {
			if err := nc.FlushTimeout(closeTimeout); err != nil && !nc.IsClosed() {
				errs = append(errs, sendFault(err, "bus: close"))
			}
		}
		nc.Close()
	}
	late := time.After(closeTimeout)
	for _, ended := range c.ended {
		select {
		case <-ended:
		case <-late:
			return errors.Join(append(errs, errors.New("bus: close: a callback did not return"))...)
		}
	}
	return errors.Join(errs...)
}

// A dropCounter counts the messages that nats.go dropped because a subscriber
// was slow. nats.go reports only the first of a series to the error handler, so
// this reads the subscriptions' own counters.
type dropCounter struct {
	conn *Conn
	desc *prometheus.Desc
	gone uint64 // drops of ended subscriptions; guarded by conn.mu
}

func newConnMetrics(c *Conn) connMetrics {
	fixed := prometheus.Labels{"conn": c.name}
	return connMetrics{
		disconnects: counter("disconnects_total", "Times a connection to NATS was lost.", fixed),
		reconnects:  counter("reconnects_total", "Times a lost connection came back.", fixed),
		errors:      counters("async_errors_total", "Errors NATS reported aside of a call.", "kind", fixed),
		dropped: &dropCounter{conn: c, desc: prometheus.NewDesc(namespace+"_dropped_messages_total",
			"Messages dropped because a subscriber was slow.", nil, fixed)},
	}
}

// Describe implements prometheus.Collector.
func (d *dropCounter) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d *dropCounter) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(d.total()))
}

func (d *dropCounter) total() uint64 {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	n := d.gone
	for sub := range d.conn.subs {
		n += droppedBy(sub)
	}
	return n
}

// keep adds what sub dropped. conn.mu is held.
func (d *dropCounter) keep(sub *nats.Subscription) { d.gone += droppedBy(sub) }

func droppedBy(sub *nats.Subscription) uint64 {
	n, err := sub.Dropped()
	if err != nil || n < 0 { // it has ended
		return 0
	}
	return uint64(n)
}
