#!/usr/bin/env bash
# Five real nodes, each in a network namespace of its own on one bridge, and
# real loss between them: a split 3|2, UDP lost alone, one direction lost. Needs
# root or unprivileged user namespaces, iproute2 and iptables. It changes nothing
# of the machine: all of it lives in namespaces that end with it.
#
# usage: netns.sh BINARY [SECONDS]   SECONDS: how long the split lasts, 60
set -euo pipefail

if [ -z "${NETNS_INSIDE:-}" ]; then
	export PATH=$PATH:/usr/sbin:/sbin
	if ! command -v iptables >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get install -y iptables >/dev/null
	fi
	for tool in ip iptables unshare; do
		command -v $tool >/dev/null || { echo "netns: $tool is missing; install iproute2, iptables and util-linux" >&2; exit 1; }
	done
	self=$(realpath "$0") binary=$(realpath "${1:?usage: netns.sh BINARY [SECONDS]}")
	map=(--map-root-user)
	[ "$(id -u)" = 0 ] && map=()
	NETNS_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc "${map[@]}" bash "$self" "$binary" "${2:-60}"
fi

binary=$1 lasts=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
export XTABLES_LOCKFILE=$dir/xtables.lock
all="1 2 3 4 5"

at() { # NODE COMMAND...
	local n=$1
	shift
	ip netns exec "n$n" "$@"
}

ip link add br0 type bridge
ip link set br0 up
key=$(head -c 32 /dev/urandom | base64)
for n in $all; do
	ip netns add "n$n"
	ip link add "v$n" type veth peer name eth0 netns "n$n"
	ip link set "v$n" master br0 up
	at "$n" ip link set lo up
	at "$n" ip addr add "10.77.0.$n/24" dev eth0
	at "$n" ip link set eth0 up
	mkdir "$dir/n$n"
	cat >"$dir/n$n.yaml" <<END
node: {name: n$n, data_dir: $dir/n$n/data, drain_timeout: 1s}
cluster: {bind: "10.77.0.$n:7946", rpc: "10.77.0.$n:7947", insecure: true, bootstrap_expect: 5, seeds: ["10.77.0.1:7946", "10.77.0.2:7946", "typo.invalid:7946"], gossip_keys: ["$key"]}
admin: {address: "127.0.0.1:9901"}
listeners: [{address: "127.0.0.1:8080"}]
pools: {llm: {backends: ["http://127.0.0.1:9001"], health: {enabled: false}, sticky: {}}}
END
	at "$n" "$binary" serve --config "$dir/n$n.yaml" >"$dir/n$n/out" 2>"$dir/n$n/log" &
done

# seen NODE: its alive members' names, and * behind those that only TCP reaches.
seen() {
	at "$1" "$binary" members --json 2>/dev/null | tr '{' '\n' | sed -nE '/"state":"(alive|suspect)"/ { s/.*"name":"([^"]*)".*"udp_lost":(true|false).*/\1 \2/; s/ true/*/; s/ false//; p }' | sort | tr '\n' ' '
}

failed=0
# await LIMIT WHAT NODES WANT: within LIMIT seconds every one of NODES sees WANT.
await() {
	local limit=$1 what=$2 nodes=$3 want=$4 start got n ok
	start=$(date +%s%N)
	while :; do
		ok=1
		for n in $nodes; do
			got=$(seen "$n")
			[ "$got" = "$want " ] || { ok=0; break; }
		done
		local took=$((($(date +%s%N) - start) / 1000000))
		if [ $ok = 1 ]; then
			printf '%-58s %6d ms, at most %d\n' "$what" "$took" $((limit * 1000))
			return
		fi
		if [ $took -gt $((limit * 1000)) ]; then
			printf '%-58s FAILED: n%s sees "%s", want "%s"\n' "$what" "$n" "$got" "$want"
			failed=1
			return
		fi
		sleep 0.1
	done
}

# agreed LIMIT WHAT: within LIMIT seconds all nodes are of one cluster, and every
# shard of the sessions has a leader, as far as each can tell.
agreed() {
	local limit=$1 what=$2 start got n ids
	start=$(date +%s%N)
	while :; do
		ids=""
		for n in $all; do
			got=$(at "$n" "$binary" status --json 2>/dev/null)
			[[ $got == *'"meta_quorum":true'* && $got == *'"count":16,'*'"without_leader":0'* ]] || { ids=""; break; }
			ids+=$(sed -E 's/.*"cluster":\{"id":"([^"]*)".*/\1/' <<<"$got")$'\n'
		done
		local took=$((($(date +%s%N) - start) / 1000000))
		if [ -n "$ids" ] && [ "$(sort -u <<<"${ids%?}" | wc -l)" = 1 ]; then
			printf '%-58s %6d ms, at most %d\n' "$what" "$took" $((limit * 1000))
			return
		fi
		if [ $took -gt $((limit * 1000)) ]; then
			printf '%-58s FAILED: n%s says %s\n' "$what" "$n" "$got"
			failed=1
			return
		fi
		sleep 0.1
	done
}

heal() { for n in $all; do at "$n" iptables -F; done; }

await 10 "five nodes in any order, one seed with a typing error" "$all" "n1 n2 n3 n4 n5"
grep -q "typing error in cluster.seeds.*typo.invalid" "$dir/n3/log" || { echo "the typing error is not reported"; failed=1; }

agreed 60 "the five are one cluster, every shard has a leader"

for n in 1 2 3; do for m in 4 5; do
	at $n iptables -A INPUT -s 10.77.0.$m -j DROP
	at $m iptables -A INPUT -s 10.77.0.$n -j DROP
done; done
await 15 "split: the three see three" "1 2 3" "n1 n2 n3"
await 15 "split: the two see two" "4 5" "n4 n5"
sleep "$lasts"
heal
await 10 "healed after $lasts s more: one membership" "$all" "n1 n2 n3 n4 n5"
agreed 30 "and still one cluster, every shard has a leader"

at 5 iptables -A INPUT -p udp -j DROP
for n in 1 2 3 4; do at $n iptables -A INPUT -p udp -s 10.77.0.5 -j DROP; done
await 30 "UDP lost at n5: alive by TCP, and marked" "1 2 3 4" "n1 n2 n3 n4 n5*"
heal
await 30 "UDP is back: no mark" "$all" "n1 n2 n3 n4 n5"

for n in 1 2 3 4; do at $n iptables -A INPUT -s 10.77.0.5 -j DROP; done
await 20 "what n5 sends is lost: it is out" "1 2 3 4" "n1 n2 n3 n4"
heal
await 10 "n5 is heard again: back" "$all" "n1 n2 n3 n4 n5"

[ $failed = 0 ] || { tail -n 15 "$dir"/n*/log; exit 1; }
echo "netns: all held"
