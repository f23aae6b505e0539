package wirecase

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

func (w BackendWant) judge(o outcome, f *faults) {
	complete := 0
	for _, x := range o.backend {
		if x.msg.Complete {
			complete++
		}
		w.judgeEach(&x.msg, f)
	}
	count(len(o.backend), w.Requests, "requests", f)
	count(complete, w.CompleteRequests, "complete_requests", f)
	if w.MaxRequests != nil && len(o.backend) > *w.MaxRequests {
		f.add("max_requests: got %d, want at most %d", len(o.backend), *w.MaxRequests)
	}
	if !w.wantsRequest() {
		return
	}
	if len(o.backend) == 0 {
		f.add("no request came to a backend")
		return
	}
	w.judgeFirst(&o.backend[0].msg, o.began, f)
}

// wantsRequest tells whether a part is about the first request.
func (w BackendWant) wantsRequest() bool {
	return w.Method != "" || w.Target != nil || w.Body != nil || w.BodyStartsWithinMS > 0 || w.HeaderWant.any()
}

func (w BackendWant) judgeEach(m *Message, f *faults) {
	if w.Clean && len(m.Defects) > 0 {
		f.add("clean: %s", strings.Join(m.Defects, "; "))
	}
	for _, b := range w.NoTargetContains {
		if strings.Contains(m.Target, string(b)) {
			f.add("no_target_contains: %q", m.Target)
		}
	}
	for _, b := range w.WireNot {
		if bytes.Contains(m.Raw, []byte(b)) {
			f.add("wire_not: %q came", b)
		}
	}
}

func (w BackendWant) judgeFirst(m *Message, began time.Time, f *faults) {
	if w.Method != "" && w.Method != m.Method {
		f.add("method: got %q, want %q", m.Method, w.Method)
	}
	if w.Target != nil && !slices.Contains(w.Target, Latin(m.Target)) {
		f.add("target: got %q, want one of %q", m.Target, w.Target)
	}
	judgeBody(m, w.Body, f)
	judgeStart(m, began, w.BodyStartsWithinMS, f)
	w.HeaderWant.judge(m, f)
}

func count(got int, want *int, key string, f *faults) {
	if want != nil && got != *want {
		f.add("%s: got %d, want %d", key, got, *want)
	}
}
