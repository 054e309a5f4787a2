package serve

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/verae/archive/internal/fault"
)

// NewLogger returns the logger of a program that writes to stderr: JSON lines,
// or text when stderr is a terminal. The level comes from LOG_LEVEL (debug,
// info, warn, error; info when unset) and can be changed later through the
// returned variable. Secrets are blacked out as [Redact] describes, and
// attributes put into a context by [With] are added to every record.
func NewLogger(stderr io.Writer, getenv func(string) string) (*slog.Logger, *slog.LevelVar, error) {
	level := new(slog.LevelVar)
	if err := SetLevel(level, getenv("LOG_LEVEL")); err != nil {
		return nil, nil, err
	}
	return slog.New(newHandler(stderr, isTerminal(stderr), level)), level, nil
}

func newHandler(w io.Writer, text bool, level slog.Leveler) slog.Handler {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: Redact}
	if text {
		return contextHandler{slog.NewTextHandler(w, opts)}
	}
	return contextHandler{slog.NewJSONHandler(w, opts)}
}

// SetLevel sets v to the level named text; an empty text means info. Any other
// text is refused as fault.Invalid in the field LOG_LEVEL, and v stays as it is.
func SetLevel(v *slog.LevelVar, text string) error {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "debug":
		v.Set(slog.LevelDebug)
	case "", "info":
		v.Set(slog.LevelInfo)
	case "warn":
		v.Set(slog.LevelWarn)
	case "error":
		v.Set(slog.LevelError)
	default:
		return fault.New(fault.Invalid, "LOG_LEVEL",
			"LOG_LEVEL is %q; use debug, info, warn or error", text).InField("LOG_LEVEL")
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
