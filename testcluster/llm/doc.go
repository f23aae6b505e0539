// Package llm is a demo backend: an OpenAI-compatible server without a model
// that keeps time as an inference engine with continuous batching does. Tests,
// `starling dev`, `bench` and `chaos` use it; anybody's tests may.
//
// # Time
//
// A prompt costs 1/Prefill seconds a token and an answer 1/Decode seconds a
// token, both times Speed. With c streams active each runs at
// 1/(1+(c-1)/Knee) of that, so that a busy backend answers everybody more
// slowly, as real ones do. At most MaxActive streams run, MaxQueue wait behind
// them in order, and what comes then gets 429 with Retry-After. One goroutine
// keeps the time of all streams by one sum of work, so no error adds up.
//
// # Sessions
//
// A session (header X-Session-ID, else cookie starling, else the body's user)
// is warm where its last turn ran: its next turn there is charged only for the
// tokens that are new, anywhere else for all. So a session that was sent to the
// wrong backend pays a prefill that a judge can see, in the time to the first
// token, in usage.prompt_tokens_details.cached_tokens and in the record of
// turns ([Server.Turns]).
//
// # Faults
//
// [Server.SetFaults], or PUT /control/faults on a port of its own, makes it
// slow, hung, refusing, breaking answers or flapping while it runs.
//
// docs/demo-backend.md lists endpoints, switches and metrics. Every request is
// answered from memory and every memory is bounded. The package must not know
// starling: it is what starling is tested against.
package llm
