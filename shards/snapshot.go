package shards

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
)

// A snapshot, integers big-endian, text with a length byte before it: "SLTB",
// version u8, floor u32; count u32 of backends and each in the order of its number,
// "" where that is free; count u32 of holders and of each: node, boot u64; count
// u32 of pools and of each what a set command has; count u64 of sessions and of
// each in the order of places: key 16, backend u32, epoch u32. The same table is
// always the same bytes.
const (
	snapshotMagic = "SLTB"
	sessionBytes  = 24
)

func (t *Table) clone() *Table {
	return &Table{
		sessions: t.sessions.clone(), backends: names{text: slices.Clone(t.backends.text)}, // no numbers: it is only written
		holders: maps.Clone(t.holders), sets: maps.Clone(t.sets), floor: t.floor,
	}
}

// WriteTo writes a snapshot.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	out := &counter{w: bufio.NewWriterSize(w, 64<<10)}
	out.write(t.head())
	b := binary.BigEndian.AppendUint64(nil, uint64(t.sessions.n))
	out.write(b)
	for k, s := range t.sessions.all() {
		b = append(b[:0], k[:]...)
		b = binary.BigEndian.AppendUint32(b, s.backend)
		out.write(binary.BigEndian.AppendUint32(b, uint32(s.epoch)))
	}
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.n, out.err
}

// head is all but the sessions.
func (t *Table) head() []byte {
	b := append([]byte(snapshotMagic), codeVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(t.floor))
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.backends.text)))
	for _, name := range t.backends.text {
		b = appendText(b, name)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.holders)))
	for _, h := range t.Holders() {
		b = binary.BigEndian.AppendUint64(appendText(b, h.Node), h.Boot)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.sets)))
	for _, s := range t.Sets() {
		b = appendSet(b, s)
	}
	return b
}

type counter struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (c *counter) write(b []byte) {
	if c.err == nil {
		n, err := c.w.Write(b)
		c.n, c.err = c.n+int64(n), err
	}
}

// readTable reads a snapshot to its end.
func readTable(from io.Reader) (*Table, error) {
	in := &source{in: bufio.NewReaderSize(from, 64<<10)}
	head := in.take(len(snapshotMagic) + 1)
	if in.err == nil && string(head) != snapshotMagic+string(rune(codeVersion)) {
		return nil, fmt.Errorf("snapshot %w: it begins with %q", errCode, head)
	}
	t := NewTable()
	t.floor = Epoch(in.uint32())
	for _, part := range []struct {
		what string
		read func(*source) error
	}{{"backends", t.readBackends}, {"holders", t.readHolders}, {"pools", t.readSets}, {"sessions", t.readSessions}} {
		err := part.read(in)
		if in.err != nil {
			err = in.err
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %w: its %s: %w", errCode, part.what, err)
		}
	}
	if _, err := in.in.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("snapshot %w: it goes on after its end", errCode)
	}
	return t, nil
}

// source is a reader of bytes that are not all in memory; after an error it gives
// zeros.
type source struct {
	in  *bufio.Reader
	buf [256]byte
	err error
}

func (s *source) take(n int) []byte {
	b := s.buf[:n]
	if s.err == nil {
		_, s.err = io.ReadFull(s.in, b)
	}
	if s.err != nil {
		clear(b)
	}
	return b
}

func (s *source) uint16() uint16 { return binary.BigEndian.Uint16(s.take(2)) }
func (s *source) uint32() uint32 { return binary.BigEndian.Uint32(s.take(4)) }
func (s *source) uint64() uint64 { return binary.BigEndian.Uint64(s.take(8)) }
func (s *source) text() string   { return string(s.take(int(s.take(1)[0]))) }

// times calls f as often as the stream says, until an error: the number may be
// anything.
func (s *source) times(n uint64, f func() error) error {
	for range n {
		if err := f(); err != nil || s.err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) readBackends(in *source) error {
	b := &t.backends
	b.number = make(map[string]uint32)
	return in.times(uint64(in.uint32()), func() error {
		name := in.text()
		if _, twice := b.number[name]; twice {
			return fmt.Errorf("backend %q is there twice", name)
		}
		if name == "" {
			b.free++
		} else {
			b.number[name] = uint32(len(b.text))
		}
		b.text, b.uses = append(b.text, name), append(b.uses, 0)
		return nil
	})
}

func (t *Table) readHolders(in *source) error {
	var last Holder
	return in.times(uint64(in.uint32()), func() error {
		h := Holder{in.text(), in.uint64()}
		if h.Node < last.Node || h.Node == last.Node && len(t.holders) > 0 && h.Boot <= last.Boot || h.Node == "" {
			return fmt.Errorf("boot %d of %q after boot %d of %q", h.Boot, h.Node, last.Boot, last.Node)
		}
		t.holders[h], last = struct{}{}, h
		return nil
	})
}

func (t *Table) readSets(in *source) error {
	last := ""
	return in.times(uint64(in.uint32()), func() error {
		s := Set{Pool: in.text(), Revision: in.uint64()}
		if s.Pool <= last {
			return fmt.Errorf("pool %q after %q", s.Pool, last)
		}
		last = s.Pool
		err := in.times(uint64(in.uint16()), func() error {
			b := Backend{in.text(), in.uint32()}
			if n := len(s.Backends); b.ID == "" || n > 0 && s.Backends[n-1].ID >= b.ID {
				return fmt.Errorf("backend %q of pool %q is out of order", b.ID, s.Pool)
			}
			s.Backends = append(s.Backends, b)
			return nil
		})
		t.sets[s.Pool] = s
		return err
	})
}

func (t *Table) readSessions(in *source) error {
	var last Key
	err := in.times(in.uint64(), func() error {
		r := reader{rest: in.take(sessionBytes)}
		k, s := r.key(), spot{backend: r.uint32()}
		s.epoch = Epoch(r.uint32())
		if in.err != nil {
			return nil
		}
		if t.Len() > 0 && !follows(&k, &last) || s.epoch == 0 || int(s.backend) >= len(t.backends.text) || t.backends.text[s.backend] == "" {
			return fmt.Errorf("session %d: key %v after %v, epoch %d, backend %d of %d", t.Len(), k, last, s.epoch, s.backend, len(t.backends.text))
		}
		t.sessions.load(k, s)
		t.sum += weight(&k, s)
		t.backends.uses[s.backend]++
		last = k
		return nil
	})
	t.sessions.loaded()
	for i, name := range t.backends.text {
		if err == nil && in.err == nil && name != "" && t.backends.uses[i] == 0 {
			err = fmt.Errorf("backend %q has no session", name)
		}
	}
	return err
}
