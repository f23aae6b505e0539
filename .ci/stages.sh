#!/usr/bin/env bash
# Runs every stage of CI, also after one has failed, and ends with a table of
# their results and times. Exits with 1 if any failed.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

names=() results=() times=()
failed=0 running='' began=0

table() {
	[ -n "$running" ] && note "cut off"
	printf '\n%-12s %-8s %7s\n' stage result seconds
	local i
	for i in "${!names[@]}"; do
		printf '%-12s %-8s %7d\n' "${names[i]}" "${results[i]}" "${times[i]}"
	done
	printf '%-12s %-8s %7d\n' total "$([ $failed = 0 ] && echo ok || echo FAILED)" "$SECONDS"
}

note() { # RESULT of the running stage
	names+=("$running") results+=("$1") times+=($((SECONDS - began)))
	running=''
	[ "$1" = ok ] || failed=1
}

stage() { # NAME COMMAND...
	running=$1 began=$SECONDS
	shift
	printf '\n=== %s: %s\n' "$running" "$*"
	if "$@"; then note ok; else note FAILED; fi
}

trap table EXIT
trap 'exit 1' INT TERM HUP

stage format make --no-print-directory format
stage vet make --no-print-directory vet
stage staticcheck make --no-print-directory staticcheck
stage modules .ci/modules.sh
stage build make --no-print-directory build
stage darwin env GOOS=darwin "$go" build ./...
stage darwin-vet env GOOS=darwin "$go" vet ./...
stage arrows "$go" test -count=1 -run '^TestArrows|^TestBinaryDependencies' ./node
stage fuzz make --no-print-directory fuzz FUZZTIME=3s
stage test make --no-print-directory test TESTFLAGS=-count=1
stage sim make --no-print-directory sim SIMFLAGS='-quick -check'
stage model make --no-print-directory model
stage netns make --no-print-directory netns
stage alerts make --no-print-directory alerts
stage chaos make --no-print-directory chaos CHAOSFLAGS='--duration 6s --beside 3'
stage clients make --no-print-directory clients
stage browser make --no-print-directory browser
stage race make --no-print-directory race
exit $failed
