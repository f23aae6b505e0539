// Package wire owns connections: it reads heads, finds where bodies end, keeps
// buffers and deadlines, and notices who left. It promises that a head it
// returns is unambiguous (RFC 9112), that a body's end is never invented, and
// that a blocked read or write ends when the stream is interrupted. It does not
// know which backend a stream goes to, nor why.
//
// One goroutine owns an End's read side and one its write side; Interrupt and
// Close may come from any.
package wire
