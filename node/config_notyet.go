package node

// notYet lists every key of the contract that is not built, so that none is
// accepted in silence. With each goes the value that asks for nothing, if there
// is one: it describes what happens anyway and may stand. A feature that lands
// takes its lines out; docs/reference/config.md follows by a test.
func notYet() map[string]string {
	return map[string]string{
		"node.zone": `""`,

		"cluster.bind":             "",
		"cluster.rpc":              "",
		"cluster.advertise":        "",
		"cluster.seeds":            "",
		"cluster.bootstrap_expect": "",
		"cluster.label":            "",
		"cluster.gossip_keys":      "",
		"cluster.gossip_keys_file": "",
		"cluster.tls.ca_file":      "",
		"cluster.tls.cert_file":    "",
		"cluster.tls.key_file":     "",
		"cluster.insecure":         "",
		"shards.host":              "",
		"shards.count":             "",
		"shards.replicas":          "",

		"reload.watch": "false",

		"pools.*.policy=round_robin":          "",
		"pools.*.policy=weighted_round_robin": "",
		"pools.*.policy=random":               "",
		"pools.*.policy=least_connections":    "",
		"pools.*.policy=peak_ewma":            "",
		"pools.*.policy=least_response_time":  "",
		"pools.*.policy=consistent_hash":      "",
		"pools.*.policy=ip_hash":              "",

		"pools.*.placement.knee":         "",
		"pools.*.placement.draws":        "",
		"pools.*.placement.hash_key":     "client_ip", // of a policy that hashes
		"pools.*.placement.bounded_load": "125",       // likewise

		"pools.*.backend.engine":        "none",
		"pools.*.backend.slow_start":    "0s",
		"pools.*.backend.drain_timeout": "",

		"pools.*.discovery.dns":      `""`,
		"pools.*.discovery.srv":      `""`,
		"pools.*.discovery.file":     `""`,
		"pools.*.discovery.interval": "30s", // of nothing

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

		"pools.*.health.enabled":         "false",
		"pools.*.health.path":            "",
		"pools.*.health.ready_path":      `""`,
		"pools.*.health.interval":        "",
		"pools.*.health.timeout":         "",
		"pools.*.health.down_interval":   "",
		"pools.*.health.rise":            "",
		"pools.*.health.fall":            "",
		"pools.*.health.jitter":          "",
		"pools.*.health.expect_status":   "",
		"pools.*.health.expect_body":     `""`,
		"pools.*.health.slow_threshold":  "",
		"pools.*.health.representatives": "",
		"pools.*.health.type":            "",

		"pools.*.outlier.panic_percent": "0",
		"pools.*.outlier.latency":       "0s",

		"pools.*.rebalance.enabled":       "false",
		"pools.*.rebalance.threshold":     "",
		"pools.*.rebalance.interval":      "",
		"pools.*.rebalance.share":         "",
		"pools.*.rebalance.min_residence": "",
		"pools.*.rebalance.max_rate":      "off",
	}
}
