package wirecase

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// Case is what a client sends, what the backend does, and every result that is
// accepted.
type Case struct {
	ID            string   `json:"id"`
	Group         string   `json:"group"`
	Level         string   `json:"level"` // must, should or product
	Reason        string   `json:"reason"`
	Clause        string   `json:"clause"`
	Client        []Step   `json:"client"`
	Backend       [][]Step `json:"backend"` // the last script is for all further requests
	AnswersOnHead bool     `json:"backend_answers_on_head"`
	Methods       []string `json:"methods"`    // of the client's requests; GET where left out
	Responses     int      `json:"responses"`  // final responses to wait for
	TimeoutMS     int      `json:"timeout_ms"` // for each of them
	Accept        []Result `json:"accept"`     // one has to hold in all its parts

	raw []byte // the JSON it came from, in which a run fills in its token
}

// Step is one act of a client or a backend; exactly one is set.
type Step struct {
	Send         Latin  `json:"send"`
	SendRepeat   Latin  `json:"send_repeat"`
	Count        int    `json:"count"` // belongs to SendRepeat
	WaitMS       int    `json:"wait_ms"`
	RecvResponse bool   `json:"recv_response"` // client: the next complete final response
	HalfClose    bool   `json:"half_close"`    // client: no more bytes from here
	Close        string `json:"close"`         // fin or rst
}

// Result is one accepted outcome.
type Result struct {
	Name    string      `json:"name"`
	Client  ClientWant  `json:"client"`
	Backend BackendWant `json:"backend"`
}

// HeaderWant judges the fields of one head.
type HeaderWant struct {
	Lines  map[string][]Latin `json:"header_lines"`
	Joined map[string]Latin   `json:"header_joined"`
	Has    map[string]string  `json:"header_has"`
	Absent []string           `json:"header_absent"`
}

// ClientWant judges what came back to the client; what is not named is not
// judged.
type ClientWant struct {
	HeaderWant
	Status                []string `json:"status"`
	Statuses              []string `json:"statuses"`
	ClosedWithoutResponse bool     `json:"closed_without_response"`
	Interim               []int    `json:"interim"`
	NoInterim             bool     `json:"no_interim"`
	Version               string   `json:"version"`
	Body                  *Latin   `json:"body"`
	Complete              *bool    `json:"complete"`
	Closed                *bool    `json:"closed"`
	WireNot               some     `json:"wire_not"`
	After101              *Latin   `json:"after_101"`
	BodyStartsWithinMS    int      `json:"body_starts_within_ms"`
}

// BackendWant judges what came to the backends with the case's token.
type BackendWant struct {
	HeaderWant
	Requests           *int    `json:"requests"`
	MaxRequests        *int    `json:"max_requests"`
	CompleteRequests   *int    `json:"complete_requests"`
	Clean              bool    `json:"clean"`
	Method             string  `json:"method"`
	Target             []Latin `json:"target"`
	Body               *Latin  `json:"body"`
	BodyStartsWithinMS int     `json:"body_starts_within_ms"`
	NoTargetContains   some    `json:"no_target_contains"`
	WireNot            some    `json:"wire_not"`
}

// Latin is bytes, written in JSON as characters U+0000 to U+00FF.
type Latin string

// UnmarshalJSON turns each character into the byte of its value.
func (l *Latin) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return fmt.Errorf("character %U is no byte; write U+0000 to U+00FF", r)
		}
		b = append(b, byte(r))
	}
	*l = Latin(b)
	return nil
}

// some is one string or a list of them.
type some []Latin

func (s *some) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]Latin)(s))
	}
	var one Latin
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*s = some{one}
	return nil
}

// Load reads every *.json at the top of files; a case that cannot be played as
// written is an error, as are two of one id.
func Load(files fs.FS) ([]Case, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	var all []Case
	seen := map[string]string{}
	for _, name := range names {
		cases, err := loadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("wire cases in %s: %w", name, err)
		}
		for _, c := range cases {
			if other := seen[c.ID]; other != "" {
				return nil, fmt.Errorf("wire cases in %s: %s is in %s already", name, c.ID, other)
			}
			seen[c.ID] = name
		}
		all = append(all, cases...)
	}
	return all, nil
}

func loadFile(files fs.FS, name string) ([]Case, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return nil, err
	}
	cases := make([]Case, 0, len(raws))
	for i, raw := range raws {
		c, err := Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("case %d: %w", i+1, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// Parse reads one case from its JSON.
func Parse(raw []byte) (Case, error) {
	c := Case{raw: raw, Responses: 1, TimeoutMS: 2500}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", c.ID, err)
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", c.ID, err)
	}
	return c, nil
}

func (c *Case) check() error {
	switch {
	case c.ID == "":
		return errors.New("id is missing")
	case !slices.Contains([]string{"must", "should", "product"}, c.Level):
		return fmt.Errorf("level %q is none of must, should, product", c.Level)
	case len(c.Client) == 0 || len(c.Accept) == 0:
		return errors.New("it needs steps of a client and accepted results")
	}
	for _, script := range append(slices.Clone(c.Backend), c.Client) {
		for i, s := range script {
			if err := s.check(); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
	}
	return nil
}

func (s Step) check() error {
	acts := 0
	for _, set := range []bool{s.Send != "", s.SendRepeat != "", s.WaitMS > 0, s.RecvResponse, s.HalfClose, s.Close != ""} {
		if set {
			acts++
		}
	}
	switch {
	case acts != 1:
		return fmt.Errorf("it has %d acts; write exactly one", acts)
	case (s.SendRepeat != "") != (s.Count > 0):
		return errors.New("send_repeat and count go together")
	case s.Close != "" && s.Close != "fin" && s.Close != "rst":
		return fmt.Errorf("close %q; write fin or rst", s.Close)
	}
	return nil
}

// filled is the case with its token in every place.
func (c *Case) filled(token string) (Case, error) {
	return Parse(bytes.ReplaceAll(c.raw, []byte("{{T}}"), []byte(token)))
}

func (c *Case) timeout() time.Duration { return time.Duration(c.TimeoutMS) * time.Millisecond }

// script is what the backend plays for the nth request with the token.
func (c *Case) script(n int) []Step {
	if len(c.Backend) == 0 {
		return []Step{{Send: "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"}}
	}
	return c.Backend[min(n, len(c.Backend)-1)]
}
