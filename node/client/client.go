// Package client asks the admin API of a node what the commands want to know.
// It must not know how anything is done, nor how it is shown.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/api"
)

// DefaultAdmin is where a node's admin API is unless somebody says otherwise.
const DefaultAdmin = "http://127.0.0.1:9901"

const (
	maxAnswer = 64 << 20 // bytes; a node lists at most 10,000 streams
	patience  = 30 * time.Second
)

// RefusedError is the node's own answer that it will not.
type RefusedError struct {
	Status int
	api.ErrorBody
}

func (e *RefusedError) Error() string {
	if e.Status == http.StatusUnauthorized {
		return e.Message + "; --token-file names the file"
	}
	return e.Message
}

// Client asks one node.
type Client struct {
	base  string
	token string
	query url.Values // of every question
	http  http.Client
}

// New makes a client of the node whose admin API is at admin, a URL or
// host:port. tokenFile, if any, holds the token that it asks for.
func New(admin, tokenFile string) (*Client, error) {
	admin = cmp.Or(admin, DefaultAdmin)
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	u, err := url.Parse(admin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("%q is no address of an admin API; write for example %s", admin, DefaultAdmin)
	}
	c := &Client{base: u.Scheme + "://" + u.Host, http: http.Client{Timeout: patience}}
	if tokenFile == "" {
		return c, nil
	}
	data, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("token: %w; --token-file names the file that holds it", err)
	}
	if c.token = strings.TrimSpace(string(data)); c.token == "" || strings.ContainsAny(c.token, "\r\n") {
		return nil, fmt.Errorf("token: %s does not hold one line; write the token of the node's admin.token_file there", tokenFile)
	}
	return c, nil
}

// Trust has the client take a certificate that file's signers have signed, instead
// of the system's.
func (c *Client) Trust(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("signers: %w; --ca-file names the file that holds them", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return fmt.Errorf("signers: %s holds no certificate in PEM", file)
	}
	c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return nil
}

// Address is where the client asks.
func (c *Client) Address() string { return c.base }

// With is a client that asks with a query parameter more.
func (c *Client) With(name, value string) *Client {
	more := *c
	more.query = url.Values{name: {value}}
	for name, values := range c.query {
		more.query[name] = values
	}
	return &more
}

// Wait has the client wait for so long for each answer.
func (c *Client) Wait(limit time.Duration) { c.http.Timeout = limit }

// Get reads what stands at a path into v.
func (c *Client) Get(ctx context.Context, v any, path ...string) error {
	return c.do(ctx, http.MethodGet, nil, v, path...)
}

// Post sends body, which may be nil, to a path.
func (c *Client) Post(ctx context.Context, body any, path ...string) error {
	return c.do(ctx, http.MethodPost, body, nil, path...)
}

// PostFor is Post where the answer is read into v.
func (c *Client) PostFor(ctx context.Context, v any, path ...string) error {
	return c.do(ctx, http.MethodPost, nil, v, path...)
}

// Delete takes away what stands at a path.
func (c *Client) Delete(ctx context.Context, path ...string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, path...)
}

// do puts one question. The parts of a path are escaped.
func (c *Client) do(ctx context.Context, method string, body, v any, path ...string) error {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode %T: %w", body, err)
		}
		send = bytes.NewReader(data)
	}
	req, err := c.request(ctx, method, send, path...)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreached(err)
	}
	defer resp.Body.Close()
	return read(c.base, resp, v)
}

func (c *Client) request(ctx context.Context, method string, body io.Reader, path ...string) (*http.Request, error) {
	at := c.base + "/v1"
	for _, p := range path {
		at += "/" + url.PathEscape(p)
	}
	if len(c.query) > 0 {
		at += "?" + c.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err == nil && c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, err
}

// unreached says what to try where nobody answers.
func (c *Client) unreached(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	var unknown x509.UnknownAuthorityError
	hint := "is it running? --admin or STARLING_ADMIN says where its admin API is"
	switch {
	case errors.As(err, &unknown):
		hint = "--ca-file names the file of who signed its certificate"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		hint = "it speaks no TLS there: write http:// in --admin"
	case strings.Contains(err.Error(), "malformed HTTP response"), errors.Is(err, io.EOF) && strings.HasPrefix(c.base, "http://"):
		hint = "does it speak TLS there? Then write https:// in --admin"
	}
	return fmt.Errorf("no node answers at %s (%w); %s", c.base, err, hint)
}

func read(base string, resp *http.Response, v any) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("the answer of %s broke off: %w", base, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("the answer of %s is longer than %d bytes", base, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		var refused api.Error
		if resp.Header.Get("X-Starling-Error") == "" || json.Unmarshal(data, &refused) != nil || refused.Error.Code == "" {
			return fmt.Errorf("%s answered %s, and not as starling does; is that its admin API?", base, resp.Status)
		}
		return &RefusedError{Status: resp.StatusCode, ErrorBody: refused.Error}
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("the answer of %s is not as expected (%w); is it a starling of another version?", base, err)
	}
	return nil
}
