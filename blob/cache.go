package blob

import (
	"container/list"
	"sync"
)

// cache keeps the values used last, up to a sum of costs. Values are shared and
// must not be changed. Everything in it was verified before it went in, and is
// kept under its own digest, so it can never be stale.
type cache[K comparable, V any] struct {
	cost  func(V) int
	limit int

	mu    sync.Mutex // guards all below
	sum   int
	order list.List // of *cached[K, V], last used first
	items map[K]*list.Element
}

type cached[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](limit int, cost func(V) int) *cache[K, V] {
	return &cache[K, V]{cost: cost, limit: limit, items: make(map[K]*list.Element)}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached[K, V]).value, true
}

// put adds a value unless it alone exceeds the limit.
func (c *cache[K, V]) put(key K, value V) {
	n := c.cost(value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.items[key]; ok || n > c.limit {
		return
	}
	c.items[key] = c.order.PushFront(&cached[K, V]{key, value})
	for c.sum += n; c.sum > c.limit; {
		last := c.order.Remove(c.order.Back()).(*cached[K, V])
		delete(c.items, last.key)
		c.sum -= c.cost(last.value)
	}
}
