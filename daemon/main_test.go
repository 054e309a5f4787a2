package daemon

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
)

type greetCommand struct {
	Name string `help:"Whom to greet." default:"nobody"`
}

func (g *greetCommand) Run(ctx context.Context, env Env[Archived]) error {
	if g.Name == "nobody" {
		return fault.New(fault.NotFound, "NOBODY", "--name: nobody is there")
	}
	_, err := fmt.Fprintln(env.Stdout, "hello", g.Name, "of", env.Config.ArchiveID, ctx.Err())
	return err
}

type greetCommands struct {
	Greet greetCommand `cmd:"" help:"Greet."`
}

func TestFurtherCommandsRunWithTheConfiguration(t *testing.T) {
	p := Program[Archived]{Name: "archived", Commands: func() any { return &greetCommands{} }}
	for _, c := range []struct {
		args string
		code int
		out  string
		err  string
	}{
		{"greet --name ann --archive-id archive-a", 0, "hello ann of archive-a <nil>\n", ""},
		{"greet", 3, "", "nobody is there"},
		{"greet --nam ann", 2, "", "--nam"},
	} {
		var out, errOut bytes.Buffer
		code := p.Main(strings.Fields(c.args), &out, &errOut)
		if code != c.code || out.String() != c.out || !strings.Contains(errOut.String(), c.err) {
			t.Errorf("%s: code %d, %q, %q", c.args, code, out.String(), errOut.String())
		}
	}
}
