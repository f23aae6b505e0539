//go:build race

package membership

// raced says that all takes five times the CPU: clusters are smaller.
const raced = true
