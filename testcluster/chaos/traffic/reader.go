package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/testcluster/chaos/history"
)

const (
	readPace = 100 * time.Millisecond // between two questions
	readTime = time.Second            // for one
)

// reader asks nodes where regulars live, as long as the run lasts.
func (t *Traffic) reader() {
	dice := rand.New(rand.NewPCG(t.opts.Seed, 1<<40))
	for t.wait(readPace) {
		admins := t.opts.Admins()
		if len(admins) == 0 {
			continue
		}
		at := admins[dice.IntN(len(admins))]
		// Few are asked often: the order of answers about one session is what is judged.
		session := fmt.Sprintf("regular-%d-%d", t.opts.Seed, dice.IntN(min(8, t.opts.Regulars)))
		if r, ok := t.read(at, session); ok {
			t.mu.Lock()
			t.reads = append(t.reads, r)
			t.mu.Unlock()
		}
	}
}

// read asks one node; what is no answer is not one.
func (t *Traffic) read(at history.Entry, session string) (history.Read, bool) {
	ctx, cancel := context.WithTimeout(t.ctx, readTime)
	defer cancel()
	r := history.Read{Session: session, Node: at.Node, Began: time.Now()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+"/v1/sessions/"+t.opts.Pool+"/"+url.PathEscape(session), nil)
	if err != nil {
		return r, false
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return r, false
	}
	defer resp.Body.Close()
	var s api.Session
	body := io.LimitReader(resp.Body, 1<<16)
	if resp.StatusCode == http.StatusOK && json.NewDecoder(body).Decode(&s) != nil {
		return r, false
	}
	_, _ = io.Copy(io.Discard, body) // so that the connection can be kept
	r.Ended, r.Backend, r.Epoch, r.Guess = time.Now(), s.Backend, s.Epoch, s.Provisional
	told := resp.StatusCode == http.StatusOK && s.Backend != "" // while a change is on its way nobody may say
	return r, told || resp.StatusCode == http.StatusNotFound
}
