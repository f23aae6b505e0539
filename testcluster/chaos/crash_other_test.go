//go:build !linux

package chaos_test

// harness is killed by a test where nodes are processes of their own.
func harness() {}
