//go:build !race

package testcluster_test

const raceFactor = 1
