package proxy_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
)

const (
	upgrade  = "GET /chat HTTP/1.1\r\nHost: t\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n"
	upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n"

	freed = 50 * time.Millisecond * raceFactor // from a client's leave to its backend being free
)

// empties waits until no stream runs, and returns how long that took.
func (r *rig) empties() time.Duration {
	r.t.Helper()
	began := time.Now()
	eventually(r.t, patience, func() string {
		if n := r.server.InFlight(); n != 0 {
			return fmt.Sprintf("%d streams run", n)
		}
		return ""
	})
	return time.Since(began)
}

// tunnel opens one; both ends have had the handshake.
func (r *rig) tunnel(ask, answer string) (client, server *caller) {
	r.t.Helper()
	client = r.connect(ask)
	server = r.arrived()
	server.send(answer)
	if head := client.answer(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		r.t.Fatalf("the client got %q", head)
	}
	return client, server
}

func TestTunnelHandshake(t *testing.T) {
	for _, protocol := range []string{"websocket", "any/2"} {
		t.Run(protocol, func(t *testing.T) {
			onEachLoop(t, nil, func(r *rig) {
				swap := strings.NewReplacer("websocket", protocol, "WebSocket\r\n", protocol+"\r\n")
				// What is sent right behind a head, in the same segment, is the tunnel's.
				client := r.connect(swap.Replace(upgrade) + "early")
				server := r.arrived()
				for _, line := range []string{"GET /chat HTTP/1.1\r\n", "Connection: upgrade\r\n", "Upgrade: " + protocol + "\r\n", "Sec-WebSocket-Key: k\r\n", "Sec-WebSocket-Version: 13\r\n"} {
					if !strings.Contains(server.head, line) {
						t.Errorf("the backend misses %q: %q", line, server.head)
					}
				}
				server.send(swap.Replace(upgraded) + "hello")
				head := client.answer()
				for _, line := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Connection: Upgrade\r\n", "Upgrade: " + protocol + "\r\n", "Sec-WebSocket-Accept: a\r\n"} {
					if !strings.Contains(head, line) {
						t.Errorf("the client misses %q: %q", line, head)
					}
				}
				client.expect("hello")
				server.expect("early")
				client.finish()
				server.end("", false)
				server.Close()
				client.end("", false)
				r.atRest(patience, backend.Done, 1)
			})
		})
	}
}

// A peer that has closed its sending side still gets the rest.
func TestTunnelHalfClosed(t *testing.T) {
	rest := strings.Repeat("0123456789abcdef", 64<<10) // more than all buffers on the way
	for name, first := range map[string]func(a, b *caller) (*caller, *caller){
		"client first":  func(client, server *caller) (*caller, *caller) { return client, server },
		"backend first": func(client, server *caller) (*caller, *caller) { return server, client },
	} {
		t.Run(name, func(t *testing.T) {
			onEachLoop(t, nil, func(r *rig) {
				done, going := first(r.tunnel(upgrade, upgraded))
				done.send("last words")
				done.finish()
				going.end("last words", false)
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(going.TCPConn, rest)
					sent <- err
				}()
				done.expect(rest[:1000])
				if n, list := r.server.InFlight(), r.server.Streams(9); n != 1 || len(list) != 1 || list[0].Phase != proxy.Tunnelling {
					t.Errorf("half-closed: %d in flight, %v", n, list)
				}
				done.expect(rest[1000:])
				if err := await(t, sent); err != nil {
					t.Fatal(err)
				}
				going.finish()
				done.end("", false)
				r.atRest(patience, backend.Done, 1)
				if got := r.metric("starling_pool_connections", "state", "used"); got != 0 {
					t.Errorf("%v connections to the backend left", got)
				}
			})
		})
	}
}

func TestTunnelReset(t *testing.T) {
	t.Run("by the client", func(t *testing.T) {
		onEachLoop(t, nil, func(r *rig) {
			n := prompt(t, "the backend was freed", freed, func() time.Duration {
				client, server := r.tunnel(upgrade, upgraded)
				client.reset()
				began := time.Now()
				server.end("", true)
				return time.Since(began)
			})
			r.atRest(patience, backend.ClientLeft, n)
		})
	})
	t.Run("by the backend", func(t *testing.T) {
		onEachLoop(t, nil, func(r *rig) {
			client, server := r.tunnel(upgrade, upgraded)
			server.reset()
			client.end("", true)
			r.atRest(patience, backend.BackendBroke, 1)
		})
	})
}

