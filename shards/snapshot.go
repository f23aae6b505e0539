package shards

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
)

// A snapshot, integers big-endian, text with a length byte before it: "SLTB",
// version u8, floor u32, count u32 of backends and each in the order of its
// number, count u64 of sessions and each by key: key 16, backend u32, epoch u32.
// The same table is always the same bytes.
const (
	snapshotMagic = "SLTB"
	sessionBytes  = 24
)

func (t *Table) clone() *Table {
	return &Table{bindings: maps.Clone(t.bindings), backends: slices.Clone(t.backends), floor: t.floor} // no numbers: it is only written
}

// WriteTo writes a snapshot.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	out := &counter{w: bufio.NewWriter(w)}
	b := append([]byte(snapshotMagic), codeVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(t.floor))
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.backends)))
	for _, name := range t.backends {
		b = appendText(b, name)
	}
	out.write(binary.BigEndian.AppendUint64(b, uint64(len(t.bindings))))
	for _, k := range slices.SortedFunc(maps.Keys(t.bindings), func(a, b Key) int { return bytes.Compare(a[:], b[:]) }) {
		s := t.bindings[k]
		b = append(b[:0], k[:]...)
		b = binary.BigEndian.AppendUint32(b, s.backend)
		out.write(binary.BigEndian.AppendUint32(b, uint32(s.epoch)))
	}
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.n, out.err
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
	in := bufio.NewReader(from)
	fail := func(what string, err error) (*Table, error) {
		return nil, fmt.Errorf("snapshot %w: %s: %w", errCode, what, err)
	}
	head := make([]byte, len(snapshotMagic)+9)
	if _, err := io.ReadFull(in, head); err != nil {
		return fail("its head", err)
	}
	r := reader{rest: head[len(snapshotMagic):]}
	if version := r.byte(); string(head[:len(snapshotMagic)]) != snapshotMagic || version != codeVersion {
		return nil, fmt.Errorf("snapshot %w: it begins with %q", errCode, head[:len(snapshotMagic)+1])
	}
	t := NewTable()
	t.floor = Epoch(r.uint32())
	for range r.uint32() {
		name, err := readText(in)
		if err != nil {
			return fail("its backends", err)
		}
		if before := len(t.backends); name == "" || t.number(name) != uint32(before) {
			return nil, fmt.Errorf("snapshot %w: backend %q is there twice", errCode, name)
		}
	}
	if err := t.readSessions(in); err != nil {
		return fail("its sessions", err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		return nil, fmt.Errorf("snapshot %w: it goes on after its end", errCode)
	}
	return t, nil
}

func readText(in *bufio.Reader) (string, error) {
	n, err := in.ReadByte()
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return string(b), err
}

func (t *Table) readSessions(in *bufio.Reader) error {
	b := make([]byte, sessionBytes)
	if _, err := io.ReadFull(in, b[:8]); err != nil {
		return err
	}
	var last Key
	for i := range binary.BigEndian.Uint64(b) {
		if _, err := io.ReadFull(in, b); err != nil {
			return err
		}
		r := reader{rest: b}
		k, s := r.key(), slot{backend: r.uint32()}
		s.epoch = Epoch(r.uint32())
		if i > 0 && bytes.Compare(last[:], k[:]) >= 0 || s.epoch == 0 || int(s.backend) >= len(t.backends) {
			return fmt.Errorf("session %d: key %v after %v, epoch %d, backend %d of %d", i, k, last, s.epoch, s.backend, len(t.backends))
		}
		t.bindings[k], last = s, k
	}
	return nil
}
