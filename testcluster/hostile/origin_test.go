package hostile

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	events = 20                    // of an event stream
	pace   = 25 * time.Millisecond // between two of them
)

// newOrigin is a backend for all: honest clients get /small and /sse, hostile ones
// whatever they ask for.
func newOrigin(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/sink", func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) })
	mux.HandleFunc("/sse", stream)
	mux.HandleFunc("/endless", func(w http.ResponseWriter, q *http.Request) {
		for block := make([]byte, 16<<10); q.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/ws", echo)
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func stream(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range events {
		if _, err := fmt.Fprintf(w, "data: %d\n\n", i); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-tick.C:
		case <-q.Context().Done():
			return
		}
	}
}

// echo is a WebSocket that says back what it hears.
func echo(w http.ResponseWriter, _ *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		return
	}
	for {
		f, err := echoFrame(rw.Reader)
		if err != nil {
			return
		}
		if _, err := c.Write(f); err != nil {
			return
		}
	}
}

// answer reads a whole answer with a length, and fails unless it is a 200.
func answer(in *bufio.Reader) error {
	status, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\r\n" {
			break
		}
		if v, ok := strings.CutPrefix(strings.ToLower(line), "content-length:"); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(v)); err != nil {
				return err
			}
		}
	}
	if _, err := in.Discard(length); err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("answered %q", status)
	}
	return nil
}

// echoFrame reads one frame of up to 125 bytes, unmasked or with zeros.
func echoFrame(in *bufio.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	rest := int(head[1] & 0x7f)
	if head[1]&0x80 != 0 {
		var mask [4]byte
		if _, err := io.ReadFull(in, mask[:]); err != nil || binary.BigEndian.Uint32(mask[:]) != 0 {
			return nil, fmt.Errorf("mask %x: %w", mask, err)
		}
	}
	payload := make([]byte, rest)
	_, err := io.ReadFull(in, payload)
	return append([]byte{head[0], byte(rest)}, payload...), err
}
