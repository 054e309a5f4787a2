package blob

import "context"

// gate keeps the store from being closed, but not while a check waits until it
// may read.
type gate struct {
	store *Store
	read  func(ctx context.Context, bytes int) error
	out   func() // nil outside
}

func (g *gate) enter() (err error) {
	g.out, err = g.store.enter()
	return err
}

func (g *gate) leave() {
	if g.out != nil {
		g.out()
		g.out = nil
	}
}

func (g *gate) wait(ctx context.Context, bytes int) error {
	g.leave()
	if err := g.read(ctx, bytes); err != nil {
		return err
	}
	return g.enter()
}
