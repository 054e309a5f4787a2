// Command verae is the user's command line: it seals files and hashes, looks
// them up, stores and fetches files, and keeps API keys.
//
//	verae stamp FILE...          seal the SHA-256 of files; the files stay here
//	verae lookup FILE|SHA256     what is sealed and attached, and where
//	verae put FILE...            seal files and store them
//	verae get CID                fetch a stored file
//	verae blob cid FILE...|-     the CID that a file has, computed here
//	verae blob put FILE...       store files without sealing them
//	verae blob get CID           the same as verae get
//	verae retain FILE|SHA256     keep what is attached until a day; extended, never shortened
//	verae hold, verae release    put a legal hold on what is attached, and take it off
//	verae archives               the archives and their state
//	verae archives accept|retire|lost
//	verae keys create|list|revoke
//
// The server is VERAE_URL, the key VERAE_API_KEY or a file; a key is never an
// argument, which other users of the machine could read. With --json every
// answer is one JSON value a line on standard output. Exit codes: 0 ok, 1
// failed, 2 usage, 3 not found, 4 pending, 5 unreachable, 6 denied.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/verae/archive/client"
	"github.com/verae/archive/daemon"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

// config is the command line.
type config struct {
	URL     string `name:"url" env:"VERAE_URL" default:"http://127.0.0.1:8080" help:"URL of the aggregator."`
	KeyFile string `name:"api-key-file" type:"path" help:"File with the API key; default: the variable VERAE_API_KEY."`
	JSON    bool   `name:"json" help:"Print answers as JSON, one value a line."`

	Stamp    stampCmd    `cmd:"" help:"Seal the SHA-256 of files. The files themselves are not sent."`
	Lookup   lookupCmd   `cmd:"" help:"Show what is sealed and attached under a file's SHA-256, or a SHA-256."`
	Put      putCmd      `cmd:"" help:"Seal files and store them in the archives; prints their CIDs."`
	Get      getCmd      `cmd:"" help:"Fetch a stored file by its CID."`
	Blob     blobCmd     `cmd:"" help:"Work with files by their CID, as IPFS tools do."`
	Retain   retainCmd   `cmd:"" help:"Retain what is attached to a file's SHA-256, or a SHA-256, until a day. Never shortened."`
	Hold     holdCmd     `cmd:"" help:"Put a legal hold on what is attached to a file's SHA-256, or a SHA-256."`
	Release  releaseCmd  `cmd:"" help:"Take a legal hold off (scope admin)."`
	Archives archivesCmd `cmd:"" help:"Show the archives and their state, accept one that was restored, retire one, list what was lost (scope admin)."`
	Keys     keysCmd     `cmd:"" help:"Keep the file of API keys, on the aggregator's machine."`
}

// session is what a command works with.
type session struct {
	ctx            context.Context
	client         *client.Client
	json           bool
	stdin          io.Reader
	stdout, stderr io.Writer
}

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

func run(args, environ []string, stdout, stderr io.Writer) int {
	var cfg config
	chosen, err := daemon.Parse("verae", "Seal files, prove when they existed, and find them again.", &cfg, args, environ, stdout)
	if errors.Is(err, daemon.ErrHelp) {
		return serve.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return serve.ExitUsage
	}
	ctx, stop := serve.Signals(context.Background())
	defer stop()
	key, err := apiKey(cfg.KeyFile, environ)
	if err == nil {
		err = checkURL(cfg.URL)
	}
	if err == nil {
		err = chosen.Run(&session{
			ctx: ctx, client: &client.Client{URL: cfg.URL, Key: key}, json: cfg.JSON, stdin: os.Stdin, stdout: stdout, stderr: stderr,
		})
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(stderr, "verae:", err)
	}
	return serve.ExitCode(err)
}

// checkURL refuses what is no address, which is no server that can not be reached.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fault.New(fault.Invalid, "", "--url or VERAE_URL: %q is no URL of an aggregator: write one such as http://127.0.0.1:8080", text)
	}
	return nil
}

// apiKey is the key of a file, else of the environment. A command that needs
// none does not miss it.
func apiKey(file string, environ []string) (string, error) {
	if file == "" {
		for _, line := range environ {
			if key, ok := strings.CutPrefix(line, "VERAE_API_KEY="); ok {
				return key, nil
			}
		}
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fmt.Errorf("--api-key-file: %w", err))
	}
	return strings.TrimSpace(string(data)), nil
}
