package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
	"github.com/starling-lb/starling/testcluster/llm"
)

func TestJoin(t *testing.T) {
	r := history.Run{Turns: []history.Turn{{ID: "a"}, {ID: "b"}}, Served: []llm.Turn{{RequestID: "a", Epoch: "7"}, {RequestID: "b"}}}
	if r.Join(); r.Turns[0].Epoch != 7 || r.Turns[1].Epoch != 0 {
		t.Errorf("%+v", r.Turns)
	}
}

func TestReadLines(t *testing.T) {
	log := `{"ts":"2026-03-01T09:00:00Z","request_id":"a","client":"127.0.0.1","status":200,"code":"","backend":"b1","session_epoch":7,"lookup":"hit","attempts":1,"ttfb_ms":1.5,"duration_ms":20,"reason":"done"}
{"ts":"2026-03-01T09:00:01Z","request_id":"b","status":503,"code":"draining","backend":"","session_epoch":0,"lookup":"","ttfb_ms":null,"duration_ms":0.5,"reason":"shed"}
{"ts":"2026-03-01T09:00:02Z","reque`
	lines, err := history.ReadLines("n1", strings.NewReader(log))
	if err != nil || len(lines) != 2 {
		t.Fatalf("%v, %v; want two lines", lines, err)
	}
	a, b := lines[0], lines[1]
	if a.Node != "n1" || a.Epoch != 7 || a.Lookup != "hit" || a.Ended().Sub(a.At) != 20*time.Millisecond || a.Settled().Sub(a.At) != 1500*time.Microsecond {
		t.Errorf("%+v", a)
	}
	if b.Code != "draining" || b.First != nil || b.Settled() != b.Ended() {
		t.Errorf("%+v", b)
	}
}
