// Package hostile holds a node against clients that mean ill: those who send
// slowly, or never, or far too much, and those who take nothing. Honest clients
// ask the same node meanwhile, in rounds with the hostile ones and rounds without;
// what they get in both is compared. All of it is tests: a short form is part of
// `make test`, and `make hostile` has each attack alone, with figures.
//
// The node is a process of its own, so that its memory and time can be told from
// its clients'.
package hostile
