//go:build !race

package membership

const raced = false
