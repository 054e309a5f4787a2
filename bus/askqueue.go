package bus

import "github.com/nats-io/nats.go"

// deliver takes a message for the query.
func (k *ask) deliver(msg *nats.Msg) {
	if unheard(msg) {
		k.a.metrics.unheard.Inc()
		k.mu.Lock()
		k.silent = true
		k.mu.Unlock()
		k.kick()
		return
	}
	size := int64(len(msg.Data))
	if k.a.queued.Add(size) > maxQueuedTotal {
		k.drop(size, "all-queues-full")
		return
	}
	k.mu.Lock()
	if k.held >= MaxQueuedReplies || k.bytes+size > MaxQueuedReplyBytes {
		k.mu.Unlock()
		k.drop(size, "queue-full")
		return
	}
	k.queue = append(k.queue, msg)
	k.held++
	k.bytes += size
	k.mu.Unlock()
	k.kick()
}

func (k *ask) drop(size int64, reason string) {
	k.a.queued.Add(-size)
	k.a.metrics.badReplies.WithLabelValues(reason).Inc()
}

func (k *ask) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// take removes and returns what has arrived.
func (k *ask) take() (msgs []*nats.Msg, silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	msgs, k.queue = k.queue, nil
	return msgs, k.silent
}

// done tells the budgets that msg has been taken out.
func (k *ask) done(msg *nats.Msg) {
	size := int64(len(msg.Data))
	k.a.queued.Add(-size)
	k.mu.Lock()
	k.held--
	k.bytes -= size
	k.mu.Unlock()
}

// discard returns the budget of what nobody will take.
func (k *ask) discard() {
	k.mu.Lock()
	msgs := k.queue
	k.queue = nil
	k.held = MaxQueuedReplies // nothing more fits
	k.mu.Unlock()
	for _, msg := range msgs {
		k.a.queued.Add(-int64(len(msg.Data)))
	}
}
