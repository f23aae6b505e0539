// Package sim is a discrete-event model of many proxies before many backends,
// in virtual time. The proxies are real ones where it matters: each has its own
// backend.Pool, told of the others by reports of an age, and every placement is
// the product's own code. What is modelled is the rest: arrivals, the engines'
// speed under load, the streams' tokens, reports on their way, faults.
//
// A run is a function of its Cell, seed and all. An all-knowing oracle may take
// the pools' place: it places the same requests, so its figures are the limit of
// what any rule can reach there.
//
// Every event is computed, none is stepped to: an engine that shares its speed
// among streams advances one sum of work for all of them, and one calendar
// knows what comes next. 300,000 requests take a second or two.
//
// The package must not know HTTP, sockets or the wall clock.
package sim
