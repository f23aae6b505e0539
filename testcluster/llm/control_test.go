package llm

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestControlFaults(t *testing.T) {
	u := serve(t, Options{})
	url := u.ControlURL() + "/control/faults"
	for _, step := range []struct {
		method, body string
		status       int
		want         Faults
	}{
		{"GET", "", 200, Faults{}},
		{"PUT", `{"slow":2,"flap":0.5,"close_conns":true}`, 200, Faults{Slow: 2, Flap: 500 * time.Millisecond, CloseConns: true}},
		{"PATCH", `{"flap":0,"health":"fail","health_delay":0.25}`, 200, Faults{Slow: 2, CloseConns: true, Health: HealthFail, HealthDelay: 250 * time.Millisecond}},
		{"PATCH", `{"slow":-1}`, 400, Faults{Slow: 2, CloseConns: true, Health: HealthFail, HealthDelay: 250 * time.Millisecond}},
		{"PUT", `{"slwo":1}`, 400, Faults{Slow: 2, CloseConns: true, Health: HealthFail, HealthDelay: 250 * time.Millisecond}},
		{"PUT", `{"refuse":true,"hang":true,"break_after":3}`, 200, Faults{Refuse: true, Hang: true, BreakAfter: 3}},
		{"PUT", ``, 200, Faults{}},
	} {
		status, _, raw := u.get(step.method, url, step.body)
		if status != step.status || u.Faults() != step.want {
			t.Errorf("%s %s: status %d, faults %+v; want %d, %+v", step.method, step.body, status, u.Faults(), step.status, step.want)
		}
		if status != 200 {
			wantError(t, raw, "invalid_request_error", "")
		} else if got := decode[faultsJSON](t, raw).faults(); got != step.want {
			t.Errorf("%s answered %s", step.method, raw)
		}
	}
	if status, _, _ := u.get("GET", u.URL()+"/control/faults", ""); status != 404 {
		t.Errorf("the control API answers %d on the data port", status)
	}
}

func TestFaultsAreChecked(t *testing.T) {
	for _, f := range []Faults{
		{Slow: -1}, {Slow: math.Inf(1)}, {Slow: math.NaN()}, {BreakAfter: -1}, {Flap: -1}, {Flap: time.Millisecond}, {Health: "ill"}, {HealthDelay: -1},
	} {
		if err := f.check(); !errors.Is(err, ErrFaults) {
			t.Errorf("%+v: %v, want ErrFaults", f, err)
		}
	}
}

func TestControlTurnsAndStatus(t *testing.T) {
	u := serve(t, fast(Options{ID: "b1", KeepTurns: 3}))
	for i := range 5 {
		u.get("POST", u.URL()+"/v1/completions", `{"prompt":"x","max_tokens":2}`, SessionHeader, fmt.Sprint(i))
	}
	for _, tc := range []struct {
		query string
		first uint64
		n     int
		lost  uint64
	}{{"", 3, 3, 2}, {"?after=1", 3, 3, 1}, {"?after=2", 3, 3, 0}, {"?after=4", 5, 1, 0}, {"?after=5", 0, 0, 0}, {"?after=99", 0, 0, 0}} {
		_, _, raw := u.get("GET", u.ControlURL()+"/control/turns"+tc.query, "")
		got := decode[turnsForm](t, raw)
		if len(got.Turns) != tc.n || got.Lost != tc.lost || got.Turns == nil {
			t.Errorf("%q: %s", tc.query, raw)
			continue
		}
		for i, turn := range got.Turns {
			if turn.Seq != tc.first+uint64(i) || turn.Backend != "b1" || turn.Outcome != Done || turn.Output != 2 || turn.FirstByte.Before(turn.Start) || turn.End.Before(turn.FirstByte) {
				t.Errorf("%q: turn %+v", tc.query, turn)
			}
		}
	}
	if status, _, raw := u.get("GET", u.ControlURL()+"/control/turns?after=x", ""); status != 400 {
		t.Errorf("status %d: %s", status, raw)
	}
	if status, _, _ := u.get("DELETE", u.ControlURL()+"/control/sessions", ""); status != http.StatusNoContent {
		t.Errorf("status %d", status)
	}
	status := decode[struct {
		ID, Model, URL                    string
		Up                                bool
		Running, Waiting, Sessions, Conns int
		Turns                             uint64
		Faults                            faultsJSON
	}](t, func() string { _, _, raw := u.get("GET", u.ControlURL()+"/control/status", ""); return raw }())
	if status.ID != "b1" || status.URL != u.URL() || !status.Up || status.Turns != 5 || status.Sessions != 0 || status.Running != 0 {
		t.Errorf("status %+v", status)
	}
}

