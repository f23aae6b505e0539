package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// What is in the log, in a snapshot and in the map's file is JSON: small, seldom,
// and readable in an emergency. It is read strictly: a field that is not known
// was written by a newer program and means something, so that to pass over it
// would be to guess.
const codeVersion = 1

var errCode = errors.New("cannot be decoded")

// versioned is the form of both.
type versioned[T any] struct {
	Version int `json:"version"`
	Body    T   `json:"body"`
}

func encode[T any](v T) []byte {
	b, err := json.Marshal(versioned[T]{codeVersion, v})
	if err != nil {
		panic("BUG: " + err.Error()) // texts and numbers alone
	}
	return b
}

func decode[T any](what string, b []byte) (T, error) {
	var v versioned[T]
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	if err := in.Decode(&v); err != nil {
		return v.Body, fmt.Errorf("%s %w: %w; was it written by a newer program?", what, errCode, err)
	}
	if v.Version != codeVersion {
		return v.Body, fmt.Errorf("%s %w: version %d, this program knows %d", what, errCode, v.Version, codeVersion)
	}
	if _, err := in.Token(); err != io.EOF {
		return v.Body, fmt.Errorf("%s %w: it goes on after its end", what, errCode)
	}
	return v.Body, nil
}

// Encode is the map as it is kept and sent, secret and all.
func (m *Map) Encode() []byte { return encode(m) }

// DecodeMap reads what Encode wrote; of a cluster's map, not of an empty one.
func DecodeMap(b []byte) (*Map, error) {
	m, err := decode[*Map]("map", b)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("map %w: there is none", errCode)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("map %w: %w", errCode, err)
	}
	return m, nil
}

// Encode is the command as it is proposed.
func (c Command) Encode() []byte { return encode(c) }

// DecodeCommand reads what Encode wrote. A command that has not what its Op needs
// cannot be understood.
func DecodeCommand(b []byte) (Command, error) {
	c, err := decode[Command]("command", b)
	if err == nil && !c.whole() {
		err = fmt.Errorf("command %w: op %q of %q", errCode, c.Op, c.Key)
	}
	if err != nil {
		return Command{}, err
	}
	return c, nil
}

// whole tells whether all is there that the command needs, and fit to be looked
// at; whether it may be done is for Apply to say.
func (c Command) whole() bool {
	switch c.Op {
	case OpFound:
		return c.Map != nil
	case OpNode:
		return c.Key != "" && c.Node != nil && c.Node.check() == nil
	case OpShard:
		return c.Number >= 0 && c.Shard != nil
	case OpPool:
		return c.Key != "" && (c.Pool == nil || c.Pool.check() == nil)
	case OpLevel:
		return c.Level > 0
	}
	return false
}
