#!/usr/bin/env bash
# Fuzzes every Fuzz function of the module, one after the other, for the time
# given as in go test's -fuzztime. They are listed by the go command, so a new
# one is never forgotten. Exits with 1 if any found something.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=${1:?usage: fuzz.sh TIME}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# Prints "package function" for each.
list() {
	"$go" test -list '^Fuzz' ./... >"$out" || { cat "$out" >&2; return 1; }
	awk '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }' "$out"
}

fuzz() { # PACKAGE FUNCTION
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" </dev/null 2>&1 | tee "$out"
}

# Up to Go 1.26 the end of the fuzz time can be taken for a failure
# (go.dev/issue/75804): then no input is named and nothing else is said.
cut() {
	grep -q '^ *context deadline exceeded$' "$out" && ! grep -qE 'Failing input|panic|_test\.go:' "$out"
}

all=$(list) || exit 1
[ -n "$all" ] || { echo "fuzz: no fuzz function found, and every decoder should have one" >&2; exit 1; }
bad=()
while read -r package name; do
	echo "--- fuzz $package $name"
	fuzz "$package" "$name" || { cut && fuzz "$package" "$name"; } || bad+=("$package $name")
done <<<"$all"
[ ${#bad[@]} = 0 ] || { printf 'fuzz: FAILED %s\n' "${bad[@]}" >&2; exit 1; }
echo "fuzz: $(wc -l <<<"$all") functions, $time each, nothing found"
