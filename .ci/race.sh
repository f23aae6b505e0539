#!/usr/bin/env bash
# All tests under the race detector. Now and then the detector itself ends with
# SIGSEGV beneath gossip's clusters in virtual time, on an idle thread (go1.26.8):
# that, and nothing else, is tried again. Its largest clusters run in `make test`
# only.
set -euo pipefail
go=${GO:-go}
export CGO_ENABLED=1
"$go" test -race -count=1 -timeout 12m $("$go" list ./... | grep -v '/starling/gossip$')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for try in 1 2 3; do
	"$go" test -race -count=1 -timeout 12m -skip '^(TestBudget|TestGoals|TestJoinStorm)$' ./gossip 2>&1 | tee "$log" && exit 0
	grep -q 'SIGSEGV' "$log" || exit 1
	grep -qE 'DATA RACE|^ *--- FAIL' "$log" && exit 1
	echo "race: the detector itself broke, try $try of 3" >&2
done
exit 1
