package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/serve"
)

// Program is one long-running program: what its main function needs.
type Program[C any] struct {
	Name, Description string
	Init              func(C, *slog.Logger) error
	Run               func(context.Context, C, *slog.Logger, *slog.LevelVar) error
	// Commands makes a pointer to a struct of further commands: its fields have
	// the tag cmd and types with a method Run(context.Context, Env[C]) error. Nil
	// means that there are none.
	Commands func() any
}

// Env is what a further command of a program runs with. Its context ends with
// the first signal.
type Env[C any] struct {
	Config C
	Log    *slog.Logger
	Stdout io.Writer // for what the command was asked for; the log goes to standard error
}

// commands are the commands of every program. The fields of the configuration
// are flags of both.
type commands[C any] struct {
	Config C        `embed:""`
	Serve  struct{} `cmd:"" default:"1" help:"Serve until SIGINT or SIGTERM; a second signal ends the process at once."`
	Init   struct{} `cmd:"" help:"Make the data directory of a new node. It fails if there is anything."`
	kong.Plugins
}

// Main runs the program with the arguments behind its name, and returns its
// exit code.
func (p Program[C]) Main(args []string, stdout, stderr io.Writer) int {
	var cmd commands[C]
	if p.Commands != nil {
		cmd.Plugins = kong.Plugins{p.Commands()}
	}
	ctx, err := Parse(p.Name, p.Description, &cmd, args, os.Environ(), stdout)
	if errors.Is(err, ErrHelp) {
		return serve.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return serve.ExitUsage
	}
	log, level, err := serve.NewLogger(stderr, os.Getenv)
	if err == nil {
		switch ctx.Command() {
		case "init":
			err = p.Init(cmd.Config, log)
		case "serve":
			err = p.serve(cmd.Config, log, level)
		default:
			err = run(ctx, Env[C]{cmd.Config, log, stdout})
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return serve.ServerExitCode(err)
}

// run runs the further command that was chosen.
func run[C any](chosen *kong.Context, env Env[C]) error {
	ctx, stop := serve.Signals(context.Background())
	defer stop()
	chosen.BindTo(ctx, (*context.Context)(nil))
	return chosen.Run(env)
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
	Commands: func() any { return &archivedCommands{} },
}

// archivedCommands are the commands of archived beside serve and init.
type archivedCommands struct {
	Check     archivedCheck     `cmd:"" help:"Read everything that a stopped archive keeps, and say what is wrong."`
	Repair    archivedRepair    `cmd:"" help:"Make a stopped archive whole: from what is left of it and from the other archives."`
	Backup    archivedBackup    `cmd:"" help:"Make a backup, also of a running archive, and open it to see that it is good."`
	Restore   archivedRestore   `cmd:"" help:"Make the data directory from a backup, as a new generation of the archive."`
	Reconcile archivedReconcile `cmd:"" help:"Have the running archive look for records with too few live copies, and have them copied."`
}

// AggregatorProgram is cmd/aggregator.
var AggregatorProgram = Program[Aggregator]{
	Name: "aggregator", Description: "The aggregator: takes submissions over HTTP and NATS, seals digests, places records, answers lookups.",
	Init: InitAggregator, Run: RunAggregator,
	Commands: func() any { return &aggregatorCommands{} },
}

// aggregatorCommands are the commands of aggregator beside serve and init.
type aggregatorCommands struct {
	Check   aggregatorCheck   `cmd:"" help:"Read everything that a stopped aggregator keeps, and say what is wrong."`
	Backup  aggregatorBackup  `cmd:"" help:"Make a backup, also of a running aggregator, and open it to see that it is good."`
	Restore aggregatorRestore `cmd:"" help:"Make the data directory from a backup."`

	NewMemory newMemory `cmd:"" name:"new-memory" help:"Begin an empty memory.json where the old one is lost and no backup has it."`
}
