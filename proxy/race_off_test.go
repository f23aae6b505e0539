//go:build !race

package proxy_test

const raceFactor = 1
