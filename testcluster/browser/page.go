package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// patience is how long a page may take to show something.
const patience = time.Minute

// page is one tab, and what went wrong in it.
type page struct {
	c       *chromium
	session string

	mu     sync.Mutex
	wrong  []string // errors, warnings of policy, exceptions
	asked  []string // URLs
	tokens int      // requests with a token
}

// newPage opens an empty tab.
func newPage(ctx context.Context, c *chromium) (*page, error) {
	var target struct{ TargetID string }
	if err := c.ask(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	if err := c.ask(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	p := &page{c: c, session: attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := p.do(ctx, domain+".enable", nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *page) do(ctx context.Context, method string, params any) error {
	return p.c.ask(ctx, p.session, method, params, nil)
}

// hear notes what the browser says of the page.
func (p *page) hear(m message) {
	var e struct {
		Type             string
		Entry            struct{ Source, Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Args    []struct{ Value any }
		Request struct {
			URL     string
			Headers map[string]string
		}
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Runtime.exceptionThrown":
		p.wrong = append(p.wrong, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		p.wrong = append(p.wrong, fmt.Sprintf("console.%s: %v", e.Type, e.Args))
	case "Log.entryAdded":
		if e.Entry.Source != "network" || strings.Contains(e.Entry.URL, "favicon") { // of refusals and breaks, which the checks cause
			p.wrong = append(p.wrong, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case "Network.requestWillBeSent":
		p.asked = append(p.asked, e.Request.URL)
		if e.Request.Headers["Authorization"] != "" {
			p.tokens++
		}
	}
}

func (p *page) visit(ctx context.Context, url string) error {
	return p.do(ctx, "Page.navigate", map[string]any{"url": url})
}

// eval runs a script in the page and reads its value into v.
func (p *page) eval(ctx context.Context, script string, v any) error {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.c.ask(ctx, p.session, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &answer)
	if err != nil {
		return err
	}
	if answer.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", script, answer.ExceptionDetails.Exception.Description)
	}
	if v == nil || answer.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Value, v)
}

// until waits for a script to say "", which is no fault, and else tells the last
// one.
func (p *page) until(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := "nothing was said"
	for {
		var said string
		if err := p.eval(ctx, script, &said); err != nil {
			said = err.Error()
		}
		if said == "" {
			return nil
		}
		if ctx.Err() == nil {
			last = said
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %s", patience, last)
		}
	}
}

// key presses a key as a person does.
func (p *page) key(ctx context.Context, name string) error {
	key := map[string]any{"key": name, "code": name}
	switch name {
	case "Tab":
		key["windowsVirtualKeyCode"] = 9
	case "Enter":
		key["windowsVirtualKeyCode"], key["text"] = 13, "\r"
	case "Escape":
		key["windowsVirtualKeyCode"] = 27
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		key["type"] = kind
		if kind == "keyUp" {
			delete(key, "text")
		}
		if err := p.do(ctx, "Input.dispatchKeyEvent", key); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) write(ctx context.Context, text string) error {
	return p.do(ctx, "Input.insertText", map[string]any{"text": text})
}

// look has the page be so wide, in light or dark.
func (p *page) look(ctx context.Context, width, height int, scheme string) error {
	err := p.do(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	if err != nil {
		return err
	}
	return p.do(ctx, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// shoot keeps a picture of the whole page, if anybody wants it.
func (p *page) shoot(ctx context.Context, dir, name string) error {
	if dir == "" {
		return nil
	}
	var shot struct{ Data string }
	if err := p.c.ask(ctx, p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot); err != nil {
		return err
	}
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
}

// faults are what went wrong in the page so far.
func (p *page) faults() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d faults: %s", len(p.wrong), strings.Join(p.wrong, "; "))
}

// outside are the requests that went elsewhere.
func (p *page) outside(base string) (urls []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.asked {
		if !strings.HasPrefix(u, base) && !strings.HasPrefix(u, "data:") && u != "about:blank" {
			urls = append(urls, u)
		}
	}
	return urls
}
