package node

import (
	"net/netip"
	"testing"
)

// TestLinkToAnAdminAPI: what a node tells of its admin API leads another machine to
// that node, and never to itself.
func TestLinkToAnAdminAPI(t *testing.T) {
	for _, c := range []struct {
		listens, configured, advertise string
		secure                         bool
		gossip, address, link          string
	}{
		{"127.0.0.1:9901", "127.0.0.1:9901", "", false, "10.0.0.2", "127.0.0.1:9901", ""},
		{"127.0.0.1:9901", "localhost:9901", "", false, "10.0.0.2", "localhost:9901", ""},
		{"[::1]:9901", "[::1]:9901", "10.0.0.2", false, "10.0.0.2", "[::1]:9901", ""},
		{"127.0.0.1:9922", "127.0.0.1:0", "", false, "127.0.0.1", "127.0.0.1:9922", "http://127.0.0.1:9922/"},
		{"10.0.0.2:9901", "10.0.0.2:9901", "", false, "10.0.0.2", "10.0.0.2:9901", "http://10.0.0.2:9901/"},
		{"[::]:9901", "0.0.0.0:9901", "", false, "10.0.0.2", "10.0.0.2:9901", "http://10.0.0.2:9901/"},
		{"[::]:9901", ":9901", "", false, "::ffff:10.0.0.2", "10.0.0.2:9901", "http://10.0.0.2:9901/"},
		{"[::]:9901", "[::]:9901", "", true, "fd00::2", "[fd00::2]:9901", "https://[fd00::2]:9901/"},
		{"[::]:9901", "0.0.0.0:9901", "lb-2.internal", true, "10.0.0.2", "lb-2.internal:9901", "https://lb-2.internal:9901/"},
		{"10.0.0.2:9901", "lb-2.internal:9901", "10.0.0.2", true, "10.0.0.2", "lb-2.internal:9901", "https://lb-2.internal:9901/"},
		{"[::]:9901", ":9901", "", false, "", "[::]:9901", ""},
	} {
		told := adminTold(c.listens, c.configured, c.advertise)
		if c.secure {
			told = overTLS + told
		}
		gossip, _ := netip.ParseAddr(c.gossip)
		if address, link := adminOf(told, gossip); address != c.address || link != c.link {
			t.Errorf("%+v: told as %q, it is %q with the link %q", c, told, address, link)
		}
	}
	for _, told := range []string{"", "javascript:alert(1)//", "https://"} { // of another version, or a stranger to our form
		if _, link := adminOf(told, netip.MustParseAddr("10.0.0.2")); link != "" {
			t.Errorf("%q became the link %q", told, link)
		}
	}
}
