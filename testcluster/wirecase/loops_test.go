package wirecase

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/starling-lb/starling/node"
)

// loops are the ways to carry bytes that everything here runs on.
func loops() []loop {
	return []loop{
		{"edges", func(t *testing.T, config string) running { return starling(t, config, node.Options{}) }},
		{"portable", func(t *testing.T, config string) running {
			return starling(t, config, node.Options{Dial: dialPlain, Listen: listenPlain})
		}},
	}
}

// plainConn hides that it is a TCP connection, as an injected fault does:
// then the portable loop carries it.
type plainConn struct{ net.Conn }

func (c plainConn) CloseWrite() error       { return c.Conn.(*net.TCPConn).CloseWrite() }
func (c plainConn) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return plainConn{c}, nil
}

func dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return plainConn{c}, nil
}

func listenPlain(ctx context.Context, network, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return plainListener{l}, nil
}

// starling is a node in this process.
func starling(t *testing.T, config string, opt node.Options) running {
	t.Helper()
	cfg, err := node.Parse("wirecase.yaml", []byte(config), os.LookupEnv)
	if err != nil {
		t.Fatalf("%v in\n%s", err, config)
	}
	opt.Logger = slog.New(slog.DiscardHandler)
	n, err := node.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Logf("stop: %v", err) // streams that an experiment left open are cut, which is said
		}
	})
	return running{addr: n.ProxyAddrs()[0], admin: n.AdminAddr()}
}
