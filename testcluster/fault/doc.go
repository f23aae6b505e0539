// Package fault puts a bad network between two ends that live on a good one:
// a dialer and a listener whose connections a test can delay, slow down, stall,
// swallow, cut, reset or refuse, per label and per direction, while they are
// in use.
//
//	n := fault.New()
//	defer n.Stop()
//	dial := n.Dialer("", (&net.Dialer{}).DialContext) // label: the address that is dialed
//	n.Set("127.0.0.1:9001", fault.Rule{Read: fault.Way{Drop: true}})
//
// The names of the two directions are those of the wrapped end: Read is what it
// gets, Write is what it sends. Deadlines and Close work in every fault.
//
// A wrapped connection has what net.Conn has, CloseWrite and NetConn, and
// nothing else. It is on purpose no syscall.Conn and no io.ReaderFrom or
// io.WriterTo: whoever works on the descriptor, or lets the kernel copy, goes
// past the faults. Code that needs the descriptor gets it through NetConn, and
// then sees what really arrived: also bytes that a fault still holds back.
//
// The package must not know whose connections these are.
package fault
