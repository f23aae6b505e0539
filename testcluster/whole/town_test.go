// Package whole holds what one node says and does for all nodes of its cluster. It is
// a package of its own so that its tests run beside testcluster's own.
package whole

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
	"github.com/starling-lb/starling/testcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// begin starts three nodes with two backends, and waits until one of them hears all.
func begin(t *testing.T, edit func(*node.Config)) *testcluster.Cluster {
	t.Helper()
	c, err := testcluster.Start(t.Context(), testcluster.Options{Nodes: 3, Backends: 2, Config: edit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Stop(ctx) // some of its nodes were killed
	})
	eventually(t, func() string {
		s := status(t, c, 0)
		return all(s.Nodes, func(n api.NodeAnswer) string {
			if n.Status == nil || !n.Status.Cluster.MetaQuorum || n.Status.Node.Agreed != api.ActiveNode {
				return fmt.Sprintf("%s: %q, %+v", n.Name, n.Error, n.Status)
			}
			return ""
		})
	})
	return c
}

// all is what is wrong with the first of three answers with which anything is.
func all(nodes []api.NodeAnswer, wrong func(api.NodeAnswer) string) string {
	if len(nodes) != 3 {
		return fmt.Sprintf("%d nodes were asked", len(nodes))
	}
	for _, n := range nodes {
		if text := wrong(n); text != "" {
			return text
		}
	}
	return ""
}

func admin(t *testing.T, c *testcluster.Cluster, i int) *client.Client {
	t.Helper()
	one, err := client.New(c.Node(i).AdminURL(), "")
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func status(t *testing.T, c *testcluster.Cluster, i int) (s api.Status) {
	t.Helper()
	if err := admin(t, c, i).With("scope", "cluster").Get(t.Context(), &s, "status"); err != nil {
		t.Fatal(err)
	}
	return s
}

func streams(t *testing.T, c *testcluster.Cluster, i int, limit string) (l api.StreamList) {
	t.Helper()
	if err := admin(t, c, i).With("scope", "cluster").With("limit", limit).Get(t.Context(), &l, "streams"); err != nil {
		t.Fatal(err)
	}
	return l
}

// stream begins a long answer by a node.
func stream(t *testing.T, c *testcluster.Cluster, i int) {
	t.Helper()
	body := `{"model":"demo","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"hello"}]}`
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Node(i).URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	once := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := once.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

// eventually waits until look finds nothing wrong.
func eventually(t *testing.T, look func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(patience); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatal(wrong)
		}
	}
}
