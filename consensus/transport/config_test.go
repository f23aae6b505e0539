package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name string
		c    Config
		want string
	}{
		{"default", DefaultConfig(), ""},
		{"not loopback", Config{Address: "10.0.0.1:7947"}, "insecure"},
		{"wildcard", Config{Address: ":7947"}, "insecure"},
		{"insecure", Config{Address: "10.0.0.1:7947", Insecure: true}, ""},
		{"tls", Config{Address: "10.0.0.1:7947", TLS: TLS{"ca", "cert", "key"}}, ""},
		{"half", Config{Address: "127.0.0.1:7947", TLS: TLS{CAFile: "ca"}}, "needs all"},
		{"no address", Config{Address: "here"}, "no address"},
	} {
		var said bytes.Buffer
		c.c.Validate(func(key, format string, args ...any) { fmt.Fprintf(&said, key+": "+format+"\n", args...) })
		if !strings.Contains(said.String(), c.want) || c.want == "" && said.Len() > 0 {
			t.Errorf("%s: said %q, want %q in it", c.name, said.String(), c.want)
		}
	}
}
