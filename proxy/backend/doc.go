// Package backend is the noun that every room shares: a Backend, the Pool it
// belongs to, the Pick among them, and the closed lists of the contract. A
// Pool's list of backends is an immutable snapshot; counts and states are
// atomic, so a pick takes no lock. It knows nothing of the rest of starling.
package backend
