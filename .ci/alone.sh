#!/usr/bin/env bash
# alone.sh PRINT [FLAG...] judges the tests that failed in PRINT, which go test wrote
# with packages side by side: each must pass three times with the machine to itself.
# At most two are judged so, and none beside what no machine is to blame for: a data
# race, a panic, a leak, a process that was ended, a package that did not compile or
# failed outside its tests.
# Prints what it does; exits with 1 if the failure stands.
set -uo pipefail
go=${GO:-go} print=$1
shift

if grep -nE 'DATA RACE|ThreadSanitizer|SIGSEGV|panic: |fatal error: |goroutine [0-9]+ \[|^signal: |^\*\*\* Test |BUG:|goleak|unexpected goroutines|\[(build|setup) failed\]|^[^ ]+\.go:[0-9]+:[0-9]+: |[^ ].*--- FAIL: ' "$print"; then
	echo "alone: no neighbour explains that; the failure stands"
	exit 1
fi

# One line for each package that failed: its name, then its tests that did.
failed=$(awk '
	/^--- FAIL: / { tests = tests " " $3; next }
	/^(ok  |FAIL)\t/ { if ($1 == "FAIL") print $2 tests; tests = "" }' "$print")
count=$(wc -w <<<"$failed") packages=$(grep -c . <<<"$failed")
if [ "$packages" = 0 ] || grep -qv ' ' <<<"$failed" || [ $((count - packages)) -gt 2 ]; then
	echo "alone: $((count - packages)) tests of $packages packages failed; at most two are judged alone, and no package without one"
	exit 1
fi

while read -r package tests; do
	echo "alone: $tests of $package failed beside others; three times alone:"
	out=$("$go" test -count=3 -timeout 10m "$@" -run "^(${tests// /|})\$" "$package" 2>&1) rc=$?
	echo "$out"
	[ $rc = 0 ] && ! grep -q 'no tests to run' <<<"$out" || exit 1
done <<<"$failed"
