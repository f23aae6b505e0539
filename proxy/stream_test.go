package proxy

import (
	"testing"

	"github.com/starling-lb/starling/proxy/backend"
)

// The timer of a stream that has ended does not end the next one on its
// connection: it cannot be stopped any more once it has fired.
func TestLateTimer(t *testing.T) {
	s := &Stream{live: true, id: 2}
	if s.abandon(&failure{reason: backend.Deadline, of: 1}) || s.cut != nil {
		t.Error("another stream was given up")
	}
}
