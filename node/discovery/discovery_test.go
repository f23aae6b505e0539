package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/starling-lb/starling/proxy/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// zone is a fake DNS: records by "name kind", in the zone file's form.
type zone struct {
	mu      sync.Mutex
	records map[string][]string
	broken  error
	deaf    uint16 // a kind of question that fails; 0: none does
	asked   int
}

func (z *zone) set(key string, records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.records == nil {
		z.records = map[string][]string{}
	}
	z.records[key] = records
}

func (z *zone) fail(err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken = err
}

func (z *zone) lookup(_ context.Context, name string, kind uint16) ([]dns.RR, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	if z.broken != nil {
		return nil, z.broken
	}
	if kind == z.deaf {
		return nil, errors.New("SERVFAIL")
	}
	records, ok := z.records[name+" "+dns.TypeToString[kind]]
	if !ok {
		return nil, errNoRecords
	}
	var list []dns.RR
	for _, text := range records {
		r, err := dns.NewRR(text)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return of(list, kind)
}

// log counts the warnings of a finder.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// finding is a running finder and what it told.
type finding struct {
	*Finder
	log  log
	mu   sync.Mutex
	told [][]backend.Config
}

func find(t *testing.T, cfg backend.SourceConfig, z *zone) *finding {
	t.Helper()
	f := &finding{}
	opt := Options{Logger: slog.New(slog.NewTextHandler(&f.log, nil)), Tell: func(list []backend.Config) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, list)
	}}
	if z != nil {
		opt.Lookup = z.lookup
		opt.Hosts = func(context.Context, string) ([]netip.Addr, error) { return nil, errNoName }
	}
	f.Finder = New(cfg, opt)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return f
}

// last is the last list told, as ids with weights, and how many were told.
func (f *finding) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.told) == 0 {
		return "nothing"
	}
	var ids []string
	for _, b := range f.told[len(f.told)-1] {
		ids = append(ids, fmt.Sprintf("%s*%d", b.ID, b.Weight))
	}
	return fmt.Sprintf("%d: %s", len(f.told), strings.Join(ids, " "))
}

func (f *finding) expect(t *testing.T, want string) {
	t.Helper()
	if got := f.last(); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func asked(change func(*backend.SourceConfig)) backend.SourceConfig {
	c := backend.DefaultSource()
	change(&c)
	return c
}

// wait lets virtual time pass.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var z zone
		z.set("llm A", "llm 20 IN A 10.0.0.2", "llm 20 IN A 10.0.0.1")
		z.set("llm AAAA", "llm 5 IN AAAA fd00::1")
		f := find(t, asked(func(c *backend.SourceConfig) { c.DNS = "https://llm:9000" }), &z)
		f.expect(t, "1: 10.0.0.1:9000*1 10.0.0.2:9000*1 [fd00::1]:9000*1")
		if url := f.told[0][0].URL; url != "https://10.0.0.1:9000" {
			t.Errorf("url %s", url)
		}

		z.set("llm A", "llm 0 IN A 10.0.0.2")
		wait(4 * time.Second)
		f.expect(t, "1: 10.0.0.1:9000*1 10.0.0.2:9000*1 [fd00::1]:9000*1") // the shortest TTL is 5 s
		wait(2 * time.Second)
		f.expect(t, "2: 10.0.0.2:9000*1 [fd00::1]:9000*1")

		z.mu.Lock()
		z.asked = 0
		z.mu.Unlock()
		wait(10 * time.Second)
		if z.asked < 18 || z.asked > 22 {
			t.Errorf("TTL 0: %d questions in 10 s, want two each second", z.asked)
		}
	})
}

// A failure keeps what was there, is said once, and ends without a word lost.
func TestDNSFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var z zone
		z.set("llm A", "llm 300 IN A 10.0.0.1")
		f := find(t, asked(func(c *backend.SourceConfig) { c.DNS = "llm:9000" }), &z)
		f.expect(t, "1: 10.0.0.1:9000*1")
		z.fail(errors.New("no answer"))
		wait(5 * time.Minute)
		f.expect(t, "1: 10.0.0.1:9000*1")
		if n := f.log.count("cannot be discovered"); n != 1 {
			t.Errorf("said %d times", n)
		}
		z.fail(nil)
		z.set("llm A", "llm 300 IN A 10.0.0.1", "llm 300 IN A 10.0.0.2")
		wait(2 * time.Second)
		f.expect(t, "2: 10.0.0.1:9000*1 10.0.0.2:9000*1")
		if n := f.log.count("discovered again"); n != 1 {
			t.Errorf("the end said %d times", n)
		}
	})
}

