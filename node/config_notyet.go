package node

// notYet lists every key of the contract that is not built, so that none is
// accepted in silence. With each goes the value that asks for nothing, if there
// is one: it describes what happens anyway and may stand. A feature that lands
// takes its lines out; docs/reference/config.md follows by a test.
func notYet() map[string]string {
	return map[string]string{
		"cluster.rpc":              "",
		"cluster.bootstrap_expect": "",
		"cluster.tls.ca_file":      "",
		"cluster.tls.cert_file":    "",
		"cluster.tls.key_file":     "",
		"shards.host":              "",
		"shards.count":             "",
		"shards.replicas":          "",

		"reload.watch": "false",

		"pools.*.sticky.key":              "",
		"pools.*.sticky.cookie.name":      "",
		"pools.*.sticky.cookie.secure":    "",
		"pools.*.sticky.cookie.same_site": "",
		"pools.*.sticky.cookie.ttl":       "",
		"pools.*.sticky.ttl":              "",
		"pools.*.sticky.max_sessions":     "",
		"pools.*.sticky.consistency":      "",
		"pools.*.sticky.bind_timeout":     "",
		"pools.*.sticky.max_body_scan":    "",
		"pools.*.sticky.epoch_header":     "",

		"pools.*.rebalance.enabled":       "false",
		"pools.*.rebalance.threshold":     "",
		"pools.*.rebalance.interval":      "",
		"pools.*.rebalance.share":         "",
		"pools.*.rebalance.min_residence": "",
		"pools.*.rebalance.max_rate":      "off",
	}
}
