package llm

import "container/list"

// sessions remembers how many tokens of context it holds per session; past its
// limit the least recently used is forgotten. The engine's lock guards it.
type sessions struct {
	limit int
	byKey map[string]*list.Element
	order list.List // of *kept, most recently used in front
}

type kept struct {
	session string
	tokens  int
}

func newSessions(limit int) *sessions {
	return &sessions{limit: limit, byKey: make(map[string]*list.Element)}
}

// tokens is 0 for a cold session, and for the requests that have none.
func (s *sessions) tokens(session string) int {
	e := s.byKey[session]
	if e == nil {
		return 0
	}
	s.order.MoveToFront(e)
	return e.Value.(*kept).tokens
}

// keep notes that tokens of the session's context are here. A turn that ends
// beside a longer one does not shorten what that one left.
func (s *sessions) keep(session string, tokens int) {
	if session == "" {
		return
	}
	if e := s.byKey[session]; e != nil {
		c := e.Value.(*kept)
		c.tokens = max(c.tokens, tokens)
		s.order.MoveToFront(e)
		return
	}
	s.byKey[session] = s.order.PushFront(&kept{session: session, tokens: tokens})
	if s.order.Len() > s.limit {
		last := s.order.Remove(s.order.Back()).(*kept)
		delete(s.byKey, last.session)
	}
}

func (s *sessions) forget() {
	clear(s.byKey)
	s.order.Init()
}
