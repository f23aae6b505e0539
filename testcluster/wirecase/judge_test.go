package wirecase

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every key of the judge has a row: an answer for which it holds, and one for
// which it must not, with the words of the failure.
func TestClientKeys(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	const switching = "HTTP/1.1 101 Switching\r\n\r\n"
	for _, tt := range []struct {
		want      string // the client's part of the accepted result
		good, bad []Step
		failure   string
	}{
		{`"status": ["200"]`, says(ok), says("HTTP/1.1 201 OK\r\nContent-Length: 0\r\n\r\n"), "status: got 201"},
		{`"status": ["4xx"]`, says("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"), says("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), "status: got 404"},
		{`"status": ["5xx"]`, says("HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n"), says(ok), "status: got 200"},
		{`"status": ["200"]`, says(ok), []Step{{Close: Fin}}, "no final response"},
		{`"statuses": ["200"]`, says(ok), says(ok + ok), "statuses: got [200 200]"},
		{`"statuses": ["200", "200"]`, says(ok + ok), says(ok), "statuses: got [200]"},
		{`"closed_without_response": true`, []Step{{Close: Fin}}, says(ok), "closed_without_response"},
		{`"closed_without_response": true`, []Step{{Close: Reset}}, []Step{{WaitMS: 3000}}, "closed_without_response"},
		{`"interim": [103]`, says("HTTP/1.1 103 Early\r\n\r\n" + ok), says(ok), "interim: got []"},
		{`"interim": []`, says(ok), says("HTTP/1.1 103 Early\r\n\r\n" + ok), "interim: got [103]"},
		{`"no_interim": true`, says(ok), says("HTTP/1.1 100 Continue\r\n\r\n" + ok), "no_interim"},
		{`"version": "HTTP/1.1"`, says(ok), says("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), "version"},
		{`"header_lines": {"X": ["a", "b"]}`, says("HTTP/1.1 200 OK\r\nX: a\r\nx: b\r\nContent-Length: 0\r\n\r\n"), says("HTTP/1.1 200 OK\r\nX: a, b\r\nContent-Length: 0\r\n\r\n"), "header_lines"},
		{`"header_joined": {"X": "a, b"}`, says("HTTP/1.1 200 OK\r\nX: a\r\nX: b\r\nContent-Length: 0\r\n\r\n"), says("HTTP/1.1 200 OK\r\nX: b,a\r\nContent-Length: 0\r\n\r\n"), "header_joined"},
		{`"header_has": {"X": "b"}`, says("HTTP/1.1 200 OK\r\nX: a , B\r\nContent-Length: 0\r\n\r\n"), says("HTTP/1.1 200 OK\r\nX: bb\r\nContent-Length: 0\r\n\r\n"), "header_has"},
		{`"header_absent": ["X"]`, says(ok), says("HTTP/1.1 200 OK\r\nx:\r\nContent-Length: 0\r\n\r\n"), "header_absent"},
		{`"body": "ok"`, says(ok), says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"), "body: got"},
		{`"complete": true`, says(ok), append(says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), Step{Close: Fin}), "complete: want true"},
		{`"complete": false`, append(says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), Step{Close: Fin}), says(ok), "complete: want false"},
		// A body that hangs is not visibly cut off; one that ends by close is cut off by a reset.
		{`"complete": false`, append(says("HTTP/1.1 200 OK\r\n\r\nok"), Step{WaitMS: 50}, Step{Close: Reset}), says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), "complete: want false"},
		{`"complete": true`, append(says("HTTP/1.1 200 OK\r\n\r\nok"), Step{Close: Fin}), append(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), Step{Close: Fin}), "complete: want true"},
		{`"closed": true`, append(says(ok), Step{Close: Fin}), says(ok), "closed: want true"},
		{`"closed": false`, says(ok), append(says(ok), Step{Close: Reset}), "closed: want false"},
		{`"wire_not": "secret"`, says(ok), says("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"), "wire_not"},
		{`"after_101": "hi"`, says(switching + "hi"), says(switching + "hi!"), "after_101"},
		{`"after_101": ""`, says(switching), says(ok), "after_101"},
		{`"body_starts_within_ms": 200`, says(ok), append(says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), Step{WaitMS: 300}, Step{Send: "ok"}), "body_starts_within_ms"},
		// In every case a malformed response is a failure.
		{`"status": ["204"]`, says("HTTP/1.1 204 No\r\n\r\n"), says("HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n"), "malformed response"},
		{`"status": ["200"]`, says(ok), says(ok + "more"), "no complete response head"},
		{`"status": ["200"]`, says(ok), says("HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"), "malformed response: line end"},
		{`"status": ["200"]`, says(ok), says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"), "malformed response: chunk size"},
		{`"status": ["200"]`, says(ok), says("HTTP/1.1 103 Early\r\nContent-Length: 0\r\n\r\n" + ok), "malformed response: Content-Length"},
	} {
		t.Run(tt.want+" "+tt.failure, func(t *testing.T) {
			t.Parallel()
			accept := `{"client": {` + tt.want + `}, "backend": {"requests": 0}}`
			for _, answer := range [][]Step{tt.good, tt.bad} {
				liar := started(t, func(c *Conn) {
					if _, err := c.Next(); err == nil {
						perform(c, answer)
					}
				})
				failure := ""
				if &answer[0] == &tt.bad[0] {
					failure = tt.failure
				}
				wantFailure(t, accept, Target{Addr: liar.Addr(), Stage: NewStage()}, failure)
			}
		})
	}
}

// What the liar sends to the backend in place of the client's GET; T is the
// token.
func TestBackendKeys(t *testing.T) {
	const plain = "GET /T HTTP/1.1\r\nHost: h\r\n\r\n"
	post := func(more, body string) []Step { return says("POST /T HTTP/1.1\r\nHost: h\r\n" + more + "\r\n" + body) }
	for _, tt := range []struct {
		want      string
		good, bad []Step
		failure   string
	}{
		{`"requests": 1`, says(plain), says(plain + plain), "requests: got 2"},
		{`"requests": 1`, says(plain), nil, "requests: got 0"},
		{`"max_requests": 1`, says(plain), says(plain + plain), "max_requests"},
		{`"complete_requests": 0`, post("Content-Length: 3\r\n", "ok"), post("Content-Length: 2\r\n", "ok"), "complete_requests: got 1"},
		{`"complete_requests": 1`, post("Content-Length: 2\r\n", "ok"), append(post("Content-Length: 3\r\n", "ok"), Step{Close: Fin}), "complete_requests: got 0"},
		{`"clean": true`, says(plain), says("GET /T HTTP/1.1\r\nHost : h\r\n\r\n"), "clean"},
		{`"clean": true`, post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\n\r\n"), post("Transfer-Encoding: chunked\r\n", "1\na\r\n0\r\n\r\n"), "clean"},
		{`"method": "GET"`, says(plain), says("PUT /T HTTP/1.1\r\nHost: h\r\n\r\n"), "method"},
		{`"target": ["/{{T}}", "x"]`, says(plain), says("GET /T/ HTTP/1.1\r\nHost: h\r\n\r\n"), "target"},
		{`"target": ["/{{T}}"]`, says(plain), nil, "no request came"},
		{`"header_lines": {"Host": ["h"]}`, says(plain), says("GET /T HTTP/1.1\r\nHost: i\r\n\r\n"), "header_lines"},
		{`"header_joined": {"Host": "h"}`, says(plain), says("GET /T HTTP/1.1\r\nHost: i\r\n\r\n"), "header_joined"},
		{`"header_has": {"Host": "H"}`, says(plain), says("GET /T HTTP/1.1\r\nHost: i\r\n\r\n"), "header_has"},
		{`"header_absent": ["X"]`, says(plain), says("GET /T HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n"), "header_absent"},
		{`"body": "ok"`, post("Transfer-Encoding: chunked\r\n", "1\r\no\r\n1\r\nk\r\n0\r\n\r\n"), post("Content-Length: 2\r\n", "no"), "body"},
		{`"body_starts_within_ms": 200`, post("Content-Length: 2\r\n", "ok"), append(post("Content-Length: 2\r\n", ""), Step{WaitMS: 300}, Step{Send: "ok"}), "body_starts_within_ms"},
		{`"no_target_contains": "smug"`, says(plain), says(plain + "GET /smuggled-T HTTP/1.1\r\nHost: h\r\n\r\n"), "no_target_contains"},
		{`"wire_not": ["X-B", "X-C"]`, says(plain), says(plain + "GET /T HTTP/1.1\r\nHost: h\r\nX-C: y\r\n\r\n"), "wire_not"},
	} {
		t.Run(tt.want+" "+tt.failure, func(t *testing.T) {
			t.Parallel()
			accept := `{"client": {"status": ["200"]}, "backend": {` + tt.want + `}}`
			wantFailure(t, accept, forger(t, tt.good), "")
			wantFailure(t, accept, forger(t, tt.bad), tt.failure)
		})
	}
}

// One result that holds is enough, and none may be made of parts of two.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	target := forger(t, says("GET /T HTTP/1.1\r\nHost: h\r\n\r\n"))
	wantFailure(t, `{"name": "a", "client": {"status": ["400"]}}, {"name": "b", "client": {"status": ["200"]}}`, target, "")
	wantFailure(t, `{"name": "a", "client": {"status": ["400"]}, "backend": {"requests": 1}}, {"name": "b", "client": {"status": ["200"]}, "backend": {"requests": 0}}`,
		target, `not "b": requests`)
}

func TestSaneRefusesWhatServesNothing(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	deaf := started(t, func(*Conn) {})
	rude := started(t, func(c *Conn) { _, _ = c.Next(); _ = c.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") })
	for _, b := range []*Backend{deaf, rude} {
		if Sane(ctx, Target{Addr: b.Addr(), Stage: NewStage()}) == nil {
			t.Error("it passed for a proxy")
		}
	}
}

// forger is a proxy that sends its own steps to the backend, whatever the
// client asked, and then answers 200 by itself.
func forger(t *testing.T, steps []Step) Target {
	stage := NewStage()
	behind := started(t, stage.Serve)
	token := regexp.MustCompile(`wc[a-z0-9]{12}x`)
	front := started(t, func(c *Conn) {
		m, err := c.Next()
		if err != nil {
			return
		}
		up, err := Dial(c.ctx, behind.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		for _, s := range steps {
			switch {
			case s.WaitMS > 0:
				c.Pause(ms(s.WaitMS))
			case s.Close != "":
				_ = up.HalfClose()
			default:
				_ = up.Send(strings.NewReplacer("/T", "/"+token.FindString(m.Target), "-T", "-"+token.FindString(m.Target)).Replace(string(s.Send)))
			}
		}
		_ = c.Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		c.Gone()
	})
	return Target{Addr: front.Addr(), Stage: stage}
}

func says(s string) []Step { return []Step{{Send: Latin(s)}} }

func perform(c *Conn, steps []Step) {
	for _, s := range steps {
		switch {
		case s.WaitMS > 0:
			c.Pause(ms(s.WaitMS))
		case s.Close == Fin:
			_ = c.Fin()
		case s.Close == Reset:
			_ = c.Reset()
		default:
			_ = c.Send(s.bytes())
		}
	}
	c.Gone()
}

// wantFailure runs a plain GET; failure is a part of its report, "" for none.
func wantFailure(t *testing.T, accept string, target Target, failure string) {
	t.Helper()
	c, err := Parse(fmt.Appendf(nil, `{"id": "x", "level": "must", "timeout_ms": 700, "accept": [%s],
		"client": [{"send": "GET /{{T}} HTTP/1.1\r\nHost: h\r\n\r\n"}]}`, accept))
	if err != nil {
		t.Fatal(err)
	}
	timed(t, func() error { return judged(Run(deadline(t), c, target), failure) })
}

// judged says what is wrong with a verdict; failure is as wantFailure's.
func judged(err error, failure string) error {
	var f *Failure
	switch {
	case failure == "" && err != nil:
		return fmt.Errorf("it must hold: %w", err)
	case failure != "" && !errors.As(err, &f):
		return fmt.Errorf("got %w, want a failure with %q", err, failure)
	case failure != "" && !strings.Contains(err.Error(), failure):
		return fmt.Errorf("the failure does not say %q: %w", failure, err)
	}
	return nil
}

// started is a raw backend for the length of the test.
func started(t *testing.T, serve func(*Conn)) *Backend {
	t.Helper()
	b := NewBackend(serve)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// deadline bounds everything a test waits for.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
