// Package wirecase judges an HTTP/1.1 proxy by what it does on the wire: cases
// written as data (testdata, one JSON file per area) are played on raw sockets
// at both sides of it, and experiments taken from public bug reports are tests
// beside them.
//
// The parsers here are its own, strict, and share nothing with the proxy under
// test: what they call clean, any HTTP implementation understands in one way.
// The proxy is known by its address alone, so that anything can stand there:
// either loop of starling, the real binary, or another product to compare with.
//
// Experiments still without a test, as what they need is not built yet:
// G20 (stop with open WebSockets), G21 (weighted round robin in bursts),
// G22 (a joining backend is flooded), G23 (health check flaps), G24 (max
// ejection percent with few hosts) and G27 (address of a name changes).
package wirecase