// Half an answer is better than none, and replaces no whole one.
func TestHalfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone{deaf: dns.TypeAAAA}
		z.set("llm A", "llm 300 IN A 10.0.0.1")
		z.set("llm AAAA", "llm 300 IN AAAA fd00::1")
		f := find(t, asked(func(c *backend.SourceConfig) { c.DNS = "llm:9000" }), &z)
		f.expect(t, "1: 10.0.0.1:9000*1")
		hear := func(deaf uint16) {
			z.mu.Lock()
			z.deaf = deaf
			z.mu.Unlock()
			wait(time.Minute)
		}
		hear(0)
		f.expect(t, "2: 10.0.0.1:9000*1 [fd00::1]:9000*1")
		hear(dns.TypeA)
		f.expect(t, "2: 10.0.0.1:9000*1 [fd00::1]:9000*1")
		z.set("llm AAAA", "llm 5 IN AAAA fd00::2") // the one that is heard goes on
		hear(dns.TypeA)
		f.expect(t, "3: 10.0.0.1:9000*1 [fd00::2]:9000*1")
	})
}

func TestSRV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var z zone
		z.set("_llm._tcp.x SRV",
			"_llm._tcp.x 30 IN SRV 20 100 9001 spare.x.",
			"_llm._tcp.x 30 IN SRV 10 3 9001 a.x.",
			"_llm._tcp.x 30 IN SRV 10 0 9002 b.x.")
		f := find(t, asked(func(c *backend.SourceConfig) { c.SRV = "_llm._tcp.x" }), &z)
		f.expect(t, "1: a.x:9001*3 b.x:9002*1")
		z.set("_llm._tcp.x SRV",
			"_llm._tcp.x 30 IN SRV 20 65535 9001 spare.x.",
			"_llm._tcp.x 30 IN SRV 20 32768 9001 other.x.",
			"_llm._tcp.x 30 IN SRV 20 0 9001 last.x.")
		wait(31 * time.Second)
		f.expect(t, "2: last.x:9001*1 other.x:9001*500 spare.x:9001*1000")
		z.set("_llm._tcp.x SRV", "_llm._tcp.x 30 IN SRV 0 0 0 .")
		wait(31 * time.Second)
		f.expect(t, "3: ") // said to be none
	})
}

func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var z zone
		var records []string
		for i := range MaxBackends + 2 {
			records = append(records, fmt.Sprintf("llm 300 IN A 10.1.%d.%d", i/256, i%256))
		}
		z.set("llm A", records...)
		f := find(t, asked(func(c *backend.SourceConfig) { c.DNS = "llm:9000" }), &z)
		if n := len(f.told[0]); n != MaxBackends || f.log.count("too many backends") != 1 {
			t.Errorf("%d told", n)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file counts once it has kept still; what is half written, faulty or gone
// changes nothing.
func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "backends.yaml")
		write(t, path, "backends:\n  - http://10.0.0.1:9000\n  - {id: two, url: http://10.0.0.2:9000, weight: 3}\n")
		f := find(t, asked(func(c *backend.SourceConfig) { c.File = path }), nil)
		f.expect(t, "1: 10.0.0.1:9000*1 two*3")

		write(t, path, "backends:\n  - http://10.0.0.1:9000\n") // half written: the rest comes in a moment
		wait(filePeriod)
		write(t, path, "backends:\n  - http://10.0.0.1:9000\n  - http://10.0.0.3:9000\n")
		wait(filePeriod)
		f.expect(t, "1: 10.0.0.1:9000*1 two*3")
		wait(filePeriod)
		f.expect(t, "2: 10.0.0.1:9000*1 10.0.0.3:9000*1")

		write(t, path, `{"backends": [{"id": "j", "url": "http://10.0.0.4:9000", "weight": 0}]}`)
		wait(3 * filePeriod)
		f.expect(t, "2: 10.0.0.1:9000*1 10.0.0.3:9000*1")
		if f.log.count(path+":1: backends[0].weight: 0 is out of range") != 1 {
			t.Errorf("the fault has no place: %s", f.log.text.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wait(3 * filePeriod)
		write(t, path, "")
		wait(3 * filePeriod)
		f.expect(t, "2: 10.0.0.1:9000*1 10.0.0.3:9000*1")

		// As a ConfigMap is changed: another file takes the name.
		aside := path + ".new"
		write(t, aside, `{"backends": [{"id": "j", "url": "http://10.0.0.4:9000"}]}`)
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
		wait(3 * filePeriod)
		f.expect(t, "3: j*1")
	})
}

func TestFileFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"- http://a:1\n", "f:1: yaml: is a list"},
		{"backends: [http://a:1, http://a:1]", `f:1: backends[1].id: "a:1" is also the id of backends[0]`},
		{"backends:\n  - {url: 'http://a:1', wieght: 2}", "f:2: backends[0].wieght: is no known key; did you mean weight?"},
		{"backends:\n  - ftp://a:1\n  - {id: x}", "f:2: backends[0].url"},
		{"backends: [", "f:2: yaml"},
	} {
		_, err := parseFile("f", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if list, err := parseFile("f", []byte("backends: []")); err != nil || len(list) != 0 {
		t.Errorf("no backends: %v, %v", list, err)
	}
}

// Sources add up; of two that name an id the first counts; the other's change
// leaves it alone.
func TestSourcesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var z zone
		z.set("llm A", "llm 5 IN A 10.0.0.1")
		path := filepath.Join(t.TempDir(), "backends.yaml")
		write(t, path, "backends:\n  - {url: http://10.0.0.1:9000, weight: 7}\n  - {id: two, url: http://10.0.0.2:9000}\n")
		f := find(t, asked(func(c *backend.SourceConfig) { c.DNS, c.File = "llm:9000", path }), &z)
		if got := f.last(); !strings.HasSuffix(got, ": 10.0.0.1:9000*1 two*1") {
			t.Errorf("told %q", got)
		}
		z.set("llm A", "llm 5 IN A 10.0.0.9")
		wait(6 * time.Second)
		if got := f.last(); !strings.HasSuffix(got, ": 10.0.0.1:9000*7 10.0.0.9:9000*1 two*1") {
			t.Errorf("told %q", got)
		}
	})
}

// serveDNS runs a real server that answers UDP with truncation for "big".
func serveDNS(t *testing.T) string {
	t.Helper()
	answer := func(tcp bool) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg)
			m.SetReply(q)
			switch name := q.Question[0].Name; {
			case strings.HasPrefix(name, "gone."):
				m.Rcode = dns.RcodeNameError
			case strings.HasPrefix(name, "ill."):
				m.Rcode = dns.RcodeServerFailure
			case strings.HasPrefix(name, "big.") && !tcp:
				m.Truncated = true
			case q.Question[0].Qtype == dns.TypeA:
				alias, _ := dns.NewRR(name + " 3 IN CNAME real.x.")
				a, _ := dns.NewRR("real.x. 60 IN A 10.0.0.7")
				m.Answer = []dns.RR{alias, a}
			}
			_ = w.WriteMsg(m)
		}
	}
	packets, conns := samePort(t)
	ready := make(chan struct{}, 2)
	started := func() { ready <- struct{}{} }
	udp := &dns.Server{PacketConn: packets, Handler: answer(false), NotifyStartedFunc: started}
	tcp := &dns.Server{Listener: conns, Handler: answer(true), NotifyStartedFunc: started}
	var tasks sync.WaitGroup
	for _, s := range []*dns.Server{udp, tcp} {
		tasks.Go(func() { _ = s.ActivateAndServe() })
	}
	<-ready
	<-ready
	t.Cleanup(func() { _, _ = udp.Shutdown(), tcp.Shutdown(); tasks.Wait() })
	return conns.Addr().String()
}

// samePort opens a port for both; the one that UDP is given may be taken for TCP.
func samePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		conns, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", conns.Addr().String())
		if err == nil {
			return packets, conns
		}
		_ = conns.Close()
	}
}

func TestAsk(t *testing.T) {
	server := serveDNS(t)
	for _, c := range []struct {
		names []string
		kind  uint16
		want  string
	}{
		{[]string{"here.x."}, dns.TypeA, "10.0.0.7 for 3s"}, // the alias's TTL bounds the address's
		{[]string{"gone.x.", "here.x."}, dns.TypeA, "10.0.0.7 for 3s"},
		{[]string{"big.x."}, dns.TypeA, "10.0.0.7 for 3s"}, // by TCP
		{[]string{"gone.x."}, dns.TypeA, errNoName.Error()},
		{[]string{"here.x."}, dns.TypeAAAA, errNoRecords.Error()},
		{[]string{"ill.x."}, dns.TypeA, server + " answered SERVFAIL"},
		{nil, dns.TypeA, "no DNS server is configured"},
	} {
		records, err := ask(t.Context(), []string{server}, c.names, c.kind)
		got := fmt.Sprint(err)
		if err == nil && len(records) == 1 {
			got = fmt.Sprintf("%v for %v", records[0].(*dns.A).A, seconds(records[0].Header().Ttl))
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.names, got, c.want)
		}
	}
}

// A name of the hosts file works although DNS does not know it.
func TestHostsFile(t *testing.T) {
	f := New(asked(func(c *backend.SourceConfig) { c.DNS = "localhost:9000" }), Options{Lookup: (&zone{}).lookup})
	list, again, err := f.addresses(t.Context(), backend.Target{Scheme: "http", Host: "localhost", Port: "9000"})
	if err != nil || again != 30*time.Second || !slices.ContainsFunc(list, func(c backend.Config) bool { return c.ID == "127.0.0.1:9000" }) {
		t.Errorf("localhost: %v, again in %v, %v", list, again, err)
	}
}