// A client's reset is seen although what it sent is stuck: only the watcher
// can, as nothing is read from the client meanwhile.
func TestTunnelResetWhileStuck(t *testing.T) {
	t.Parallel()
	r := newRig(t, false, nil)
	n := prompt(t, "the stream ended", freed, func() time.Duration {
		client, _ := r.tunnel(upgrade, upgraded)
		client.fill()
		client.reset()
		return r.empties()
	})
	r.atRest(patience, backend.ClientLeft, n)
}

// A client that closes looks like one that closed its sending side only.
func TestTunnelClientGone(t *testing.T) {
	t.Run("and the backend ends too", func(t *testing.T) {
		onEachLoop(t, nil, func(r *rig) {
			n := prompt(t, "the backend heard of it, or the stream ended,", freed, func() time.Duration {
				client, server := r.tunnel(upgrade, upgraded)
				began := time.Now()
				client.Close()
				server.end("", false)
				heard := time.Since(began)
				server.Close()
				return max(heard, r.empties())
			})
			r.atRest(patience, backend.Done, n)
		})
	})
	t.Run("and the backend goes on", func(t *testing.T) {
		onEachLoop(t, nil, func(r *rig) {
			n := prompt(t, "the stream ended", freed, func() time.Duration {
				client, server := r.tunnel(upgrade, upgraded)
				client.Close()
				server.end("", false) // a FIN may mean that
				server.send("are you there?")
				if r.plain {
					// Without a watcher the answer to that is found by the next write.
					eventually(t, patience, func() string {
						if _, err := io.WriteString(server.TCPConn, "?"); err == nil {
							return "the backend can still send"
						}
						return ""
					})
				}
				return r.empties()
			})
			r.atRest(patience, backend.ClientLeft, n)
		})
	})
}

func TestTunnelIdle(t *testing.T) {
	const idle = 300 * time.Millisecond
	short := func(p *proxy.PoolConfig) { p.Timeouts.TunnelIdle = idle }
	t.Run("silent both ways", func(t *testing.T) {
		onEachLoop(t, short, func(r *rig) {
			n := prompt(t, "the tunnel was ended", idle*3/2+freed, func() time.Duration {
				began := time.Now()
				client, server := r.tunnel(upgrade, upgraded)
				client.end("", true)
				server.end("", true)
				took := time.Since(began)
				if took < idle {
					t.Errorf("the tunnel was ended after %v, want %v", took, idle)
				}
				return took
			})
			r.atRest(patience, backend.Idle, n)
			if got := r.metric("starling_timeouts_total", "kind", "tunnel_idle"); got != n {
				t.Errorf("%v time-outs counted, want %v", got, n)
			}
		})
	})
	for name, pick := range map[string]func(a, b *caller) (*caller, *caller){
		"only the client speaks":  func(client, server *caller) (*caller, *caller) { return client, server },
		"only the backend speaks": func(client, server *caller) (*caller, *caller) { return server, client },
	} {
		t.Run(name, func(t *testing.T) {
			onEachLoop(t, short, func(r *rig) {
				speaks, listens := pick(r.tunnel(upgrade, upgraded))
				tick := time.NewTicker(idle / 4)
				defer tick.Stop()
				for range 10 {
					<-tick.C
					speaks.send("x")
					listens.expect("x")
				}
				speaks.finish()
				listens.end("", false)
				listens.finish()
				speaks.end("", false)
				r.atRest(patience, backend.Done, 1)
			})
		})
	}
}

// What ends as close frames have it leaves nothing to wait for: the backend
// may stop listening to a client that still has something to say.
func TestTunnelClosesByFrames(t *testing.T) {
	const bye, masked = "\x88\x02\x03\xe8", "\x88\x82\x00\x00\x00\x00\x03\xe8"
	onEachLoop(t, nil, func(r *rig) {
		client, server := r.tunnel(upgrade, upgraded)
		server.send(bye)
		client.expect(bye)
		client.send(masked)
		server.expect(masked)
		server.Close()
		client.end("", false)
		client.Close()
		r.atRest(patience, backend.Done, 1)
	})
}

func TestManyTunnels(t *testing.T) {
	onEachLoop(t, nil, func(r *rig) {
		for range 4 {
			var ends []*caller
			for range 125 {
				client, server := r.tunnel(upgrade, upgraded)
				ends = append(ends, client, server)
			}
			if got := r.server.InFlight(); got != 125 {
				t.Errorf("%d in flight, want 125", got)
			}
			for _, e := range ends {
				e.Close()
			}
			eventually(t, patience, func() string {
				if n, used := r.server.InFlight(), r.metric("starling_pool_connections", "state", "used"); n != 0 || used != 0 {
					return fmt.Sprintf("%d in flight, %v connections", n, used)
				}
				return ""
			})
		}
		r.atRest(patience, backend.Done, 500)
	})
}
