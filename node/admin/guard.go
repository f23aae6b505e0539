package admin

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/valyala/fasthttp"
)

const maxToken = 4 << 10 // bytes; a longer file is not a token's

// access says who may ask a route.
type access int

const (
	operators access = iota // whoever knows the token, if there is one
	scrapers                // as operators with metrics_token, else everyone
	everyone                // also a check by an address, with any Host
)

// guard decides who may ask. A route that asks for no token is protected from
// web pages where it can be: on loopback, a page that had its own name resolved
// to 127.0.0.1 is told by its Host.
type guard struct {
	token    *[sha256.Size]byte // nil: none is asked
	scrape   bool               // scrapers need it too
	loopback bool
	host     string // of the configured address
}

func newGuard(cfg Config) (guard, error) {
	g := guard{scrape: cfg.MetricsToken, loopback: loopbackAddress(cfg.Address)}
	g.host, _, _ = net.SplitHostPort(cfg.Address)
	if cfg.TokenFile == "" {
		if !g.loopback {
			return g, fmt.Errorf("%s can be reached from outside; set token_file, or listen on 127.0.0.1", cfg.Address)
		}
		return g, nil
	}
	token, err := readToken(cfg.TokenFile)
	sum := sha256.Sum256(token)
	g.token = &sum
	return g, err
}

func readToken(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return nil, err
	}
	token, err := Token(text)
	if err != nil {
		err = fmt.Errorf("%s %w", path, err)
	}
	return token, err
}

// Token is what a file of that text has for a token, or why it can have none.
func Token(text []byte) (token []byte, err error) {
	token = bytes.TrimSpace(text)
	switch {
	case len(text) > maxToken:
		err = fmt.Errorf("is longer than %d bytes; it should hold one line", maxToken)
	case len(token) == 0:
		err = errors.New("is empty; put a line of random characters into it, for example from: openssl rand -hex 32")
	case bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		err = errors.New("holds more than one word of printable ASCII; a header can carry nothing else")
	}
	return token, err
}

// admit returns nil for who may ask.
func (g *guard) admit(r *fasthttp.Request, who access) error {
	if err := g.origin(r); err != nil {
		return err
	}
	if who == everyone {
		return nil
	}
	if g.token != nil && (who == operators || g.scrape) {
		return g.bearer(string(r.Header.Peek(fasthttp.HeaderAuthorization)))
	}
	if g.loopback {
		return g.named(r)
	}
	return nil
}

// bearer compares hashes, so that the time it takes tells nothing of the
// token, not even its length.
func (g *guard) bearer(header string) error {
	scheme, token, _ := strings.Cut(header, " ")
	if header == "" || !strings.EqualFold(scheme, "Bearer") {
		return refuse(Unauthorized, "a token is needed: send the header Authorization: Bearer TOKEN with what the file of admin.token_file holds")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if subtle.ConstantTimeCompare(sum[:], g.token[:]) != 1 {
		return refuse(Unauthorized, "the token is not this node's: send what the file of admin.token_file held when the node started")
	}
	return nil
}

// named refuses a Host that is not ours. Without one it was no browser.
func (g *guard) named(r *fasthttp.Request) error {
	host := hostname(string(r.URI().Host()))
	if host == "" || loopbackHost(host) || strings.EqualFold(host, g.host) {
		return nil
	}
	return refuse(Forbidden, "Host %q is no name of this address; ask for %s, or set admin.token_file, with which any name will do", host, g.host)
}

// origin refuses what a page of another origin sends. It may lead a browser here, as
// by a link; what else it reads it would not be shown, but the node would have worked
// for it: browsers say so in Sec-Fetch-Site.
func (g *guard) origin(r *fasthttp.Request) error {
	switch site := string(r.Header.Peek("Sec-Fetch-Site")); site {
	case "", "same-origin", "none":
	default:
		if string(r.Header.Peek("Sec-Fetch-Dest")) != "document" {
			return refuse(Forbidden, "Sec-Fetch-Site %q: a page of another origin asks; open this address itself", site)
		}
	}
	from := string(r.Header.Peek("Origin"))
	if from == "" || r.Header.IsGet() || r.Header.IsHead() {
		return nil
	}
	_, authority, _ := strings.Cut(from, "://")
	if authority == "" || !strings.EqualFold(authority, string(r.URI().Host())) {
		return refuse(Forbidden, "Origin %q is another site; only pages of this address may change something", from)
	}
	return nil
}

// hostname is a Host header without its port and brackets.
func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// loopbackAddress tells whether only this machine can reach a host:port. A
// name other than localhost can be made to mean anything, so it does not count.
func loopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}
