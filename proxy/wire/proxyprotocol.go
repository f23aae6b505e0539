package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
)

// ErrProxy is a connection that begins with no PROXY header, or with a broken
// one. Nobody can be answered on it: what was read may not be HTTP at all.
var ErrProxy = errors.New("broken PROXY protocol header")

// MaxProxyHeader is the largest PROXY header that is taken, in bytes: the room
// a buffer needs before ParseProxy can be given a whole one.
const MaxProxyHeader = proxyV2Fixed + maxProxyBlock

const (
	proxyV1Start = "PROXY "
	maxProxyV1   = 107 // bytes with the CRLF; the specification's worst case

	proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV2Fixed     = 16
	maxProxyBlock    = 4 << 10 // addresses and TLVs; the field could say 64 KiB

	proxyTLVChecksum = 0x03
	proxyTLVTLS      = 0x20
	proxyClientTLS   = 0x01 // in the first byte of its value
)

// ProxyHeader is what a PROXY protocol header says about the connection that
// its sender relays. IPv4 addresses mapped into IPv6 come out as IPv4.
type ProxyHeader struct {
	Source      netip.AddrPort // not valid: the sender speaks for itself, and the socket's address holds
	Destination netip.AddrPort
	TLS         bool // the relayed client came by TLS; version 1 cannot tell
}

// ParseProxy reads the PROXY protocol header, version 1 or 2, that p begins
// with; n is its length. n 0 without an error asks for more bytes, at most
// MaxProxyHeader in all. A connection that must bring a header and fails here
// has to be closed (HAProxy's proxy-protocol.txt, sections 2.1 and 2.2).
func ParseProxy(p []byte) (h ProxyHeader, n int, err error) {
	switch {
	case begins(p, proxyV2Signature):
		return parseProxyV2(p)
	case begins(p, proxyV1Start):
		return parseProxyV1(p)
	}
	return h, 0, proxyError("the connection does not begin with one")
}

// begins tells whether p is the start of s, or s the start of p.
func begins(p []byte, s string) bool {
	n := min(len(p), len(s))
	return string(p[:n]) == s[:n]
}

func proxyError(what string) error { return fmt.Errorf("%w: %s", ErrProxy, what) }

func parseProxyV1(p []byte) (h ProxyHeader, n int, err error) {
	end := bytes.IndexAny(p[:min(len(p), maxProxyV1)], "\r\n")
	switch {
	case end < 0 && len(p) < maxProxyV1, end == len(p)-1 && p[end] == '\r' && len(p) < maxProxyV1:
		return h, 0, nil
	case end < 0 || end == maxProxyV1-1:
		return h, 0, proxyError("no line end within 107 bytes")
	case p[end] == '\n' || p[end+1] != '\n':
		return h, 0, proxyError("the line does not end with CRLF")
	}
	family, rest, _ := bytes.Cut(p[len(proxyV1Start):end], []byte(" "))
	switch string(family) {
	case "UNKNOWN": // what follows is to be ignored
		return h, end + 2, nil
	case "TCP4", "TCP6":
		if h, err = proxyV1Addresses(rest, family[3] == '4'); err != nil {
			return ProxyHeader{}, 0, err
		}
		return h, end + 2, nil
	}
	return h, 0, proxyError("the protocol is none of TCP4, TCP6, UNKNOWN")
}

// proxyV1Addresses reads "source destination port port", with single blanks.
func proxyV1Addresses(rest []byte, v4 bool) (h ProxyHeader, err error) {
	var tokens [4][]byte
	for i := range tokens {
		var more bool
		if tokens[i], rest, more = bytes.Cut(rest, []byte(" ")); more != (i < 3) {
			return h, proxyError("not two addresses and two ports")
		}
	}
	from, ok1 := proxyV1Address(tokens[0], v4)
	to, ok2 := proxyV1Address(tokens[1], v4)
	if !ok1 || !ok2 {
		return h, proxyError("an address is not of the family named")
	}
	fromPort, ok1 := proxyV1Port(tokens[2])
	toPort, ok2 := proxyV1Port(tokens[3])
	if !ok1 || !ok2 {
		return h, proxyError("a port is not a decimal number up to 65535 without leading zeros")
	}
	return ProxyHeader{Source: netip.AddrPortFrom(from, fromPort), Destination: netip.AddrPortFrom(to, toPort)}, nil
}

