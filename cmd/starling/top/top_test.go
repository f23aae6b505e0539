package top

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/client"
)

var update = flag.Bool("update", false, "write what the tests expect anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a node that answers what its file says, and notes orders.
type fake struct {
	answers map[string]json.RawMessage
	fails   error
	orders  []string
	all     *fake // answers for all nodes
}

func (f *fake) Get(_ context.Context, v any, path ...string) error {
	if f.fails != nil {
		return f.fails
	}
	return json.Unmarshal(f.answers[strings.Join(path, "/")], v)
}

func (f *fake) Post(_ context.Context, body any, path ...string) error {
	text, err := json.Marshal(body)
	f.orders = append(f.orders, strings.Join(path, "/")+" "+string(text))
	return errors.Join(err, f.fails)
}

func (f *fake) Address() string { return "http://127.0.0.1:9901" }

// Follow tells of one event, and then of nothing more.
func (f *fake) Follow(ctx context.Context, to client.Follower) error {
	to.Take(api.Event{ID: "a-1", Kind: api.OperatorEvent, Reason: "drain backend, backend b2"})
	<-ctx.Done()
	return ctx.Err()
}

func newFake(t *testing.T) *fake {
	t.Helper()
	text, err := os.ReadFile("testdata/node.json")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	times := strings.NewReplacer("T0", at().Add(-time.Hour).Format(time.RFC3339), "T1", at().Add(-9*time.Second).Format(time.RFC3339))
	if err := json.Unmarshal([]byte(times.Replace(string(text))), &f.answers); err != nil {
		t.Fatal(err)
	}
	return f
}

// at is when all of it happens.
func at() time.Time { return time.Date(2026, 3, 1, 10, 0, 0, 0, time.Local) }

// seen is a model that has asked once and heard of two events.
func seen(t *testing.T, f *fake, width, height int) *model {
	t.Helper()
	m := &model{ctx: t.Context(), node: Asked{f, f.all}, every: time.Second}
	m.send(tea.WindowSizeMsg{Width: width, Height: height})
	r, ok := m.ask(false)().(round)
	if !ok || r.err != nil {
		t.Fatalf("answers: %v", r.err)
	}
	r.at = at()
	m.send(r)
	shard := 3
	m.send(happened{Kind: api.LeaderEvent, Time: at().Add(-time.Second), Shard: &shard, From: "lb-1", To: "lb-2", Reason: "term 4"})
	m.send(happened{Kind: api.StateEvent, Time: at(), Pool: "llm", Backend: "b2", From: "active", To: "ejected", Reason: "5 failures in a row, the last: no connection could be made"})
	return m
}

func (m *model) send(msg tea.Msg) tea.Cmd {
	_, cmd := m.Update(msg)
	return cmd
}

// press sends keys: a word of one letter, or the name of a key.
func (m *model) pressed(keys ...string) (cmd tea.Cmd) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd, "home": tea.KeyHome, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace}
	for _, k := range keys {
		key := tea.Key{Code: named[k]}
		if key.Code == 0 {
			key = tea.Key{Code: rune(k[0]), Text: k}
		}
		cmd = m.send(tea.KeyPressMsg(key))
	}
	return cmd
}

// bare is the screen without colours.
func (m *model) bare() string {
	return regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(m.View().Content, "")
}

