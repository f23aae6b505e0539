package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// asker asks a node what anybody can ask it.
type asker struct {
	base   string
	client http.Client
}

const answerTime = 5 * time.Second // a machine that does much else may take some of it

func newAsker(adminURL string) *asker {
	return &asker{base: adminURL, client: http.Client{Timeout: answerTime, Transport: &http.Transport{}}}
}

func (a *asker) stop() { a.client.CloseIdleConnections() }

// backends asks /v1/backends.
func (a *asker) backends(ctx context.Context) ([]api.Backend, error) {
	var answer api.Backends
	err := a.get(ctx, "/v1/backends", &answer)
	return answer.Backends, err
}

func (a *asker) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the admin API: %w", err)
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, 1<<20)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(body) // what can be had of the reason
		return fmt.Errorf("ask the admin API for %s: status %d: %s", path, resp.StatusCode, text)
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("ask the admin API for %s: %w", path, err)
	}
	_, err = io.Copy(io.Discard, body) // so that the connection can be kept
	return err
}
