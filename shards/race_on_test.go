//go:build race

package shards

const underRace = true
