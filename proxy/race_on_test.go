//go:build race

package proxy_test

// raceFactor is how much slower everything may be under the race detector.
const raceFactor = 5
