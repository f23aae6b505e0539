package wire

import (
	"testing"
	"time"
)

// An answer to a request that did not go out to its end says so: the link cannot
// carry another.
func TestUnsent(t *testing.T) {
	l, far := linked(t, "edge")
	whole := async(func() error { _, err := exchange(l, "request"); return err })
	receive(t, far, "request")
	send(t, far, anAnswer+"ok")
	if err := await(t, whole, "the answer to a whole request"); err != nil || l.Unsent() != nil {
		t.Fatalf("%v, unsent %v", err, l.Unsent())
	}
	if body, err := read(&l.End, 2, bound{}); err != nil || body != "ok" {
		t.Fatalf("body %q, %v", body, err)
	}
	send(t, far, anAnswer) // it is there when the request cannot go on
	if err := l.Send(make([]byte, 64<<20), true, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var p Response
	if err := l.ReadResponse(&p, true, time.Minute, 64<<10); err != nil || p.Status != 200 {
		t.Fatalf("status %d, %v", p.Status, err)
	}
	if l.Unsent() == nil {
		t.Error("a part of the request is missing, and nothing says so")
	}
}
