package backend

// The closed lists of the contract, in one place: every room that names a
// state, a reason or a code takes it from here, so that a new word is a change
// of this file and of docs/reference, and of nothing else.

// State is what a backend may be used for.
type State string

// The states of a backend; the list is closed.
const (
	Active    State = "active"    // takes streams
	Warming   State = "warming"   // alive but not ready: no streams yet
	Draining  State = "draining"  // finishes what it has, nothing new comes
	Unhealthy State = "unhealthy" // the agreed verdict of active checks
	Ejected   State = "ejected"   // out for a time after failures on real traffic
	Removed   State = "removed"   // no longer configured; its streams run out
)

// States lists every State.
func States() []State { return []State{Active, Warming, Draining, Unhealthy, Ejected, Removed} }

// CapSource says who told a backend's cap on streams.
type CapSource string

// The sources of a cap; the list is closed.
const (
	CapConfig  CapSource = "config"
	CapEngine  CapSource = "engine"
	CapLearned CapSource = "learned"
	CapNone    CapSource = "none"
)

// MemberState is what a node knows of another.
type MemberState string

// The states of a member; the list is closed.
const (
	MemberAlive    MemberState = "alive"
	MemberSuspect  MemberState = "suspect"
	MemberDead     MemberState = "dead"
	MemberLeft     MemberState = "left"
	MemberDraining MemberState = "draining"
)

// Reason is why a stream ended. A stream ends once, with one reason.
type Reason string

// The reasons a stream ends for; the list is closed.
const (
	Done           Reason = "done"            // the whole answer was handed to the client
	ClientLeft     Reason = "client_left"     // the client closed before the end
	ClientSlow     Reason = "client_slow"     // the client took no byte for write_idle, or sent none of its body for request_body_idle
	BackendBroke   Reason = "backend_broke"   // the backend ended or garbled an exchange it had begun
	BackendTimeout Reason = "backend_timeout" // no connection or no response head in time
	BackendRefused Reason = "backend_refused" // no connection could be made
	Idle           Reason = "idle"            // no byte passed for stream_idle or tunnel_idle
	Deadline       Reason = "deadline"        // stream_total ran out
	Drained        Reason = "drained"         // cut at the end of a drain deadline
	Shed           Reason = "shed"            // no room or no backend: answered at once, never sent on
	Refused        Reason = "refused"         // the request itself was refused: malformed, too large, no route
)

// Reasons lists every Reason.
func Reasons() []Reason {
	return []Reason{Done, ClientLeft, ClientSlow, BackendBroke, BackendTimeout, BackendRefused, Idle, Deadline, Drained, Shed, Refused}
}

// Code names an answer that starling makes itself; it stands in the body and
// in the X-Starling-Error header.
type Code string

// The codes of starling's own answers; the list is closed.
const (
	BadRequest         Code = "bad_request"
	UnsupportedCoding  Code = "unsupported_coding"
	UnsupportedVersion Code = "unsupported_version"
	NoRoute            Code = "no_route"
	RequestTimeout     Code = "request_timeout"
	BodyTooLarge       Code = "body_too_large"
	HeaderTooLarge     Code = "header_too_large"
	Saturated          Code = "saturated"
	CodeRefused        Code = "backend_refused"
	CodeBroke          Code = "backend_broke"
	BadResponse        Code = "backend_bad_response"
	NoBackend          Code = "no_backend"
	CodeDraining       Code = "draining"
	TooManyConnections Code = "too_many_connections"
	NoLeader           Code = "no_leader"
	CodeTimeout        Code = "backend_timeout"
)

// Codes lists every Code.
func Codes() []Code {
	return []Code{
		BadRequest, UnsupportedCoding, UnsupportedVersion, NoRoute, RequestTimeout, BodyTooLarge, HeaderTooLarge,
		Saturated, CodeRefused, CodeBroke, BadResponse, NoBackend, CodeDraining, TooManyConnections, NoLeader, CodeTimeout,
	}
}

// Status is the HTTP status that goes with the code.
func (c Code) Status() int {
	switch c {
	case BadRequest:
		return 400
	case NoRoute:
		return 404
	case RequestTimeout:
		return 408
	case BodyTooLarge:
		return 413
	case Saturated:
		return 429
	case HeaderTooLarge:
		return 431
	case UnsupportedCoding:
		return 501
	case CodeRefused, CodeBroke, BadResponse:
		return 502
	case NoBackend, CodeDraining, TooManyConnections, NoLeader:
		return 503
	case CodeTimeout:
		return 504
	case UnsupportedVersion:
		return 505
	}
	panic("BUG: no status for code " + string(c))
}

// RetryAfter tells whether the answer carries a Retry-After header.
func (c Code) RetryAfter() bool { return c.Status() == 429 || c.Status() == 503 }
