// Package rolling does to a cluster under load what operators do to it on an
// ordinary day: its nodes are restarted one after the other, and told another
// configuration. Nobody who uses it should notice. All of it is tests.
package rolling
