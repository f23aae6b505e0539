package wire

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"
)

// proxyV2 builds a version 2 header from its command and family bytes.
func proxyV2(command, family byte, block ...byte) string {
	head := append([]byte(proxyV2Signature), command, family)
	head = binary.BigEndian.AppendUint16(head, uint16(len(block)))
	return string(append(head, block...))
}

func proxyTLV(kind byte, value string) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value))), value...)
}

// proxySummed sets the checksum that stands that many bytes before the
// header's end, zero so far, and adds flip.
func proxySummed(head string, before int, flip uint32) string {
	p := []byte(head)
	sum := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(p[len(p)-before:], sum+flip)
	return string(p)
}

var proxyBlock4 = []byte{192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb}

func proxyBlock6() []byte {
	from, to := netip.MustParseAddr("2001:db8::1").As16(), netip.MustParseAddr("2001:db8::2").As16()
	return append(append(from[:], to[:]...), 0xdc, 0x04, 0x01, 0xbb)
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

const proxySocket = "-" // the header is taken, and the socket's address holds

func proxyCases() []struct{ name, head, from, to string } {
	const from4, to4, from6, to6 = "192.0.2.1:56324", "198.51.100.2:443", "[2001:db8::1]:56324", "[2001:db8::2]:443"
	checksum := proxyTLV(proxyTLVChecksum, "\x00\x00\x00\x00")
	return []struct{ name, head, from, to string }{
		{"v1 TCP4", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", from4, to4},
		{"v1 TCP4 widest", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535", "255.255.255.255:65535"},
		{"v1 TCP6", "PROXY TCP6 2001:db8::1 2001:DB8::2 56324 443\r\n", from6, to6},
		{"v1 TCP6 widest", "PROXY TCP6 " + strings.Repeat("ffff:", 7) + "fff1 " + strings.Repeat("ffff:", 7) + "fff2 65535 65535\r\n",
			"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff2]:65535"},
		{"v1 TCP6 mapped", "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 56324 443\r\n", from4, to4},
		{"v1 port 0", "PROXY TCP4 192.0.2.1 198.51.100.2 0 0\r\n", "192.0.2.1:0", "198.51.100.2:0"},
		{"v1 UNKNOWN", "PROXY UNKNOWN\r\n", proxySocket, ""},
		{"v1 UNKNOWN widest", "PROXY UNKNOWN " + strings.Repeat("f", 91) + "\r\n", proxySocket, ""},
		{"v1 too long", "PROXY UNKNOWN " + strings.Repeat("f", 92) + "\r\n", "", ""},
		{"v1 endless", "PROXY UNKNOWN " + strings.Repeat("f", 200), "", ""},
		{"v1 UNKNOWN glued", "PROXY UNKNOWNX\r\n", "", ""},
		{"v1 nothing", "PROXY \r\n", "", ""},
		{"v1 lower case", "PROXY tcp4 192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 lower case proxy", "proxy TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 UDP4", "PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 bare LF", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n", "", ""},
		{"v1 bare CR", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\rG", "", ""},
		{"v1 LF inside UNKNOWN", "PROXY UNKNOWN a\nb\r\n", "", ""},
		{"v1 two blanks", "PROXY TCP4  192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 two blanks behind", "PROXY TCP4 192.0.2.1 198.51.100.2 56324  443\r\n", "", ""},
		{"v1 tab", "PROXY\tTCP4 192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 trailing blank", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n", "", ""},
		{"v1 a token more", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n", "", ""},
		{"v1 a token less", "PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n", "", ""},
		{"v1 leading zero", "PROXY TCP4 192.0.02.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 three numbers", "PROXY TCP4 192.0.2 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 v6 in TCP4", "PROXY TCP4 2001:db8::1 2001:db8::2 56324 443\r\n", "", ""},
		{"v1 v4 in TCP6", "PROXY TCP6 192.0.2.1 198.51.100.2 56324 443\r\n", "", ""},
		{"v1 mixed families", "PROXY TCP4 192.0.2.1 2001:db8::2 56324 443\r\n", "", ""},
		{"v1 zone", "PROXY TCP6 fe80::1%eth0 2001:db8::2 56324 443\r\n", "", ""},
		{"v1 port zero-led", "PROXY TCP4 192.0.2.1 198.51.100.2 056 443\r\n", "", ""},
		{"v1 port too big", "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", "", ""},
		{"v1 port signed", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 +443\r\n", "", ""},

		{"v2 TCP4", proxyV2(0x21, 0x11, proxyBlock4...), from4, to4},
		{"v2 TCP6", proxyV2(0x21, 0x21, proxyBlock6()...), from6, to6},
		{"v2 LOCAL", proxyV2(0x20, 0x00), proxySocket, ""},
		{"v2 LOCAL with a block", proxyV2(0x20, 0xff, 1, 2, 3), proxySocket, ""},
		{"v2 UNSPEC", proxyV2(0x21, 0x00, 1, 2, 3), proxySocket, ""},
		{"v2 UDP4", proxyV2(0x21, 0x12, proxyBlock4...), proxySocket, ""},
		{"v2 UNIX", proxyV2(0x21, 0x31, make([]byte, 216)...), proxySocket, ""},
		{"v2 TLVs", proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(4, ""), proxyTLV(2, "a.example"))...), from4, to4},
		{"v2 largest", proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(4, strings.Repeat("x", maxProxyBlock-15)))...), from4, to4},
		{"v2 too large", proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(4, strings.Repeat("x", maxProxyBlock-14)))...), "", ""},
		{"v2 checksum", proxySummed(proxyV2(0x21, 0x21, join(proxyBlock6(), proxyTLV(5, "id"), checksum)...), 4, 0), from6, to6},
		{"v2 checksum before a TLV", proxySummed(proxyV2(0x21, 0x11, join(proxyBlock4, checksum, proxyTLV(4, "x"))...), 8, 0), from4, to4},
		{"v2 wrong checksum", proxySummed(proxyV2(0x21, 0x21, join(proxyBlock6(), checksum)...), 4, 1), "", ""},
		{"v2 wrong checksum, UDP", proxySummed(proxyV2(0x21, 0x12, join(proxyBlock4, checksum)...), 4, 1), "", ""},
		{"v2 short checksum", proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(3, "abc"))...), "", ""},
		{"v2 two checksums", proxySummed(proxyV2(0x21, 0x11, join(proxyBlock4, checksum, checksum)...), 4, 0), "", ""},
		{"v2 TLS without the rest", proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(proxyTLVTLS, "\x01\x00\x00\x00"))...), "", ""},
		{"v2 TLV cut off", proxyV2(0x21, 0x11, join(proxyBlock4, []byte{4, 0})...), "", ""},
		{"v2 TLV too long", proxyV2(0x21, 0x11, join(proxyBlock4, []byte{4, 0, 2, 0})...), "", ""},
		{"v2 block too short", proxyV2(0x21, 0x11, proxyBlock4[:11]...), "", ""},
		{"v2 UNIX too short", proxyV2(0x21, 0x31, make([]byte, 215)...), "", ""},
		{"v2 version 1", proxyV2(0x11, 0x11, proxyBlock4...), "", ""},
		{"v2 version 3", proxyV2(0x31, 0x11, proxyBlock4...), "", ""},
		{"v2 command", proxyV2(0x22, 0x11, proxyBlock4...), "", ""},
		{"v2 family", proxyV2(0x21, 0x41, make([]byte, 40)...), "", ""},
		{"v2 transport", proxyV2(0x21, 0x13, proxyBlock4...), "", ""},
		{"v2 signature", "\r\n\r\n\x00\r\nQUIX\n\x21\x11\x00\x00", "", ""},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "", ""},
		{"TLS", "\x16\x03\x01\x02\x00\x01", "", ""},
		{"an empty line first", "\r\nPROXY UNKNOWN\r\n", "", ""},
	}
}

