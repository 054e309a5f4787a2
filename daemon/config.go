package daemon

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/verae/archive/internal/child"
	"github.com/verae/archive/internal/fault"
)

// Common is what every program of the system can be told.
type Common struct {
	DataDir  string `env:"DATA_DIR" default:"verae-data" help:"Directory of everything this program keeps. init makes it; without it the program does not start, so that a volume that is not mounted is not taken for a new one."`
	NATSURL  string `name:"nats-url" env:"NATS_URL" help:"URL of the NATS server, or several separated by commas."`
	NKeyFile string `name:"nats-nkey-file" env:"NATS_NKEY_FILE" help:"File with the NKey seed to authenticate with at NATS; empty: none."`

	DiskReserve uint64 `env:"DISK_RESERVE" default:"0" help:"Free bytes on a disk below which nothing new is stored on it: no record and no file by an archive, no submission by an aggregator; lookups and reads go on. 0: a twentieth of the disk, at least 2 GiB and at most 8 GiB, but never more than a fifth of it."`

	ReadyFile string `env:"READY_FILE" help:"File that is written, in one step, once the program serves: a JSON object with its process id and, of an aggregator, its addresses. Empty: none."`
	AdminAddr string `env:"ADMIN_ADDR" default:"127.0.0.1:0" help:"host:port of metrics, health and profiles. Whoever reaches it can read them: keep it on loopback. Port 0 takes a free one and logs it."`
	LogLevel  string `env:"LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"Least level of log lines: debug, info, warn or error."`
}

// Parse reads a program's configuration from args and the environment into
// cfg, a pointer to a struct with kong tags: a flag wins over a variable, a
// variable over the default. It returns the context of the command that was
// chosen. Help goes to out and ends with ErrHelp. Every other error is the
// user's: fault.Invalid, naming the flag or the variable.
func Parse(name, description string, cfg any, args, environ []string, out io.Writer) (*kong.Context, error) {
	if err := checkEnvironment(environ); err != nil {
		return nil, err
	}
	helped := false
	parser, err := kong.New(cfg, kong.Name(name), kong.Description(description), kong.Writers(out, out),
		kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Resolvers(environment(environ)))
	if err != nil {
		return nil, fmt.Errorf("daemon: %s: %w", name, err)
	}
	ctx, err := parser.Parse(args)
	if helped {
		return nil, ErrHelp
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("%s: %w (try --help)", name, err))
	}
	return ctx, nil
}

// ErrHelp is returned when help was asked for and given.
var ErrHelp = fault.New(fault.Invalid, "HELP", "help was asked for")

// environment resolves flags from environ. Kong's own look-up reads the
// process's environment, which a test can not choose.
func environment(environ []string) kong.ResolverFunc {
	values := map[string]string{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			values[name] = value
		}
	}
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if value, ok := values[name]; ok && value != "" {
				return value, nil
			}
		}
		return nil, nil
	}
}

// Variable is one environment variable that a program reads.
type Variable struct {
	Name, Flag, Default, Help string
}

// Variables returns the variables that the config struct v reads, in the order
// of its fields.
func Variables(v any) (list []Variable) {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for f := range t.Fields() {
		if f.Anonymous || f.Type.Kind() == reflect.Struct {
			list = append(list, Variables(reflect.New(f.Type).Interface())...)
			continue
		}
		env, ok := f.Tag.Lookup("env")
		if !ok {
			continue
		}
		flag := f.Tag.Get("name")
		if flag == "" {
			flag = strings.ToLower(strings.ReplaceAll(env, "_", "-"))
		}
		list = append(list, Variable{Name: env, Flag: "--" + flag, Default: f.Tag.Get("default"), Help: f.Tag.Get("help")})
	}
	return list
}

// others are variables of the system that no config struct has: of the command
// line, of the harness, and of the tests.
var others = []string{"VERAE_URL", "VERAE_API_KEY", "VERAE_LONG", "VERAE_SEED", child.EnvFollowParent}

// known returns the names of all variables of the system.
func known() []string {
	names := slices.Clone(others)
	for _, v := range slices.Concat(Variables(Archived{}), Variables(Aggregator{})) {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkEnvironment refuses variables that were meant for this system and that
// no program of it reads: a setting with a slip in its name must not be
// silently without effect.
func checkEnvironment(environ []string) error {
	names := known()
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if slices.Contains(names, name) {
			continue
		}
		for _, want := range names {
			if strings.EqualFold(name, want) || oneEdit(name, want) {
				return fault.New(fault.Invalid, "UNKNOWN_VARIABLE", "%s: there is no such setting; did you mean %s?", name, want).InField(name)
			}
		}
		if strings.HasPrefix(name, "VERAE_") {
			return fault.New(fault.Invalid, "UNKNOWN_VARIABLE", "%s: there is no such setting; --help lists those there are", name).InField(name)
		}
	}
	return nil
}

// oneEdit reports whether a becomes b by changing, adding or removing one
// character. Short names are left alone: too many unrelated ones are near.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 5 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		return i < len(a) && a[i+1:] == b[i+1:]
	}
	return a[i:] == b[i+1:]
}

// positive refuses a value that must be above zero.
func positive(name string, v int64) error {
	if v <= 0 {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "%s: %d is out of range: it must be at least 1", name, v).InField(name)
	}
	return nil
}

// exists reports whether there is anything at path.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}
