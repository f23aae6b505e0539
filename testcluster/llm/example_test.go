package llm_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-lb/starling/testcluster/llm"
)

// A backend that breaks every answer after three tokens, seen by a client.
func Example() {
	ctx := context.Background()
	backend, err := llm.New(llm.Options{ID: "b1", Speed: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := backend.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer backend.Stop(ctx)
	if err := backend.SetFaults(llm.Faults{BreakAfter: 3}); err != nil {
		fmt.Println(err)
		return
	}

	body := `{"messages": [{"role": "user", "content": "hello"}], "stream": true, "max_tokens": 10}`
	resp, err := http.Post(backend.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	events := 0
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "data: ") {
			events++
		}
	}
	turns, _ := backend.Turns(0)
	fmt.Println(events, "events, then an error:", in.Err() != nil)
	fmt.Println("the backend says:", turns[0].Outcome, "after", turns[0].Output)
	// Output:
	// 3 events, then an error: true
	// the backend says: broken after 3
}

// In a test, ForTest starts a backend and ends it with the test.
func ExampleForTest() {
	t := new(testing.T) // the test's own

	backend := llm.ForTest(t, llm.Options{Speed: 10})
	defer backend.Stop(context.Background()) // not needed in a test
	resp, err := http.Get(backend.URL() + "/health")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
