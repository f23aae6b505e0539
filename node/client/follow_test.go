package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// telling is a node that has three events.
func telling(t *testing.T, body string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/v1/events" {
			t.Errorf("asked %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, ": asked for %s behind %q\n\n%s", r.URL.Query().Get("recent"), r.Header.Get("Last-Event-ID"), body)
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestFollow(t *testing.T) {
	c := telling(t, "id: a-1\nevent: state\ndata: {\"id\":\"a-1\",\"kind\":\"state\",\"backend\":\"b1\"}\n\n: live\n\nid: a-2\nevent: move\ndata: {\"id\":\"a-2\",\"kind\":\"move\",\"sessions\":3}\n\n")
	var got []string
	err := c.Follow(t.Context(), Follower{Recent: 5, Take: func(e api.Event) { got = append(got, e.ID+" "+string(e.Kind)) }, Live: func() { got = append(got, "live") }})
	if err != nil || strings.Join(got, ", ") != "a-1 state, live, a-2 move" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFollowEnds(t *testing.T) {
	c := telling(t, "data: {}\n\ndata: {}\n\n")
	ctx, end := context.WithCancel(t.Context())
	if err := c.Follow(ctx, Follower{Take: func(api.Event) { end() }}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("its own end: %v", err)
	}
	if err := telling(t, "data: {]\n\n").Follow(t.Context(), Follower{Take: func(api.Event) {}}); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("what is no event: %v", err)
	}
	refusing := ask(t, &node{status: 401, code: "unauthorized", answer: `{"error":{"code":"unauthorized","message":"a token is needed"}}`}, "")
	if err := refusing.Follow(t.Context(), Follower{}); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("refused: %v", err)
	}
}
