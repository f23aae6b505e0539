//go:build !race

package gossip

const raceFactor = 1
