package llm

import "context"

// TB is the part of testing.TB that ForTest uses; this package is linked into
// programs and must not bring the testing package along.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// ForTest is a running server that ends, with its streams cut, when the test
// does.
func ForTest(tb TB, o Options) *Server {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	if err := s.Start(context.Background()); err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		s.Stop(now) // says only that streams were cut
	})
	return s
}
