package proxy

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"
)

const expecting = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"

// A client is told to go on once: by the backend, or after a second by us.
func TestExpect(t *testing.T) {
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	silent := func(c net.Conn, in *bufio.Reader) { // knows no 100
		readMessage(in)
		io.WriteString(c, okAnswer)
	}
	tests := []struct {
		name    string
		backend func(net.Conn, *bufio.Reader)
		waits   bool // the client, until it is told to go on
		first   string
		ours    bool // the second passes
	}{
		{"the backend says so", func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			io.WriteString(c, goOn)
			io.ReadFull(in, make([]byte, 3))
			io.WriteString(c, okAnswer)
		}, true, goOn, false},
		{"twice", func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			io.WriteString(c, goOn+goOn)
			io.ReadFull(in, make([]byte, 3))
			io.WriteString(c, okAnswer)
		}, true, goOn, false},
		{"the backend says nothing", silent, true, goOn, true},
		{"the backend says so too late", func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			io.ReadFull(in, make([]byte, 3)) // comes by our leave
			io.WriteString(c, goOn+okAnswer)
		}, true, goOn, true},
		{"something else first", func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
			readMessage(bufio.NewReader(io.MultiReader(strings.NewReader("x\r\nContent-Length: 3\r\n\r\n"), in)))
			io.WriteString(c, okAnswer)
		}, true, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", true},
		{"the client does not wait", silent, false, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, playwright{"p": tt.backend}, nil)
			c := s.dial()
			began := time.Now()
			c.send(expecting)
			if !tt.waits {
				c.send("abc")
			} else {
				got := readHead(c.in)
				if got != tt.first {
					t.Errorf("first came %q", got)
				}
				if got != goOn {
					got = readHead(c.in)
				}
				if got != goOn {
					t.Errorf("then came %q", got)
				}
				c.send("abc")
			}
			if head, body := readMessage(c.in); !strings.HasPrefix(head, "HTTP/1.1 200") || body != "ok" {
				t.Errorf("at last came %q, %q", head, body)
			}
			if took := time.Since(began); (took >= continueWait) != tt.ours || took > continueWait+2*time.Second {
				t.Errorf("it took %v", took)
			}
			if head, _ := c.ask("OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200") {
				t.Errorf("the next answer is %q", head)
			}
		})
	}
}

// A final answer instead of a 100 comes alone, also after our own 100.
func TestExpectRefused(t *testing.T) {
	t.Parallel()
	const no = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
	for _, late := range []bool{false, true} {
		gate := make(chan struct{})
		s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			<-gate
			io.WriteString(c, no)
		}}, nil)
		c := s.dial()
		c.send(expecting)
		if !late {
			close(gate)
		} else {
			if got := readHead(c.in); got != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Errorf("got %q", got)
			}
			close(gate)
		}
		if got := readHead(c.in); !strings.HasPrefix(got, "HTTP/1.1 401") {
			t.Errorf("late %v: got %q", late, got)
		}
	}
}

// response_header still counts, and no 100 comes where it is over first.
func TestExpectTimeout(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{20 * time.Millisecond, continueWait + 50*time.Millisecond} {
		s := newScene(t, playwright{"p": func(c net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) }}, func(cfg *Config) {
			tries(cfg, 1)
			p := cfg.Pools["p"]
			p.Timeouts.ResponseHeader = limit
			cfg.Pools["p"] = p
		})
		c := s.dial()
		c.send(expecting)
		got := readHead(c.in)
		if limit > continueWait {
			if got != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Errorf("limit %v: first came %q", limit, got)
			}
			got = readHead(c.in)
		}
		if !strings.HasPrefix(got, "HTTP/1.1 504") {
			t.Errorf("limit %v: got %q", limit, got)
		}
	}
}

func TestMaxForwards(t *testing.T) {
	asked := make(chan string, 1)
	s := newScene(t, playwright{"p": answers(okAnswer, asked)}, withLog(t, nil))
	tests := []struct{ name, request, forwarded, answer string }{
		{"options", "OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 2\r\n\r\n", "1", "200"},
		{"trace", "TRACE / HTTP/1.1\r\nHost: h\r\nmax-forwards: 010\r\n\r\n", "9", "200"},
		{"large", "OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 99999999999999999999999\r\n\r\n", "999999999", "200"},
		{"no number", "OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: -1\r\n\r\n", "-1", "200"},
		{"another method", "GET / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n", "0", "200"},
		{"without", "OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n", "", "200"},
		{"the last hop", "OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n", "here", "200"},
		{"the last hop, in other words", "OPTIONS * HTTP/1.1\r\nHost: h\r\nMax-Forwards: 5\r\nMax-Forwards: 00\r\n\r\n", "here", "200"},
		{"the last hop of a trace", "TRACE / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n", "here", "400"},
		{"the last hop with a body", "OPTIONS / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nMax-Forwards: 0\r\n\r\nx", "here", "200"},
	}
	for _, tt := range tests {
		c := s.dial()
		head, _ := c.ask(tt.request)
		if !strings.HasPrefix(head, "HTTP/1.1 "+tt.answer) {
			t.Errorf("%s: answered %q", tt.name, head)
		}
		forwarded := "here"
		select {
		case got := <-asked:
			forwarded = strings.Join(fieldsOf(got, "max-forwards"), "+")
		default:
		}
		if forwarded != tt.forwarded {
			t.Errorf("%s: forwarded %q, want %q", tt.name, forwarded, tt.forwarded)
		}
	}
	here := map[string]int{}
	for _, e := range s.logged() {
		if e["backend"] == "" {
			here[fmt.Sprint(e["method"], " ", e["status"], " ", e["code"], " ", e["reason"], " ", e["bytes_out"] != 0.0)]++
		}
	}
	if want := map[string]int{"OPTIONS 200  done true": 3, "TRACE 400 bad_request refused true": 1}; !maps.Equal(here, want) {
		t.Errorf("logged %v, want %v", here, want)
	}
}
