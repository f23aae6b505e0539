//go:build !linux

// Command bench measures starling beside nginx and HAProxy. It needs epoll,
// CPU pinning and /proc.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: runs on Linux only; run make bench on a Linux machine with two CPUs or more")
	os.Exit(2)
}
