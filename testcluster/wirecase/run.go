package wirecase

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// Target is a proxy, and the stage whose backends it forwards to.
type Target struct {
	Addr  string
	Stage *Stage

	// Patience is for what comes late on a machine that does much else: for so long
	// a case that does not hold is looked at again. What holds costs nothing more.
	Patience time.Duration
}

// linger is how long a client stays after its last response, to see whether
// the connection is closed or more bytes come.
const linger = 350 * time.Millisecond

// sanity is a plain GET: in front of a proxy that serves nothing, every case
// that wants a refusal would pass.
const sanity = `{"id": "sanity", "level": "must", "reason": "a plain GET arrives and its 200 comes back",
	"client": [{"send": "GET /{{T}} HTTP/1.1\r\nHost: lb.example\r\n\r\n"}],
	"accept": [{"name": "served", "client": {"statuses": ["200"], "body": "ok", "complete": true},
		"backend": {"requests": 1, "complete_requests": 1, "clean": true, "method": "GET", "target": ["/{{T}}"]}}]}`

// Sane plays a plain GET; run it before any case.
func Sane(ctx context.Context, t Target) error {
	c, err := Parse([]byte(sanity))
	if err != nil {
		return err
	}
	return Run(ctx, c, t)
}

// Run plays the case and returns nil if one of its results holds, a *Failure
// if none does. Cases may run side by side on one target.
func Run(ctx context.Context, c Case, t Target) error {
	token := newToken()
	c, err := c.filled(token)
	if err != nil {
		return err
	}
	p := t.Stage.enter(token, c)
	defer t.Stage.leave(token)
	client, err := Dial(ctx, t.Addr, c.Methods...)
	if err != nil {
		return fmt.Errorf("wire case %s: %w", c.ID, err)
	}
	defer client.Close()
	sent := playClient(ctx, c, client, max(c.timeout(), t.Patience))
	look := func() error {
		return c.judge(outcome{began: client.Began, sent: sent, client: client.Seen(), backend: p.seen()})
	}
	err = look()
	for late := time.Now().Add(t.Patience); err != nil && !isLate(err) && time.Now().Before(late) && pause(ctx, linger); {
		err = look() // more may have come, or the end
	}
	return err
}

// newToken returns 15 letters and digits: lengths in the cases count on it.
func newToken() string { return "wc" + strings.ToLower(rand.Text()[:12]) + "x" }

// playClient returns what was sent; each response has a time to come in. That a
// proxy closes in the middle is a result and no error.
func playClient(ctx context.Context, c Case, client *Client, each time.Duration) []byte {
	var sent []byte
	received := 0
	for _, s := range c.Client {
		switch {
		case s.WaitMS > 0:
			pause(ctx, ms(s.WaitMS))
		case s.RecvResponse:
			received++
			if !client.Await(ctx, received, each) {
				return sent
			}
		case s.HalfClose:
			_ = client.HalfClose()
		case s.Close == Fin:
			client.Close()
		case s.Close == Reset:
			_ = client.Reset()
		default:
			sent = append(sent, s.bytes()...)
			_ = client.Send(s.bytes())
		}
	}
	client.Await(ctx, c.Responses, each)
	pause(ctx, linger)
	return sent
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
