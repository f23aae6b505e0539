package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// target is something that can carry the load.
type target struct {
	name    string // starling, nginx, haproxy or direct
	path    string
	version string
	boot    func(ctx context.Context, path string, o order) (*process, error)
}

// order is what a proxy is to do.
type order struct {
	backend netip.AddrPort
	secure  bool // clients come by TLS
}

const direct = "direct" // the backend without a proxy

// bench is one run of all cases.
type bench struct {
	options
	dir               string
	trust             *tls.Config // of the certificate that the proxies show
	proxyCPU, loadCPU int
	targets           []target
	missing           []string
	log               io.Writer
}

func (b *bench) names() (names []string) {
	for _, t := range b.targets {
		names = append(names, t.name)
	}
	return names
}

// find collects the targets that are here and says which are not.
func (b *bench) find(ctx context.Context) {
	b.add(ctx, target{name: "starling", path: b.starling, boot: b.bootStarling}, "version", "make build, or -starling PATH")
	b.installPeers(ctx)
	b.add(ctx, target{name: "nginx", path: lookUp("nginx"), boot: b.bootNginx}, "-v", "apt-get install nginx")
	b.add(ctx, target{name: "haproxy", path: lookUp("haproxy"), boot: b.bootHAProxy}, "-v", "apt-get install haproxy")
}

func (b *bench) add(ctx context.Context, t target, versionArg, remedy string) {
	path, err := filepath.Abs(t.path)
	if t.path == "" {
		err = exec.ErrNotFound
	}
	if err == nil {
		t.path = path
		t.version, err = versionOf(ctx, path, versionArg)
	}
	if err != nil {
		fmt.Fprintf(b.log, "bench: goes on without %s: %v (%s)\n", t.name, err, remedy)
		b.missing = append(b.missing, t.name)
		return
	}
	b.targets = append(b.targets, t)
}

func versionOf(ctx context.Context, path, arg string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, arg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return first, nil
}

// lookUp knows that Debian keeps servers where only root looks.
func lookUp(name string) string {
	for _, p := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(p); err == nil {
			return found
		}
	}
	return ""
}

// installPeers takes Debian's packages, if it may. Their services are not
// started: RUNLEVEL=1 tells the packages' scripts that this is no time for it.
func (b *bench) installPeers(ctx context.Context) {
	var want []string
	for _, name := range []string{"nginx", "haproxy"} {
		if lookUp(name) == "" {
			want = append(want, name)
		}
	}
	if len(want) == 0 || !b.install || os.Geteuid() != 0 {
		return
	}
	fmt.Fprintln(b.log, "bench: installing", strings.Join(want, " and "))
	install := append([]string{"install", "-y", "--no-install-recommends"}, want...)
	if b.apt(ctx, install) == nil {
		return
	}
	err := b.apt(ctx, []string{"update"})
	if err == nil {
		err = b.apt(ctx, install)
	}
	if err != nil {
		fmt.Fprintln(b.log, "bench:", err)
	}
}

func (b *bench) apt(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, text[max(0, len(text)-300):])
	}
	return nil
}

func (b *bench) bootStarling(ctx context.Context, path string, o order) (*process, error) {
	file, err := b.write("starling.yaml", starlingConfig, starlingTLS, o)
	if err != nil {
		return nil, err
	}
	p, err := b.start([]string{"GOMAXPROCS=1"}, path, "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

func (b *bench) bootNginx(ctx context.Context, path string, o order) (*process, error) {
	return b.bootPeer(ctx, peer{"nginx.conf", nginxConfig, nginxTLS}, o, func(file string) []string {
		return []string{path, "-e", "stderr", "-p", b.dir, "-c", file}
	})
}

func (b *bench) bootHAProxy(ctx context.Context, path string, o order) (*process, error) {
	return b.bootPeer(ctx, peer{"haproxy.cfg", haproxyConfig, haproxyTLS}, o, func(file string) []string {
		return []string{path, "-db", "-f", file}
	})
}

// peer is how a proxy is configured.
type peer struct{ file, config, secure string }

func (b *bench) bootPeer(ctx context.Context, p peer, o order, command func(file string) []string) (*process, error) {
	at, err := freePort()
	if err != nil {
		return nil, err
	}
	file, err := b.write(p.file, strings.ReplaceAll(p.config, "LISTEN", at.String()), p.secure, o)
	if err != nil {
		return nil, err
	}
	c := command(file)
	run, err := b.start(nil, c[0], c[1:]...)
	if err != nil {
		return nil, err
	}
	run.at = at
	return run, run.awaitPort(ctx)
}

func (b *bench) write(name, config, secure string, o order) (string, error) {
	if !o.secure {
		secure = ""
	}
	config = strings.ReplaceAll(config, "SECURE", secure)
	room := fmt.Sprint(max(b.streams, sseStreams) + 500)
	text := strings.NewReplacer("BACKEND", o.backend.String(), "ROOM", room, "DIR", b.dir).Replace(config)
	file := filepath.Join(b.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write a configuration: %w", err)
	}
	return file, nil
}

// freePort may be taken by somebody else before it is used: the peer then ends
// at once, which voids the measurement and says why.
func freePort() (netip.AddrPort, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}