// Every case is read whole, with more behind it, and cut off at every byte: a
// part of a good header only ever asks for more.
func TestParseProxy(t *testing.T) {
	for _, c := range proxyCases() {
		t.Run(c.name, func(t *testing.T) {
			h, n, err := ParseProxy([]byte(c.head + "GET / HTTP/1.1\r\n"))
			if c.from == "" {
				if !errors.Is(err, ErrProxy) || n != 0 || h != (ProxyHeader{}) {
					t.Fatalf("taken: %+v, %d bytes, %v; want ErrProxy", h, n, err)
				}
				return
			}
			want := ProxyHeader{}
			if c.from != proxySocket {
				want = ProxyHeader{Source: netip.MustParseAddrPort(c.from), Destination: netip.MustParseAddrPort(c.to)}
			}
			if err != nil || n != len(c.head) || h != want {
				t.Fatalf("got %+v, %d bytes, %v; want %+v, %d bytes", h, n, err, want, len(c.head))
			}
			if len(c.head) > MaxProxyHeader {
				t.Fatalf("taken with %d bytes, more than MaxProxyHeader", len(c.head))
			}
			for i := range len(c.head) {
				if h, n, err := ParseProxy([]byte(c.head[:i])); err != nil || n != 0 || h != (ProxyHeader{}) {
					t.Fatalf("first %d bytes: %+v, %d, %v; want to be asked for more", i, h, n, err)
				}
			}
		})
	}
}

