package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const uploadBytes = 10 << 20

// spell is one call of curl and what is wrong with its outcome.
type spell struct {
	check string
	args  []string // the URL follows
	path  string
	in    []byte                   // standard input
	wrong func(got outcome) string // nil: curl itself must say so
}

// outcome is what a call of curl left.
type outcome struct {
	out, log string
	exit     int
	pieces   int // reads of its output, at least a millisecond apart
}

// chat is a request for an answer of so many tokens.
func chat(tokens int) string {
	return fmt.Sprintf(`{"stream":true,"seed":7,"max_tokens":%d,"messages":[{"role":"user","content":"Sing."}]}`, tokens)
}

// curl makes all calls.
func (r *rig) curl(ctx context.Context, t *table) error {
	upload := content(uploadBytes)
	for _, s := range spells(upload) {
		t.began = time.Now()
		got, err := s.cast(ctx, r.cluster.Node(0).URL())
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return fmt.Errorf("run curl, which has to be installed: %w", err)
		case err != nil:
			t.add("curl", s.check, err.Error())
		case s.wrong == nil:
			t.add("curl", s.check, cmp(got.exit != 0, "no error"))
		case got.exit != 0:
			t.add("curl", s.check, fmt.Sprintf("exit code %d: %s", got.exit, got.log))
		default:
			t.add("curl", s.check, s.wrong(got))
		}
	}
	return nil
}

func spells(upload []byte) []spell {
	const json = "Content-Type: application/json"
	const completions = "/v1/chat/completions"
	sum := func(framing string) string {
		return fmt.Sprintf("%x %d %s\n", sha256.Sum256(upload), len(upload), framing)
	}
	return []spell{
		{"a stream comes token by token", []string{"-N", "-H", json, "-d", chat(60)}, completions, nil, func(got outcome) string {
			return cmp(got.pieces >= 30 && tokens(got.out) == 60, "%d tokens in %d pieces", tokens(got.out), got.pieces)
		}},
		{"a stream for HTTP/1.0 has no chunks", []string{"-N", "-i", "--http1.0", "-H", json, "-d", chat(20)}, completions, nil, func(got outcome) string {
			head, body, _ := strings.Cut(got.out, "\r\n\r\n")
			return cmp(tokens(body) == 20 && strings.HasPrefix(body, "data: ") && !strings.Contains(strings.ToLower(head), "chunked"), "%.300q", got.out)
		}},
		{"an upload of 10 MiB waits for 100 Continue", []string{"-v", "-H", "Expect: 100-continue", "--expect100-timeout", "30", "--data-binary", "@-"}, "/files/a", upload, func(got outcome) string {
			return cmp(got.out == sum("length") && strings.Contains(got.log, "< HTTP/1.1 100 Continue"), "%q %.600q", got.out, got.log)
		}},
		{"an upload of unknown length (-T -)", []string{"-T", "-"}, "/files/b", upload, func(got outcome) string {
			return cmp(got.out == sum("chunked"), "%q", got.out)
		}},
		{"HEAD", []string{"-I"}, "/files/c", nil, func(got outcome) string {
			return cmp(strings.Contains(got.out, fmt.Sprintf("Content-Length: %d\r\n", fileBytes)), "%q", got.out)
		}},
		{"a download of 3 MiB", nil, "/files/d", nil, func(got outcome) string {
			return cmp(sha256.Sum256([]byte(got.out)) == sha256.Sum256(content(fileBytes)), "%d bytes", len(got.out))
		}},
		{"two requests on one connection", []string{"-o", "/dev/null", "-w", "%{num_connects} %{http_code}\\n", "-d", "x", "{}/files/e", "-o", "/dev/null"}, "/files/f", nil, func(got outcome) string {
			return cmp(got.out == "1 200\n0 200\n", "%q", got.out)
		}},
		{"503 where a pool has no backend", []string{"-i", "-H", "X-Pool: " + nonePool}, completions, nil, func(got outcome) string {
			return cmp(strings.HasPrefix(got.out, "HTTP/1.1 503 ") && strings.Contains(got.out, "X-Starling-Error: no_backend\r\n") && strings.Contains(got.out, "Retry-After: "), "%q", got.out)
		}},
		{"an answer that breaks off is an error", []string{"-N", "-o", "/dev/null"}, "/events/broken", nil, nil},
	}
}

// cmp is the fault of a check that did not hold.
func cmp(holds bool, format string, args ...any) string {
	if holds {
		return ""
	}
	return "got " + fmt.Sprintf(format, args...)
}

// tokens counts the events of an answer that carry one; a stream without its
// end has none.
func tokens(out string) int {
	if !strings.HasSuffix(out, "data: [DONE]\n\n") {
		return 0
	}
	return strings.Count(out, "\ndata: ") // the last is [DONE], the first not counted
}

func (s spell) cast(ctx context.Context, url string) (got outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	args := []string{"-sS", "--noproxy", "*"}
	for _, a := range s.args {
		args = append(args, strings.ReplaceAll(a, "{}", url))
	}
	cmd := exec.CommandContext(ctx, "curl", append(args, url+s.path)...)
	var log bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), "LC_ALL=C"), bytes.NewReader(s.in), &log
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return got, err
	}
	if err := cmd.Start(); err != nil {
		return got, err
	}
	buf, last := make([]byte, 64<<10), time.Time{}
	for {
		n, err := pipe.Read(buf)
		got.out += string(buf[:n])
		if now := time.Now(); n > 0 && now.Sub(last) >= time.Millisecond {
			got.pieces, last = got.pieces+1, now
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return got, errors.Join(err, cmd.Wait())
		}
	}
	err = cmd.Wait()
	got.log, got.exit = log.String(), cmd.ProcessState.ExitCode()
	if got.exit > 0 {
		err = nil
	}
	return got, err
}
