package wire

import (
	"testing"
	"time"
)

// An answer to a request that did not go out to its end says so: the link cannot
// carry another.
func TestUnsent(t *testing.T) {
	l, far := linked(t, "edge")
	for _, request := range []struct {
		bytes int
		whole bool
	}{{10, true}, {64 << 20, false}} {
		send(t, far, anAnswer)
		if err := l.Send(make([]byte, request.bytes), true, 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		var p Response
		if err := l.ReadResponse(&p, true, time.Minute, 64<<10); err != nil || p.Status != 200 {
			t.Fatalf("status %d, %v", p.Status, err)
		}
		if err := l.Unsent(); (err == nil) != request.whole {
			t.Errorf("%d bytes: unsent %v", request.bytes, err)
		}
	}
}
