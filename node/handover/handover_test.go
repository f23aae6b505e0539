package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute // no wait is longer

func eventually(t *testing.T, look func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for by := time.Now().Add(patience); ; <-tick.C {
		wrong := look()
		if wrong == "" {
			return
		}
		if time.Now().After(by) {
			t.Fatal(wrong)
		}
	}
}

// TestAddresses: a socket is found by what the configuration calls it, or by where it
// is bound; no port is no address.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:0", "127.0.0.1:0", true},
		{":80", "[::]:80", true},
		{"0.0.0.0:80", ":80", true},
		{"[::1]:80", "[0:0::1]:80", true},
		{"localhost:80", "localhost:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", ":80", false},
		{":0", "[::]:0", false},
		{"nonsense", "127.0.0.1:80", false},
	} {
		if same(c.a, c.b) != c.want || same(c.b, c.a) != c.want {
			t.Errorf("%s and %s are the same: want %v", c.a, c.b, c.want)
		}
	}
}

// TestSockets: a share of a socket listens on when the first is closed; what nobody
// takes is closed, and then nobody listens.
func TestSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all []Socket
	for range 2 {
		s, err := Share("tcp", "127.0.0.1:0", l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	packets, err := Share("udp", "127.0.0.1:7", p)
	if err := errors.Join(err, l.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	sockets := NewSockets(append(all, packets))
	if _, ok, _ := sockets.Listen(t.Context(), "tcp", "127.0.0.1:7"); ok {
		t.Error("a socket for packets was given out as another")
	}
	got, ok, err := sockets.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil || !ok || got.Addr().String() != at {
		t.Fatalf("%v, %v, %v; want one at %s", got, ok, err, at)
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	q, ok, err := sockets.ListenPacket(t.Context(), "udp", "127.0.0.1:7")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	_ = q.Close()
	if left := sockets.Close(); !slices.Equal(left, []string{"tcp 127.0.0.1:0"}) {
		t.Errorf("left over: %v", left)
	}
	_ = got.Close()
	if c, err := net.Dial("tcp", at); err == nil {
		_ = c.Close()
		t.Error("somebody listens still")
	}
	if _, err := Share("tcp", "x", io.NopCloser(nil)); err == nil || !strings.Contains(err.Error(), "no plain one") {
		t.Errorf("what is no socket was shared: %v", err)
	}
}

// TestStay: an elder lives for as long as it holds its file, and no longer.
func TestStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	living := func(want ...uint64) {
		t.Helper()
		if got, err := Living(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("living are %v, %v; want %v", got, err, want)
		}
	}
	living()
	a, err := Stay(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Stay(dir, 12)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "elder-of-nobody"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	living(12, 7) // as texts
	if _, err := Stay(dir, 7); err == nil {
		t.Error("two stay as one")
	}
	Depart(b)
	living(7)
	_ = a.Close() // as by its death
	living()
	if _, err := os.Stat(a.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead one left is still there: %v", err)
	}
}

// TestStayWhileOthersLook: whoever looks for elders removes what dead ones left; one
// that begins to stay meanwhile is seen from then on.
func TestStayWhileOthersLook(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	for range 3 {
		looking.Go(func() {
			for ctx.Err() == nil {
				_, _ = Living(dir)
			}
		})
	}
	for i := range 500 {
		f, err := Stay(dir, 7)
		if err != nil {
			t.Fatalf("the %d. time: %v", i, err)
		}
		if got, err := Living(dir); err != nil || !slices.Equal(got, []uint64{7}) {
			t.Fatalf("the %d. time: living are %v, %v", i, got, err)
		}
		Depart(f)
	}
}

// fakeHost answers what its test puts in.
type fakeHost struct {
	mu    sync.Mutex
	heard int
}

func (h *fakeHost) Call(_ context.Context, node, service string, question []byte) ([]byte, error) {
	if node == "nobody" {
		return nil, errors.New("nobody is there")
	}
	return fmt.Appendf(nil, "%s %s %s", node, service, question), nil
}

func (h *fakeHost) Feed(ctx context.Context, node, _ string, opening []byte, send func([]byte) error) error {
	for _, m := range []string{string(opening), "two", "three"} {
		if err := send([]byte(m)); err != nil {
			return err
		}
	}
	if node == "short" {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *fakeHost) Heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard++
}

func newLinks(t *testing.T, dir string) *Links {
	t.Helper()
	l := NewLinks(dir, new(fakeHost), slog.New(slog.DiscardHandler))
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// TestLink: an elder asks by its heir, in a directory whose path is longer than a
// socket's may be, too, and finds the next one at the same place.
func TestLink(t *testing.T) {
	for name, dir := range map[string]string{"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("long", 40))} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			link := NewLink(dir, 7)
			if _, err := link.Call(t.Context(), "n", "s", nil); err == nil {
				t.Error("an answer where nobody is")
			}
			for range 2 { // the second takes the first one's place
				links := newLinks(t, dir)
				if mode, err := os.Stat(filepath.Join(dir, socketName)); err != nil || mode.Mode().Perm() != 0o600 {
					t.Errorf("the socket: %v, %v", mode, err)
				}
				if got, err := link.Call(t.Context(), "n", "s", []byte("why")); err != nil || string(got) != "n s why" {
					t.Errorf("%q, %v", got, err)
				}
				if _, err := link.Call(t.Context(), "nobody", "s", nil); err == nil || err.Error() != "nobody is there" {
					t.Errorf("%v", err)
				}
				var got []string
				take := func(m []byte) error { got = append(got, string(m)); return nil }
				if err := link.Feed(t.Context(), "short", "s", []byte("one"), take); !errors.Is(err, io.EOF) || !slices.Equal(got, []string{"one", "two", "three"}) {
					t.Errorf("%q, %v", got, err)
				}
				links.Stop()
			}
		})
	}
}

// TestAFeedEndsOnBothSides: with who reads it, and with who sends it.
func TestAFeedEndsOnBothSides(t *testing.T) {
	dir := t.TempDir()
	links, link := newLinks(t, dir), NewLink(dir, 7)
	enough := errors.New("enough")
	if err := link.Feed(t.Context(), "n", "s", nil, func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	eventually(t, func() string {
		links.mu.Lock()
		defer links.mu.Unlock()
		if n := len(links.open); n > 0 {
			return fmt.Sprintf("%d visits last", n)
		}
		return ""
	})
	ended := make(chan error, 1)
	begun := make(chan struct{}, 8)
	go func() {
		ended <- link.Feed(context.Background(), "n", "s", nil, func([]byte) error { begun <- struct{}{}; return nil })
	}()
	<-begun
	links.Stop()
	if err := <-ended; err == nil {
		t.Error("a feed of an heir that ended goes on")
	}
}

// TestTell: an heir knows what its elder carries, and asks it; what an elder last said
// counts while it lives, and nothing of one that has ended.
func TestTell(t *testing.T) {
	dir := t.TempDir()
	stay, err := Stay(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	links := newLinks(t, dir)
	if !slices.Equal(links.Living(), []uint64{7}) || !links.Silent() {
		t.Fatal("the elder is not seen")
	}
	var mu sync.Mutex
	counts := Counts{Since: time.Unix(1, 0), InFlight: 1, Backends: []Carried{{ID: "b1", InFlight: 1}}}
	ctx, cancel := context.WithCancel(t.Context())
	var telling sync.WaitGroup
	telling.Go(func() {
		NewLink(dir, 7).Tell(ctx, time.Millisecond, func() Counts {
			mu.Lock()
			defer mu.Unlock()
			return counts
		}, func(limit int) []json.RawMessage {
			list, filler := make([]json.RawMessage, limit), strings.Repeat("x", 400) // a stream is as long
			for i := range list {
				list[i] = fmt.Appendf(nil, "%q", fmt.Sprintf("%d %s", i, filler))
			}
			return list
		})
	})
	carries := func(links *Links, want int64) {
		t.Helper()
		eventually(t, func() string {
			all := links.Elders()
			if len(all) != 1 || all[0].InFlight != want || all[0].PID != os.Getpid() {
				return fmt.Sprintf("%+v", all)
			}
			return ""
		})
	}
	carries(links, 1)
	if links.Silent() {
		t.Error("it has said nothing")
	}
	mu.Lock()
	counts.InFlight = 3
	mu.Unlock()
	carries(links, 3)
	for _, limit := range []int{12, maxStreams, 1, 0} { // of the most, many frames
		var got []json.RawMessage
		eventually(t, func() (wrong string) {
			var ok bool
			if got, ok = links.Streams(t.Context(), links.Elders()[0], limit); !ok || len(got) != limit {
				return fmt.Sprintf("asked for %d streams it lists %d, %v", limit, len(got), ok)
			}
			return ""
		})
		for i, s := range got {
			if !strings.HasPrefix(string(s), fmt.Sprintf(`"%d `, i)) {
				t.Fatalf("the %d. of %d is %s", i, limit, s)
			}
		}
	}
	links.Stop()
	links = newLinks(t, dir) // the next heir
	carries(links, 3)
	cancel()
	telling.Wait()
	eventually(t, func() string {
		if links.Elders()[0].line != nil {
			return "its visit lasts"
		}
		return ""
	})
	links.look()
	carries(links, 3) // it lives: it may come back
	if got, ok := links.Streams(t.Context(), links.Elders()[0], 12); ok {
		t.Errorf("nobody answers %q", got)
	}
	Depart(stay)
	eventually(t, func() string {
		if n := len(links.Elders()); n > 0 || len(links.Living()) > 0 {
			return "it counts still"
		}
		return ""
	})
}

// TestNonsense: what is no visit ends at once, and hurts nobody.
func TestNonsense(t *testing.T) {
	dir := t.TempDir()
	newLinks(t, dir)
	for _, text := range []string{"", "\xff\xff\xff\xff", "\x00\x00\x00\x02{}", "\x00\x00\x00\x04nope", "GET / HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("unix", filepath.Join(dir, socketName))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, text)
		_ = c.(*net.UnixConn).CloseWrite()
		if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: answered %q, %v", text, got, err)
		}
		_ = c.Close()
	}
	if got, err := NewLink(dir, 7).Call(t.Context(), "n", "s", []byte("x")); err != nil || string(got) != "n s x" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

// TestNobodyHandsOver: a process that was started by itself inherits nothing.
func TestNobodyHandsOver(t *testing.T) {
	if e, err := Inherit(); e != nil || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	t.Setenv(variable, "99")
	if e, err := Inherit(); e != nil || err == nil {
		t.Errorf("nonsense is believed: %v, %v", e, err)
	}
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "3")
	if s, err := Activated(); s != nil || err != nil {
		t.Errorf("another process's sockets: %v, %v", s, err)
	}
	t.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	t.Setenv("LISTEN_FDS", "many")
	if _, err := Activated(); err == nil {
		t.Error("nonsense is believed")
	}
	if err := Notify("", "READY=1"); err != nil {
		t.Errorf("nobody was not told: %v", err)
	}
	if err := Notify(filepath.Join(t.TempDir(), "none"), "READY=1"); err == nil {
		t.Error("told where nobody is")
	}
}

// ends are an elder and an heir that talk in one process.
func ends(t *testing.T) (*Heir, *Elder) {
	t.Helper()
	pair, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	var talks []*talk
	for _, fd := range pair {
		one, err := newTalk(fd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.close)
		talks = append(talks, one)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return &Heir{talk: talks[0], process: self}, &Elder{talk: talks[1]}
}

// TestWords: each waits for the other's word, and gives up at its time.
func TestWords(t *testing.T) {
	h, e := ends(t)
	taken := make(chan error, 1)
	large := fmt.Appendf(nil, "%q", strings.Repeat("x", 1<<20))
	go func() {
		estate, err := e.Take(t.Context())
		if string(estate) != string(large) {
			t.Errorf("of %d bytes that were left %d have come", len(large), len(estate))
		}
		taken <- errors.Join(err, e.Ready(t.Context(), "v2"))
	}()
	if err := errors.Join(h.AwaitTake(t.Context()), h.Yours(large), h.AwaitReady(t.Context()), h.Go(), <-taken); err != nil || h.Version != "v2" {
		t.Errorf("%v, of %q", err, h.Version)
	}

	h, _ = ends(t)
	slow := errors.New("too slow")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, slow)
	defer cancel()
	if err := h.AwaitTake(ctx); !errors.Is(err, slow) {
		t.Errorf("%v", err)
	}

	h, e = ends(t)
	go func() { _ = e.Fail(errors.New("no such key")) }()
	if err := h.AwaitTake(t.Context()); err == nil || err.Error() != "no such key" {
		t.Errorf("%v", err)
	}

	h, e = ends(t)
	_ = e.say(word{Word: wordReady})
	if err := h.AwaitTake(t.Context()); err == nil || !strings.Contains(err.Error(), `"ready" where "take" is due`) {
		t.Errorf("%v", err)
	}
}

// TestOlderPrograms: an heir that reads no estate gets none, and one of an elder that has
// none goes on without; a word without an end is not read for ever.
func TestOlderPrograms(t *testing.T) {
	h, e := ends(t)
	_ = e.say(word{Word: wordTake}) // as before there were estates
	heard := make(chan word, 1)
	go func() {
		w, _ := e.hear(t.Context(), wordYours)
		heard <- w
	}()
	if err := errors.Join(h.AwaitTake(t.Context()), h.Yours([]byte("{}"))); err != nil {
		t.Error(err)
	}
	if w := <-heard; w.Word != wordYours || w.Estate != nil {
		t.Errorf("it hears %+v", w)
	}
	h, e = ends(t)
	_ = h.say(word{Word: wordYours})
	if estate, err := e.Take(t.Context()); estate != nil || err != nil {
		t.Errorf("%s, %v", estate, err)
	}
	h, e = ends(t)
	go func() {
		for filler := []byte(strings.Repeat("x", 1<<20)); ; {
			if _, err := e.conn.Write(filler); err != nil {
				return
			}
		}
	}()
	if err := h.AwaitTake(t.Context()); err == nil || !strings.Contains(err.Error(), "a word of more than") {
		t.Errorf("%v", err)
	}
}

// TestUndone: who hears that the node was taken back does not take the other's end for
// its own beginning, at any time.
func TestUndone(t *testing.T) {
	for name, ask := range map[string]func(e *Elder) error{
		"take":  func(e *Elder) error { _, err := e.Take(t.Context()); return err },
		"ready": func(e *Elder) error { return e.Ready(t.Context(), "v2") },
	} {
		h, e := ends(t)
		_ = h.say(word{Word: wordUndone})
		h.close()
		if err := ask(e); !errors.Is(err, ErrUndone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDescends: a process is found behind a script that started it, and no other one is.
func TestDescends(t *testing.T) {
	c := exec.Command("/bin/sh", "-c", "sleep 60 & echo $!; wait")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	inner := 0
	_, err = fmt.Fscan(out, &inner)
	defer func() {
		_ = c.Process.Kill()
		if inner > 1 {
			_ = syscall.Kill(inner, syscall.SIGKILL)
		}
		_ = c.Wait()
	}()
	if err != nil {
		t.Fatal(err)
	}
	if !descends(inner, c.Process.Pid) || !descends(inner, os.Getpid()) || descends(os.Getpid(), c.Process.Pid) || descends(1, c.Process.Pid) || descends(inner, 1) {
		t.Error("who descends from whom is not known")
	}
}

// TestWhoIsGone: the heir of an elder that has ended goes on as if it had said so; an
// elder whose heir has ended hears it.
func TestWhoIsGone(t *testing.T) {
	h, e := ends(t)
	h.close()
	if estate, err := e.Take(t.Context()); estate != nil || err != nil {
		t.Errorf("%s, %v", estate, err)
	}
	if err := e.Ready(t.Context(), ""); err != nil {
		t.Errorf("%v", err)
	}
	h, e = ends(t)
	e.close()
	if err := h.AwaitTake(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

// TestSignals: the heir hears what it is told for as long as it lives, and no other
// process that has its number does.
func TestSignals(t *testing.T) {
	over := make(chan struct{})
	close(over)
	for name, c := range map[string]struct {
		heir func(p *os.Process) *Heir
		want string
	}{
		"lives":                       {func(p *os.Process) *Heir { return &Heir{process: p, ended: make(chan struct{})} }, "told"},
		"has ended":                   {func(p *os.Process) *Heir { return &Heir{process: p, ended: over} }, ""},
		"has outlived who started it": {func(p *os.Process) *Heir { return &Heir{inner: descendant(p.Pid, os.Getpid()), ended: over} }, "told"},
	} {
		p := exec.Command("/bin/sh", "-c", `trap "echo told" TERM; echo up; read x; read x; true`)
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
		c.heir(p.Process).End()
		_ = in.Close()
		said, err := io.ReadAll(out)
		if got := strings.TrimSpace(string(said)); err != nil || got != c.want {
			t.Errorf("one that %s heard %q, %v", name, got, err)
		}
		_ = p.Wait()
	}
}

// TestAWordThatNobodyReads: who does not read is not gone.
func TestAWordThatNobodyReads(t *testing.T) {
	h, _ := ends(t)
	h.takes, h.patience = true, 10*time.Millisecond
	if err := h.Yours(fmt.Appendf(nil, "%q", strings.Repeat("x", 4<<20))); err == nil || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "did not read it within 10ms") {
		t.Errorf("%v", err)
	}
	h, e := ends(t)
	e.close()
	if err := h.Yours(nil); !errors.Is(err, ErrGone) {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestSilence: an elder that lives and has not told of itself is waited for a time, and
// the host hears when that is over, and when the elder ends; a life of this process
// itself tells nothing.
func TestSilence(t *testing.T) {
	dir := t.TempDir()
	var stays []*os.File
	for _, boot := range []uint64{7, 8} {
		f, err := Stay(dir, boot)
		if err != nil {
			t.Fatal(err)
		}
		stays = append(stays, f)
	}
	silent := func(silence time.Duration, own ...uint64) (*Links, *fakeHost) {
		host := new(fakeHost)
		l := NewLinks(dir, host, slog.New(slog.DiscardHandler), own...)
		l.silence = silence
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		return l, host
	}
	isHeard := func(l *Links, h *fakeHost) {
		t.Helper()
		eventually(t, func() string {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.heard == 0 || l.Silent() {
				return fmt.Sprintf("heard %d times, silent %v", h.heard, l.Silent())
			}
			return ""
		})
		l.Stop()
	}
	l, _ := silent(time.Hour, 7, 8)
	if boots, _ := l.Carrying(); l.Silent() || len(boots) > 0 || len(l.Living()) != 2 {
		t.Errorf("own lives are waited for: %v", boots)
	}
	l.Stop()
	l, _ = silent(time.Hour, 7)
	if boots, heard := l.Carrying(); !l.Silent() || !slices.Equal(boots, []uint64{8}) || heard {
		t.Errorf("an elder is not waited for: %v, %v", boots, heard)
	}
	l.Stop()
	isHeard(silent(10*time.Millisecond, 7)) // it says nothing for too long
	l, h := silent(time.Hour, 7)
	Depart(stays[1])
	isHeard(l, h)
	Depart(stays[0])
}