func TestMetrics(t *testing.T) {
	u := serve(t, Options{Speed: 10, MaxActive: 1, MaxQueue: 1})
	u.get("POST", u.URL()+"/v1/completions", `{"prompt":"x","max_tokens":2,"user":"s"}`, PromptTokensHeader, "100")
	u.get("POST", u.URL()+"/v1/completions", `{"prompt":"x","max_tokens":2,"user":"s"}`, PromptTokensHeader, "150")
	for range 2 {
		resp, err := u.ask(t.Context(), "POST", u.URL()+"/v1/chat/completions", chat(100), PromptTokensHeader, "100000")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	_, h, raw := u.get("GET", u.URL()+"/metrics", "")
	if !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		t.Errorf("Content-Type %q", h.Get("Content-Type"))
	}
	lines := strings.Split(raw, "\n")
	for _, want := range []string{
		`vllm:num_requests_running{model_name="demo-model"} 1`,
		`vllm:num_requests_waiting{model_name="demo-model"} 1`,
		`vllm:kv_cache_usage_perc{model_name="demo-model"} 1`,
		`vllm:gpu_cache_usage_perc{model_name="demo-model"} 1`,
		`vllm:prompt_tokens_total{model_name="demo-model"} 250`,
		`vllm:generation_tokens_total{model_name="demo-model"} 4`,
		`vllm:prefix_cache_queries_total{model_name="demo-model"} 250`,
		`vllm:prefix_cache_hits_total{model_name="demo-model"} 102`,
		`vllm:request_success_total{finished_reason="length",model_name="demo-model"} 2`,
		`vllm:time_to_first_token_seconds_count{model_name="demo-model"} 2`,
		`vllm:e2e_request_latency_seconds_count{model_name="demo-model"} 2`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Log(raw)
	}
}

func TestReadTrace(t *testing.T) {
	f, err := os.Open("testdata/azure_conv_200.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := ReadTrace(f)
	if err != nil || len(rows) != 200 {
		t.Fatalf("%d rows, %v; want 200", len(rows), err)
	}
	if want := (Row{0, 374, 44}); rows[0] != want {
		t.Errorf("first row %+v, want %+v", rows[0], want)
	}
	if want := (Row{4314579 * time.Microsecond, 396, 109}); rows[1] != want {
		t.Errorf("second row %+v, want %+v", rows[1], want)
	}
	if _, err := New(Options{Trace: rows}); err != nil {
		t.Error(err)
	}
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for name, text := range map[string]string{
		"empty":     "",
		"no rows":   head,
		"no column": "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,1\n",
		"ragged":    head + "2023-11-16 18:15:46,1\n",
		"time":      head + "yesterday,1,1\n",
		"backwards": head + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n",
		"no number": head + "2023-11-16 18:15:46,x,1\n",
		"no tokens": head + "2023-11-16 18:15:46,1,0\n",
		"many":      head + "2023-11-16 18:15:46,1,131073\n",
	} {
		if _, err := ReadTrace(strings.NewReader(text)); !errors.Is(err, ErrTrace) {
			t.Errorf("%s: %v, want ErrTrace", name, err)
		}
	}
	three := csv.NewReader(strings.NewReader(strings.Repeat("2023-11-16 18:15:46,1,1\n", 3)))
	if _, err := readRows(three, [3]int{0, 1, 2}, 2); !errors.Is(err, ErrTrace) {
		t.Errorf("over the limit: %v, want ErrTrace", err)
	}
	if rows, err := ReadTrace(strings.NewReader("GeneratedTokens,x,TIMESTAMP,ContextTokens\r\n2,y,2023-11-16 18:15:46.5,3\r\n")); err != nil || rows[0].Context != 3 || rows[0].Generated != 2 {
		t.Errorf("columns in another order: %v, %v", rows, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := New(Options{Prefill: -1, Decode: math.NaN(), Speed: math.Inf(1), Knee: -1, MaxActive: -1, MaxQueue: -2, WarmSessions: -1, KeepTurns: -1, Trace: []Row{{Context: 1}}})
	if !errors.Is(err, ErrOptions) {
		t.Fatalf("%v, want ErrOptions", err)
	}
	for _, name := range []string{"Prefill", "Decode", "Speed", "Knee", "MaxActive", "MaxQueue", "WarmSessions", "KeepTurns", "Trace"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	s, err := New(Options{MaxQueue: -1})
	if err != nil || s.engine.batch.maxQueue != 0 {
		t.Errorf("MaxQueue -1 must mean no queue: %v", err)
	}
}
