// Package load is one half of a benchmark of HTTP/1.1 proxies: a backend and
// load generators that cost a few microseconds of CPU per request, so that the
// proxy between them is what gets measured. Each is a single-threaded epoll
// loop; both live in one process and share one clock.
//
// It promises that every byte of every answer was checked: framing, body, and
// for event streams whose event it was and that none is missing. It speaks to
// loopback only, and every run is bounded in connections and time. It must not
// know which proxy it measures.
package load
