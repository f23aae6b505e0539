// Package chaos rehearses the worst day of a cluster: it founds one, drives
// traffic through it, hurts it as a scenario says, lets it heal, and hands back
// all that was seen, for judge to look at. `starling chaos` is made of it.
//
// The same scenario runs at three levels. Inside: all nodes in this process, and
// faults in what they dial and send by. Processes: each node is one, on addresses
// of its own of the loopback network, and every way between two nodes leads through
// a relay; needs Linux, and no privileges. Namespaces: the same in a network
// namespace, where the kernel itself loses what shall be lost.
//
// What a run opens and writes is gone when it ends; when the process that runs it
// dies, its nodes die with it, and a last process of its removes the directory.
package chaos
