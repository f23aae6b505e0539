package wirecase

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
)

// loops are the ways to carry bytes that everything here runs on.
func loops() []loop {
	return []loop{
		{"portable", starling},
	}
}

// starling is a node in this process.
func starling(t *testing.T, config string) running {
	t.Helper()
	cfg, err := node.Parse("wirecase.yaml", []byte(config), os.LookupEnv)
	if err != nil {
		t.Fatalf("%v in\n%s", err, config)
	}
	n, err := node.New(cfg, node.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Logf("stop: %v", err) // streams that an experiment left open are cut, which is said
		}
	})
	return running{addr: n.ProxyAddrs()[0], admin: n.AdminAddr()}
}
