package bus

import (
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
)

func (c *Conn) onConnect(nc *nats.Conn, part, what string) {
	c.log.Info(what+" to NATS", "part", part, "server", nc.ConnectedUrlRedacted())
	if err := checkPayload(nc); err != nil {
		c.log.Error("the NATS server cannot carry every record", "err", err)
	}
	c.mu.Lock()
	ups := slices.Collect(maps.Keys(c.ups))
	c.mu.Unlock()
	for _, up := range ups {
		(*up)()
	}
}

// onUp has up called whenever a connection was made; up must not block. remove
// ends that.
func (c *Conn) onUp(up func()) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ups[&up] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ups, &up)
	}
}

// onError counts what nats.go reports aside of a call: messages dropped by a
// slow subscriber, and refusals by the server's permissions.
func (c *Conn) onError(_ *nats.Conn, sub *nats.Subscription, err error) {
	kind := "other"
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		kind = "slow-consumer"
	case errors.Is(err, nats.ErrPermissionViolation):
		kind = "permission"
	}
	c.metrics.errors.WithLabelValues(kind).Inc()
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	c.log.Warn("NATS reported an error", "kind", kind, "subject", subject, "err", err)
}
