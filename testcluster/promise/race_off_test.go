//go:build !race

package promise_test

const raced = false