// Every page is as it was looked at, in 80 columns of 24 lines, and no wider.
func TestPages(t *testing.T) {
	for i, name := range []string{"backends", "nodes", "shards", "sessions", "streams", "events"} {
		m := seen(t, newFake(t), 80, 24)
		m.pressed(string(rune('1' + i)))
		got := m.bare() + "\n"
		for n, l := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
			if utf8.RuneCountInString(l) > 80 || n >= 24 {
				t.Errorf("%s: line %d does not fit: %q", name, n, l)
			}
		}
		if n := strings.Count(got, "\n"); n != 24 {
			t.Errorf("%s: %d lines", name, n)
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s: %v; got\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// Every size is drawn: nothing is wider than the screen, and nothing panics.
func TestSizes(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {10, 3}, {20, 5}, {40, 10}, {79, 23}, {200, 60}} {
		m := seen(t, newFake(t), size[0], size[1])
		for range nPages {
			m.pressed("tab", "end")
			for _, l := range strings.Split(m.bare(), "\n") {
				if n := utf8.RuneCountInString(l); size[0] >= 40 && n > size[0] {
					t.Errorf("%v, page %d: %d columns: %q", size, m.page, n, l)
				}
			}
		}
	}
}

func TestRows(t *testing.T) {
	m := seen(t, newFake(t), 80, 12) // five rows
	m.pressed("3", "end")
	if at := m.row[pageShards]; m.bare() == "" || m.row[pageShards] != 16 {
		t.Errorf("the end is row %d", at)
	}
	if !strings.Contains(m.bare(), "\n16 ") || strings.Contains(m.bare(), "\n0 meta") {
		t.Errorf("the end is not shown:\n%s", m.bare())
	}
	m.pressed("home")
	if !strings.Contains(m.bare(), "\n0 meta") {
		t.Errorf("the beginning is not shown:\n%s", m.bare())
	}
	m.pressed("pgdown", "down", "up", "up")
	if m.bare(); m.row[pageShards] != 4 {
		t.Errorf("a page, one down and two up is row %d, want 4", m.row[pageShards])
	}
}

// An order is asked about first, and done by yes alone.
func TestOrders(t *testing.T) {
	for _, c := range []struct{ keys, asks, want string }{
		{"d n", "drain b1?", ""},
		{"d esc", "drain b1?", ""},
		{"d y", "drain b1?", "backends/b1/drain null"},
		{"down u y", "undrain b2?", "backends/b2/undrain null"},
		{"down a y", "admit b2 at once?", "backends/b2/admit null"},
		{"e y", "eject b1 for a while", "backends/b1/eject null"},
		{"w 1 2 enter", "weight of b1, now 1, 1 to 1000: 12_", `backends/b1/weight {"weight":12}`},
		{"w 1 2 backspace x 5 enter", "15_", `backends/b1/weight {"weight":15}`},
		{"w esc", "weight of b1", ""},
		{"2 d y", "drain lb-1, the node that is asked?", "node/drain null"},
		{"2 u y", "undrain lb-1", "node/undrain null"},
		{"4 down r y", "switch the moving of sessions of llm off?", `pools/llm/rebalance {"enabled":false}`},
	} {
		f := newFake(t)
		m := seen(t, f, 80, 24)
		keys := strings.Fields(c.keys)
		m.pressed(keys[:len(keys)-1]...)
		if !strings.Contains(m.bare(), c.asks) {
			t.Errorf("%s: is not asked %q:\n%s", c.keys, c.asks, m.bare())
		}
		cmd := m.pressed(keys[len(keys)-1])
		if len(f.orders) > 0 || m.question != nil {
			t.Errorf("%s: before it is run: %v, %v", c.keys, f.orders, m.question)
		}
		if cmd != nil {
			m.send(cmd())
		}
		if got := strings.Join(f.orders, "; "); got != c.want {
			t.Errorf("%s: ordered %q, want %q", c.keys, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	f := newFake(t)
	m := seen(t, f, 80, 24)
	f.fails = errors.New("no node answers at http://127.0.0.1:9901")
	m.send(m.pressed("d", "y")())
	if !strings.Contains(m.bare(), "no node answers") {
		t.Errorf("a refusal is not shown:\n%s", m.bare())
	}
	m.pressed("down")
	m.send(m.ask(false)())
	if text := m.bare(); !strings.Contains(text, "no node answers") || !strings.Contains(text, "b3") {
		t.Errorf("without an answer the last one stays, and it is said:\n%s", text)
	}
	m = seen(t, newFake(t), 80, 24)
	m.send(m.pressed("w", "enter")())
	if text := m.bare(); !strings.Contains(text, `"" is no weight`) {
		t.Errorf("no weight:\n%s", text)
	}
}

// All nodes are told of by a key: what each says, and who says nothing.
func TestAllNodes(t *testing.T) {
	f := newFake(t)
	started := at().Add(-time.Hour).Format(time.RFC3339)
	one := fmt.Sprintf(`{"node":{"name":"lb-1","version":"0.1.0","started":%q},"streams":{"in_flight":57,"waiting":2},"config_hash":"9c1185a5c5e9"`, started)
	f.all = &fake{answers: map[string]json.RawMessage{
		"status": json.RawMessage(one + `,"nodes":[{"name":"lb-1","state":"alive","self":true,"status":` + one + `}},
			{"name":"lb-2","state":"alive","status":` + one + `,"not_ready":"node is draining","elders":[{"pid":4242,"in_flight":3}]}},
			{"name":"lb-3","state":"dead","error":"it is dead, as this node sees it, and was not asked"}]}`),
		"streams": json.RawMessage(fmt.Sprintf(`{"streams":[{"id":"9","node":"lb-2","pool":"llm","backend":"b1","phase":"streaming","started":%q,"client":"192.0.2.9"}],
			"nodes":[{"name":"lb-3","error":"it did not answer within 2s"}]}`, started)),
	}}
	m := seen(t, f, 80, 24)
	m.pressed("2")
	if !strings.Contains(m.bare(), "c all nodes") || strings.Contains(m.bare(), "STREAMS") {
		t.Errorf("before the key:\n%s", m.bare())
	}
	m.send(m.pressed("c")())
	for _, want := range []string{"*lb-1        alive", "57     2 9c1185a5c5e9", "node is draining", "lb-3         dead", "it is dead", "c this node's view"} {
		if !strings.Contains(m.bare(), want) {
			t.Errorf("%q is not there:\n%s", want, m.bare())
		}
	}
	m.pressed("5")
	if text := m.bare(); !strings.Contains(text, "nothing of lb-3: it did not answer within 2s") || !strings.Contains(text, "9        lb-2       llm") {
		t.Errorf("streams of all:\n%s", text)
	}
	for _, l := range strings.Split(m.bare(), "\n") {
		if utf8.RuneCountInString(l) > 80 {
			t.Errorf("wider than the screen: %q", l)
		}
	}
	m.send(m.pressed("c")())
	if text := m.bare(); strings.Contains(text, "lb-2") || !strings.Contains(text, "192.0.2.7") {
		t.Errorf("this node's again:\n%s", text)
	}
}

// silent answers all questions but one.
type silent struct {
	*fake
	at string
}

func (s silent) Get(ctx context.Context, v any, path ...string) error {
	if path[0] == s.at {
		<-ctx.Done()
		return fmt.Errorf("%s: %w", s.at, ctx.Err())
	}
	return s.fake.Get(ctx, v, path...)
}

// slow answers as nodes do that wait for another one in vain.
type slow struct{ *fake }

func (s slow) Get(ctx context.Context, v any, path ...string) error {
	select {
	case <-time.After(3 * time.Second):
		return s.fake.Get(ctx, v, path...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Who is silent holds nobody up: all is asked for at once, and what comes is shown.
func TestSilentNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{ctx: t.Context(), node: Asked{newFake(t), slow{newFake(t)}}, width: 80, height: 24, whole: true}
		began := time.Now()
		r := m.ask(false)().(round)
		if took := time.Since(began); r.err != nil || len(r.parts) != 6 || took != 3*time.Second {
			t.Errorf("%d parts after %v, %v", len(r.parts), took, r.err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		m := seen(t, f, 80, 24)
		f.answers["backends"] = json.RawMessage(`{"backends":[{"id":"b9","pool":"llm","state":"active"}]}`)
		m.whole, m.node.All = true, silent{f, "streams"}
		m.send(m.ask(false)())
		if text := m.bare(); !strings.Contains(text, "b9") || !strings.Contains(text, "streams: context deadline exceeded") {
			t.Errorf("what came is not shown, or not what did not:\n%s", text)
		}
		if m.pressed("5"); !strings.Contains(m.bare(), "192.0.2.7") {
			t.Errorf("the streams that were known are gone:\n%s", m.bare())
		}
	})
}

// Whom to ask is settled when a round begins: keys that are pressed meanwhile are for
// the next one (and this test is for the race detector).
func TestKeysWhileAsking(t *testing.T) {
	f := newFake(t)
	f.all = &fake{answers: map[string]json.RawMessage{}} // it would fail
	m := seen(t, f, 80, 24)
	ask, came := m.ask(false), make(chan tea.Msg)
	go func() { came <- ask() }()
	m.pressed("c")
	if r := (<-came).(round); r.err != nil || !m.whole {
		t.Errorf("a round that had begun asked others: %v", r.err)
	}
}

// A name cannot move the cursor or colour the screen.
func TestNamesAreText(t *testing.T) {
	f := newFake(t)
	m := seen(t, f, 80, 24)
	m.said.backends.Backends[0].Reason = "\x1b[2J\r\nx\u0085"
	if text := m.bare(); strings.ContainsAny(text, "\x1b\r\u0085") || !strings.Contains(text, "?[2J??x?") {
		t.Errorf("%q", text)
	}
}

// All of it once, on a terminal that is a pair of pipes.
func TestRun(t *testing.T) {
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, Asked{newFake(t), nil}, 100*time.Millisecond, in, out, tea.WithWindowSize(80, 24))
		out.Close()
		keys.Close() // which ends who reads keys
	}()
	var text []byte
	buf := make([]byte, 4096)
	for quit := false; ; {
		n, err := screen.Read(buf)
		if text = append(text, buf[:n]...); err != nil {
			break
		}
		if !quit && strings.Contains(string(text), "drain backend") && strings.Contains(string(text), "b3") {
			quit = true
			go func() { _, _ = keys.Write([]byte("q")) }() // it is read, or the pipe is closed
		}
	}
	if err := <-done; err != nil {
		t.Errorf("%v; the screen was %q", err, text)
	}
}
