//go:build race

package gossip

// raceFactor is how much slower everything may be under the race detector.
const raceFactor = 4
