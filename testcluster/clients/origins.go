package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// origin is a backend of a few lines.
type origin struct {
	name     string
	listener net.Listener
	server   *http.Server
	ended    chan error
}

func newOrigin(ctx context.Context, name string, h http.Handler) (*origin, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	o := &origin{name: name, listener: l, server: &http.Server{Handler: h}, ended: make(chan error, 1)}
	go func() { o.ended <- o.server.Serve(l) }()
	return o, nil
}

func (o *origin) url() string { return "http://" + o.listener.Addr().String() }

func (o *origin) stop() error {
	err := o.server.Close()
	if served := <-o.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// fileBytes is the length of the one file there is.
const fileBytes = 3 << 20

// files answers a GET with a file, and anything with a body with what that was:
// its checksum, its length, and how it was framed.
func files(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(fileBytes))
		w.Header().Set("Content-Type", "application/octet-stream")
		if r.Method == http.MethodGet {
			_, _ = w.Write(content(fileBytes)) // a client that is gone needs none
		}
		return
	}
	framing := "length"
	if r.ContentLength < 0 {
		framing = "chunked"
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%x %d %s\n", sum.Sum(nil), n, framing)
}

// content is n bytes in which nothing repeats for long.
func content(n int) []byte {
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

const (
	lastEvent = 20
	perTry    = 5 // events before the stream ends in one way or another
)

// events sends the events behind the last one that the client has, but no more
// than five; then the stream ends as the path says.
func events(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if err != nil {
		from = 0
	}
	text := "retry: 20\n\n"
	for i := from + 1; i <= min(from+perTry, lastEvent); i++ {
		text += fmt.Sprintf("id: %d\nevent: count\ndata: %d\ndata: of %d\n\n", i, i, lastEvent)
	}
	if r.URL.Path == "/events/until-close" {
		untilClose(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text) // a client that is gone needs none
	_ = http.NewResponseController(w).Flush()
	select { // as a stream has it: what comes is on its way when the stream ends
	case <-time.After(20 * time.Millisecond):
	case <-r.Context().Done():
	}
	if r.URL.Path == "/events/broken" {
		panic(http.ErrAbortHandler)
	}
}

// untilClose is an answer whose end is the connection's: it is broken by a
// reset.
func untilClose(w http.ResponseWriter, text string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+text)
	<-time.After(20 * time.Millisecond)
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
