package admin

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestWhoMayAsk(t *testing.T) {
	const (
		good = "Authorization: Bearer s3cret"
		evil = "Host: evil.example"
	)
	type cfg struct {
		address        string
		token, metrics bool
	}
	open := cfg{address: "127.0.0.1:0"}
	token := cfg{address: "127.0.0.1:0", token: true}
	outside := cfg{address: "0.0.0.0:0", token: true}
	closed := cfg{address: "0.0.0.0:0", token: true, metrics: true}
	for _, c := range []struct {
		cfg     cfg
		request string
		fields  []string
		want    Code // empty: admitted
	}{
		{open, "GET /v1/status", nil, ""},
		{open, "GET /v1/status", []string{"Authorization: Bearer whatever"}, ""},
		{open, "GET /v1/status", []string{evil}, Forbidden},
		{open, "GET /metrics", []string{evil}, Forbidden},
		{open, "GET /nothing", []string{evil}, Forbidden},
		{open, "GET /healthz", []string{evil}, ""},
		{open, "GET /readyz", []string{evil}, ""},
		{open, "GET /v1/status", []string{"Host: localhost"}, ""},
		{open, "GET /v1/status", []string{"Host: LOCALHOST:9901"}, ""},
		{open, "GET /v1/status", []string{"Host: 127.9.9.9:1"}, ""},
		{open, "GET /v1/status", []string{"Host: [::1]:9901"}, ""},
		{open, "GET /v1/status", []string{"Host: [::1]"}, ""},
		{open, "GET /v1/status", []string{"Host: localhost.evil.example"}, Forbidden},
		{open, "GET /v1/status", []string{"Host: 127.0.0.1.evil.example"}, Forbidden},
		{open, "GET /v1/status", []string{"Host: 192.0.2.1"}, Forbidden},
		{open, "POST /v1/status", []string{"Origin: http://evil.example"}, Forbidden},
		{open, "POST /v1/status", []string{"Origin: null"}, Forbidden},
		{open, "DELETE /v1/status", []string{"Origin: http://localhost:3000", "Host: localhost:9901"}, Forbidden},
		{open, "POST /v1/status", []string{"Origin: http://localhost:9901", "Host: localhost:9901"}, MethodNotAllowed},
		{open, "POST /v1/status", nil, MethodNotAllowed},
		{open, "GET /v1/status", []string{"Origin: http://evil.example"}, ""},
		{open, "GET /v1/status", []string{"Sec-Fetch-Site: same-origin"}, ""},
		{open, "GET /v1/status", []string{"Sec-Fetch-Site: none", "Sec-Fetch-Dest: document"}, ""},
		{open, "GET /v1/status", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"}, Forbidden},
		{open, "GET /v1/events", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: empty"}, Forbidden},
		{open, "GET /v1/events", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: empty"}, Forbidden},
		{open, "GET /v1/events", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"}, Forbidden},
		{open, "GET /main.js", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: script"}, Forbidden},
		{open, "GET /v1/status", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"}, ""},
		{open, "POST /v1/status", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document", "Origin: http://evil.example"}, Forbidden},

		{token, "GET /v1/status", nil, Unauthorized},
		{token, "GET /v1/status", []string{good}, ""},
		{token, "GET /v1/status", []string{good, evil}, ""},
		{token, "GET /v1/status", []string{"Authorization: bearer  s3cret"}, ""},
		{token, "GET /v1/status", []string{"Authorization: Bearer s3cre"}, Unauthorized},
		{token, "GET /v1/status", []string{"Authorization: Bearer s3cretx"}, Unauthorized},
		{token, "GET /v1/status", []string{"Authorization: Bearer"}, Unauthorized},
		{token, "GET /v1/status", []string{"Authorization: Basic s3cret"}, Unauthorized},
		{token, "GET /v1/status", []string{"Authorization: s3cret"}, Unauthorized},
		{token, "GET /nothing", nil, Unauthorized},
		{token, "POST /v1/status", nil, Unauthorized},
		{token, "GET /nothing", []string{good}, NotFound},
		{token, "POST /v1/status", []string{good, "Origin: http://evil.example"}, Forbidden},
		{token, "GET /metrics", nil, ""},
		{token, "GET /metrics", []string{evil}, Forbidden},
		{token, "GET /healthz", nil, ""},

		{outside, "GET /v1/status", nil, Unauthorized},
		{outside, "GET /v1/status", []string{good, "Host: lb-1.example:9901"}, ""},
		{outside, "GET /metrics", []string{"Host: lb-1.example:9901"}, ""},
		{closed, "GET /metrics", nil, Unauthorized},
		{closed, "GET /metrics", []string{good}, ""},
		{closed, "GET /healthz", []string{evil}, ""},
		{closed, "GET /readyz", []string{evil}, ""},
	} {
		name := strings.Join(append([]string{c.cfg.address, c.request}, c.fields...), ", ")
		t.Run(name, func(t *testing.T) {
			config := Config{Address: c.cfg.address, MetricsToken: c.cfg.metrics}
			if c.cfg.token {
				config.TokenFile = file(t, "s3cret\n")
			}
			s := decide(t, config)
			got := s.ask(c.request, c.fields...)
			if got != c.want {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

// decision is a server that is asked without a socket.
type decision struct{ *Server }

func decide(t *testing.T, cfg Config) decision {
	t.Helper()
	s, err := New(cfg, newRig().options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cancel)
	return decision{s}
}

func (d decision) ask(request string, fields ...string) Code {
	var req fasthttp.Request
	method, target, _ := strings.Cut(request, " ")
	req.Header.SetMethod(method)
	req.SetRequestURI(target)
	req.Header.SetHost("127.0.0.1:9901")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Set(name, value)
	}
	var ctx fasthttp.RequestCtx
	ctx.Init(&req, nil, nil)
	d.serve(&ctx)
	return Code(ctx.Response.Header.Peek("X-Starling-Error"))
}

func TestUnauthorizedOnTheWire(t *testing.T) {
	r := newRig()
	r.cfg.TokenFile = file(t, "  s3cret\r\n")
	s := r.start(t)
	got := ask(t, s, "GET /v1/status")
	got.wantError(t, Unauthorized, "Authorization: Bearer TOKEN")
	if h := got.Header.Get("WWW-Authenticate"); h != `Bearer realm="starling"` {
		t.Errorf("WWW-Authenticate is %q", h)
	}
	wrong := ask(t, s, "GET /v1/status", "Authorization: Bearer hunter2")
	wrong.wantError(t, Unauthorized, "not this node's")
	if log := r.log.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "s3cret") {
		t.Errorf("a token is in the log:\n%s", log)
	}
	if got := ask(t, s, "GET /v1/status", "Authorization: Bearer s3cret"); got.StatusCode != 200 {
		t.Errorf("with the token: status %d", got.StatusCode)
	}
}

// A page cannot slip a good name in beside its own.
func TestAbsoluteTarget(t *testing.T) {
	s := newRig().start(t)
	for target, want := range map[string]int{
		"http://evil.example/v1/status": 403,
		"http://localhost/v1/status":    200,
	} {
		c := dial(t, s)
		send(t, c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target)
		if got := receive(t, c); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", target, got.StatusCode, want)
		}
	}
	c := dial(t, s)
	send(t, c, "GET /v1/status HTTP/1.0\r\n\r\n") // no browser leaves Host out
	if got := receive(t, c); got.StatusCode != 200 {
		t.Errorf("HTTP/1.0 without Host: status %d", got.StatusCode)
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		cfg   Config
		words string
	}{
		"no token outside": {Config{Address: ":9901"}, "token_file"},
		"a name outside":   {Config{Address: "lb-1.example:9901"}, "token_file"},
		"missing token":    {Config{Address: "127.0.0.1:0", TokenFile: filepath.Join(dir, "no")}, "no such file"},
		"empty token":      {Config{Address: "127.0.0.1:0", TokenFile: file(t, " \n")}, "is empty"},
		"two words":        {Config{Address: "127.0.0.1:0", TokenFile: file(t, "a b")}, "more than one word"},
		"not ASCII":        {Config{Address: "127.0.0.1:0", TokenFile: file(t, "schlüssel")}, "printable ASCII"},
		"huge token":       {Config{Address: "127.0.0.1:0", TokenFile: file(t, strings.Repeat("x", 5000))}, "longer than 4096"},
		"no certificate":   {Config{Address: "127.0.0.1:0", TLS: TLSConfig{CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k")}}, "no such file"},
		"half a pair":      {Config{Address: "127.0.0.1:0", TLS: TLSConfig{KeyFile: filepath.Join(dir, "k")}}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(c.cfg, newRig().options())
			if err == nil || s != nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want an error that says %q", err, c.words)
			}
		})
	}
}
