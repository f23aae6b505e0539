package node

import (
	"fmt"
	"reflect"

	"github.com/starling-lb/starling/node/yamlstrict"
)

// checkFixed finds what a reload cannot change, each by its key.
func (n *Node) checkFixed(next Config, f fault) {
	now := *n.cfg()
	now.Node.DrainTimeout = next.Node.DrainTimeout // it is read when a drain begins
	for key, pair := range map[string][2]any{
		"node": {now.Node, next.Node}, "cluster": {now.Cluster, next.Cluster}, "shards": {now.Shards, next.Shards}, "admin": {now.Admin, next.Admin},
		"log": {now.Log, next.Log}, "access_log": {now.AccessLog, next.AccessLog}, "tracing": {now.Tracing, next.Tracing},
	} {
		checkSame(key, reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1]), f)
	}
	tls := map[string]bool{}
	for _, l := range now.Listeners {
		tls[l.Address] = l.TLS.CertFile != ""
	}
	for i, l := range next.Listeners {
		if was, ok := tls[l.Address]; ok && was != (l.TLS.CertFile != "") {
			f(fmt.Sprintf("listeners[%d].tls", i), "cannot come or go while the node listens here; restart it, or write another port")
		}
	}
	for name, p := range next.Pools {
		if p.Sticky != nil && n.quorum.Load() == nil {
			f(yamlstrict.Join("pools", name)+".sticky", "cannot come to a node that started without sessions and without a cluster: nothing here keeps them; restart it")
		}
	}
}

// checkSame reports the keys in which two values differ.
func checkSame(key string, now, next reflect.Value, f fault) {
	if now.Kind() != reflect.Struct {
		if !reflect.DeepEqual(now.Interface(), next.Interface()) {
			f(key, "cannot change while the node runs; restart it, or write what it was started with")
		}
		return
	}
	for i := range now.NumField() {
		checkSame(key+"."+now.Type().Field(i).Tag.Get("yaml"), now.Field(i), next.Field(i), f)
	}
}
