// Command middleware seals a text over NATS, waits for its job, and looks it up
// again. It prints the job of each answer on a line of its own.
//
//	NATS_URL=nats://127.0.0.1:4222 TENANT=acme go run . 'order 1017'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: NATS_URL=... TENANT=... middleware TEXT")
	}
	if err := run(context.Background(), os.Getenv("NATS_URL"), os.Getenv("TENANT"), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, tenant, text string) error {
	nc, err := nats.Connect(url, nats.Name("middleware"))
	if err != nil {
		return err
	}
	defer nc.Close()
	job, err := ask(ctx, nc, "verae.timestamp.submit", map[string]any{
		"tenantId":        tenant,
		"idempotencyKey":  "example-go " + text, // a repetition gets the first answer
		"wait":            10,                   // seconds; 0 answers as soon as it is accepted
		"data":            text,
		"publicMetadata":  map[string]any{"source": "middleware"},
		"includeAttached": true,
	})
	if err != nil {
		return err
	}
	fmt.Println(string(job))
	var submitted struct{ SHA256, Status string }
	if err := json.Unmarshal(job, &submitted); err != nil {
		return err
	}
	if submitted.Status != "completed" {
		return fmt.Errorf("the job is %s: look it up later", submitted.Status)
	}
	found, err := ask(ctx, nc, "verae.timestamp.lookup", map[string]any{"tenantId": tenant, "sha256": submitted.SHA256})
	if err != nil {
		return err
	}
	fmt.Println(string(found))
	return nil
}

// problem is a refusal. Its kind says what to do: "transient" is worth another
// try, "invalid" is a mistake in the request.
type problem struct {
	Code, Kind, Message string
	RetryAfterMs        int64
}

func (p *problem) Error() string { return fmt.Sprintf("%s (%s): %s", p.Code, p.Kind, p.Message) }

// ask sends a request and returns its answer. It tries again what is worth it,
// which is safe because the idempotency key stays the same.
func ask(ctx context.Context, nc *nats.Conn, subject string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		answer, err := request(ctx, nc, subject, data)
		refusal, refused := errors.AsType[*problem](err)
		if err == nil || tries == 5 || refused && refusal.Kind != "transient" {
			return answer, err
		}
		pause := time.Second // a timeout, or nobody listened
		if refused {
			pause = max(pause, time.Duration(refusal.RetryAfterMs)*time.Millisecond)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func request(ctx context.Context, nc *nats.Conn, subject string, data []byte) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, 35*time.Second) // the server ends a request after 30
	defer stop()
	reply, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, err
	}
	if reply.Header.Get("Verae-Problem") == "" {
		return reply.Data, nil
	}
	p := new(problem)
	if err := json.Unmarshal(reply.Data, p); err != nil {
		return nil, err
	}
	return nil, p
}
