package serve

import (
	"context"
	"log/slog"
	"slices"
)

type attrsKey struct{}

// With returns a context whose attributes are added to every record that is
// logged with it through a logger of [NewLogger]: a request id set once at the
// door appears in each line the request causes.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	have, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	// A copy: two branches of one request must not append into one array.
	return context.WithValue(ctx, attrsKey{}, slices.Concat(have, attrs))
}

// contextHandler adds the attributes of With.
type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if attrs, ok := ctx.Value(attrsKey{}).([]slog.Attr); ok {
		r = r.Clone()
		r.AddAttrs(attrs...)
	}
	return h.Handler.Handle(ctx, r)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}
