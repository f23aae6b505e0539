package node

import (
	"encoding/json"
	"strings"
	"testing"
)

// What gives access is in no answer; all else is, with every key.
func TestConfigurationIsMasked(t *testing.T) {
	const key, password, token = "MDEyMzQ1Njc4OWFiY2RlZg==", "hunter2", "sk-very-private"
	c, err := Parse("lb.yaml", []byte(`
node: {name: lb-1}
cluster: {gossip_keys: ["`+key+`"]}
tracing: {otlp_endpoint: "http://user:`+password+`@127.0.0.1:4318"}
listeners: [{address: 127.0.0.1:0, routes: [{headers: {Authorization: "Bearer `+token+`", X-Api-Key: "`+token+`", X-Tier: gold}, pool: llm}]}]
pools: {llm: {backends: ["http://127.0.0.1:9001"]}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{}
	n.conf.Store(&c)
	got, err := n.Configuration()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{key, password, token, "user:"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is told:\n%s", secret, text)
		}
	}
	for _, want := range []string{`"name":"lb-1"`, `"X-Tier":"gold"`, `"Authorization":"***"`, `"gossip_keys":["***"]`, `"otlp_endpoint":"http://***@127.0.0.1:4318"`, `"policy":"p2c"`, `"drain_timeout":"2m"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not told:\n%s", want, text)
		}
	}
	if c.Cluster.GossipKeys[0] != key || c.Listeners[0].Routes[0].Headers["X-Api-Key"] != token {
		t.Error("the configuration in force is masked itself")
	}
	if got.Hash != c.Hash() {
		t.Errorf("hash %s, want %s", got.Hash, c.Hash())
	}
}