// Whether the relayed client came by TLS is read from a header that is good in
// all else.
func TestParseProxyTLS(t *testing.T) {
	said := func(client byte) []byte { return proxyTLV(proxyTLVTLS, string([]byte{client, 0, 0, 0, 0, 0x21, 0, 0})) }
	for name, c := range map[string]struct {
		head string
		want bool
	}{
		"by TLS":              {proxyV2(0x21, 0x11, join(proxyBlock4, said(0x01))...), true},
		"with a certificate":  {proxyV2(0x21, 0x21, join(proxyBlock6(), proxyTLV(4, "x"), said(0x07))...), true},
		"not by TLS":          {proxyV2(0x21, 0x11, join(proxyBlock4, said(0x06))...), false},
		"nothing is said":     {proxyV2(0x21, 0x11, proxyBlock4...), false},
		"over a UNIX socket":  {proxyV2(0x21, 0x31, append(make([]byte, 216), said(0x01)...)...), true},
		"LOCAL says nothing":  {proxyV2(0x20, 0x11, join(proxyBlock4, said(0x01))...), false},
		"UNSPEC says nothing": {proxyV2(0x21, 0x00, said(0x01)...), false},
	} {
		if h, n, err := ParseProxy([]byte(c.head)); err != nil || n != len(c.head) || h.TLS != c.want {
			t.Errorf("%s: TLS is %v, %d bytes, %v", name, h.TLS, n, err)
		}
	}
}

func TestParseProxyRefusesAtOnce(t *testing.T) {
	for _, start := range []string{"G", "PROXZ", "\r\n\r\n\x01", proxyV2Signature + "\x31", proxyV2(0x21, 0x11)[:14] + "\x10\x01"} {
		if _, _, err := ParseProxy([]byte(start)); !errors.Is(err, ErrProxy) {
			t.Errorf("%q: %v; want ErrProxy without waiting for more", start, err)
		}
	}
}

func TestParseProxyV2DoesNotAllocate(t *testing.T) {
	head := []byte(proxySummed(proxyV2(0x21, 0x11, join(proxyBlock4, proxyTLV(proxyTLVChecksum, "\x00\x00\x00\x00"))...), 4, 0))
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseProxy(head) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseProxy(f *testing.F) {
	for _, c := range proxyCases() {
		f.Add([]byte(c.head), []byte("GET"))
	}
	f.Fuzz(func(t *testing.T, p, more []byte) {
		h, n, err := ParseProxy(p)
		switch {
		case err != nil && (n != 0 || h != (ProxyHeader{}) || !errors.Is(err, ErrProxy)):
			t.Fatalf("an error with a result: %+v, %d, %v", h, n, err)
		case n > len(p) || n > MaxProxyHeader:
			t.Fatalf("%d bytes taken of %d", n, len(p))
		case err == nil && n == 0 && len(p) >= MaxProxyHeader:
			t.Fatalf("more than %d bytes asked for", MaxProxyHeader)
		case h.Source.IsValid() != h.Destination.IsValid():
			t.Fatalf("half a pair: %+v", h)
		}
		if err == nil && n == 0 {
			return // more bytes may turn it either way
		}
		// The verdict stands whatever follows.
		h2, n2, err2 := ParseProxy(append(p[:len(p):len(p)], more...))
		if h2 != h || n2 != n || (err2 == nil) != (err == nil) {
			t.Fatalf("%+v %d %v became %+v %d %v", h, n, err, h2, n2, err2)
		}
	})
}