// proxyV1Address reads an address. The mixed form ::ffff:10.0.0.1 is taken too:
// inet_ntop writes it, and so senders that know IPv4 clients by a v6 socket.
func proxyV1Address(p []byte, v4 bool) (netip.Addr, bool) {
	a, err := netip.ParseAddr(string(p))
	return a.Unmap(), err == nil && a.Is4() == v4 && a.Zone() == ""
}

func proxyV1Port(p []byte) (uint16, bool) {
	if len(p) == 0 || len(p) > 5 || p[0] == '0' && len(p) > 1 {
		return 0, false
	}
	port := 0
	for _, b := range p {
		if b < '0' || b > '9' {
			return 0, false
		}
		port = port*10 + int(b-'0')
	}
	return uint16(port), port <= 65535
}

func parseProxyV2(p []byte) (h ProxyHeader, n int, err error) {
	if len(p) > len(proxyV2Signature) && p[12] != 0x20 && p[12] != 0x21 {
		return h, 0, proxyError("neither LOCAL nor PROXY of version 2")
	}
	if len(p) < proxyV2Fixed {
		return h, 0, nil
	}
	size := int(binary.BigEndian.Uint16(p[14:]))
	if size > maxProxyBlock {
		return h, 0, proxyError("more than 4 KiB of addresses and TLVs")
	}
	n = proxyV2Fixed + size
	if len(p) < n {
		return h, 0, nil
	}
	if p[12] == 0x20 { // LOCAL: whatever the block holds is to be discarded
		return h, n, nil
	}
	if h, err = proxyV2Block(p[:n]); err != nil {
		return ProxyHeader{}, 0, err
	}
	return h, n, nil
}

// proxyV2Block reads the addresses of a whole header with the command PROXY
// and checks what follows them. What is neither TCP over IPv4 nor over IPv6
// keeps the socket's address, as the specification has it for receivers that
// do not know the rest.
func proxyV2Block(p []byte) (h ProxyHeader, err error) {
	family, transport := p[13]>>4, p[13]&0xf
	if family > 3 || transport > 2 {
		return h, proxyError("unassigned address family or transport")
	}
	size := [4]int{0, 12, 36, 216}[family]
	block := p[proxyV2Fixed:]
	if len(block) < size {
		return h, proxyError("the block is too short for its addresses")
	}
	if family == 0 {
		return h, nil // nothing says where TLVs would begin
	}
	if h.TLS, err = readProxyTLVs(p, proxyV2Fixed+size); err != nil {
		return h, err
	}
	if family == 3 || transport != 1 {
		return h, nil
	}
	ip := (size - 4) / 2
	from, _ := netip.AddrFromSlice(block[:ip])
	to, _ := netip.AddrFromSlice(block[ip : 2*ip])
	ports := block[2*ip:]
	h.Source = netip.AddrPortFrom(from.Unmap(), binary.BigEndian.Uint16(ports))
	h.Destination = netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(ports[2:]))
	return h, nil
}

// readProxyTLVs goes over the TLVs from at to the end of the header p, and
// verifies the checksum if one is there. byTLS is what they say of the client.
func readProxyTLVs(p []byte, at int) (byTLS bool, err error) {
	sum := 0 // where the checksum stands; 0: none so far
	for at < len(p) {
		if len(p)-at < 3 {
			return false, proxyError("a TLV is cut off")
		}
		size := int(binary.BigEndian.Uint16(p[at+1:]))
		if len(p)-at-3 < size {
			return false, proxyError("a TLV is longer than what is left of the header")
		}
		switch {
		case p[at] == proxyTLVChecksum && (size != 4 || sum != 0):
			return false, proxyError("not one checksum of 4 bytes")
		case p[at] == proxyTLVChecksum:
			sum = at + 3
		case p[at] == proxyTLVTLS && size < 5:
			return false, proxyError("what says that the client came by TLS is too short")
		case p[at] == proxyTLVTLS:
			byTLS = p[at+3]&proxyClientTLS != 0
		}
		at += 3 + size
	}
	if sum != 0 && proxyChecksum(p, sum) != binary.BigEndian.Uint32(p[sum:]) {
		return false, proxyError("the checksum does not fit")
	}
	return byTLS, nil
}

// proxyChecksum is the CRC32c of p with the four bytes at sum taken as zero.
func proxyChecksum(p []byte, sum int) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	crc := ^crc32.Update(0, table, p[:sum])
	for range 4 { // by hand: a slice of zeros would be allocated
		crc = table[byte(crc)] ^ crc>>8
	}
	return crc32.Update(^crc, table, p[sum+4:])
}
