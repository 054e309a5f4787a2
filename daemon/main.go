package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/serve"
)

// Program is one long-running program: what its main function needs.
type Program[C any] struct {
	Name, Description string
	Init              func(C, *slog.Logger) error
	Run               func(context.Context, C, *slog.Logger, *slog.LevelVar) error
}

// commands are the commands of every program. The fields of the configuration
// are flags of both.
type commands[C any] struct {
	Config C        `embed:""`
	Serve  struct{} `cmd:"" default:"1" help:"Serve until SIGINT or SIGTERM; a second signal ends the process at once."`
	Init   struct{} `cmd:"" help:"Make the data directory of a new node. It fails if there is anything."`
}

// Main runs the program with the arguments behind its name, and returns its
// exit code.
func (p Program[C]) Main(args []string, stdout, stderr io.Writer) int {
	var cmd commands[C]
	ctx, err := Parse(p.Name, p.Description, &cmd, args, os.Environ(), stdout)
	if errors.Is(err, ErrHelp) {
		return serve.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return serve.ExitUsage
	}
	log, level, err := serve.NewLogger(stderr, os.Getenv)
	if err == nil && ctx.Command() == "init" {
		err = p.Init(cmd.Config, log)
	} else if err == nil {
		err = p.serve(cmd.Config, log, level)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return serve.ExitCode(err)
}

func (p Program[C]) serve(cfg C, log *slog.Logger, level *slog.LevelVar) error {
	ctx, stop := serve.Signals(context.Background())
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	child.FollowParent(os.Getenv, os.Stdin, cancel)
	return p.Run(ctx, cfg, log, level)
}

// ArchivedProgram is cmd/archived.
var ArchivedProgram = Program[Archived]{
	Name: "archived", Description: "One WORM archive: appends records, answers queries, keeps files.",
	Init: InitArchive, Run: RunArchive,
}

// AggregatorProgram is cmd/aggregator.
var AggregatorProgram = Program[Aggregator]{
	Name: "aggregator", Description: "The aggregator: takes submissions over HTTP and NATS, seals digests, places records, answers lookups.",
	Init: InitAggregator, Run: RunAggregator,
}
