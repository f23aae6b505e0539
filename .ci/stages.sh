#!/usr/bin/env bash
# Runs every stage of CI, also after one has failed, and ends with why those failed
# that did and a table of all results and times, 50 lines at most. What each stage
# printed stays in bin/ci/STAGE. Exits with 1 if any failed. "alone" is the result of
# a stage whose failed tests passed without neighbours (alone.sh): it does not fail CI,
# and its reasons are printed all the same, for each is a fault until it is explained.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

names=() results=() times=()
failed=0 running='' began=0
prints=bin/ci lines=26 # of reasons, for all stages together

# told MOST <PRINT: the lines of a failed stage that say why, and what follows each.
told() {
	awk -v most="$1" '
		function tell(line) { if (told++ < most) print "  " substr(line, 1, 190) }
		/^(FAIL|FAIL\t.*|make.*|go: (downloading|finding) .*|exit status [0-9]+|[[:space:]]*)$/ { next }
		/DATA RACE|--- FAIL: Example/ { tell($0); more = 7; next }
		/--- FAIL|FAILED|^panic:|^fatal error:|^not ok|(^|[^a-zA-Z])[Ee]rror:|^[^ ]*\.(go|sh):([0-9]+:|[^:]*line [0-9]+)|^[a-z]+: |No such file/ { tell($0); more = 2; next }
		more > 0 { tell($0); more-- }
		END { if (told > most) print "  ... and " told - most " lines more"; exit !told }'
}

why() {
	local i count=0 share
	for i in "${results[@]}"; do [ "$i" = ok ] || count=$((count + 1)); done
	[ $count = 0 ] && return
	share=$((lines / count - 2)) # beside a headline, and a line that there is more
	[ $share -gt 12 ] && share=12
	[ $share -lt 1 ] && share=1
	for i in "${!names[@]}"; do
		[ "${results[i]}" = ok ] && continue
		printf '%s: %s\n' "${names[i]}" "${results[i]}"
		told $share <"$prints/${names[i]}" || tail -n $share "$prints/${names[i]}" | cut -c -190 | sed 's/^/  /'
	done
}

table() {
	[ -n "$running" ] && note "cut off"
	echo
	why
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
	[ "$1" = ok ] || [ "$1" = alone ] || failed=1
}

stage() { # NAME COMMAND...
	running=$1 began=$SECONDS
	shift
	printf '\n=== %s: %s\n' "$running" "$*"
	if "$@" 2>&1 | tee "$prints/$running"; then note ok; else note FAILED; fi
}

# tests is a stage of go test's, whose failures are judged alone. Flags of go test's
# may stand after NAME, up to "--".
tests() { # NAME FLAG... -- COMMAND...
	local name=$1 flags=()
	shift
	while [ "$1" != -- ]; do flags+=("$1") && shift; done
	shift
	running=$name began=$SECONDS
	printf '\n=== %s: %s\n' "$running" "$*"
	if "$@" 2>&1 | tee "$prints/$running"; then
		note ok
	elif .ci/alone.sh "$prints/$running" "${flags[@]}" 2>&1 | tee "$prints/$running.alone"; then
		note alone
	else
		note FAILED
	fi
}

mkdir -p "$prints"
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
tests test -- make --no-print-directory test TESTFLAGS=-count=1
stage sim make --no-print-directory sim SIMFLAGS='-quick -check'
stage model make --no-print-directory model
stage netns make --no-print-directory netns
stage alerts make --no-print-directory alerts
stage chaos make --no-print-directory chaos CHAOSFLAGS='--duration 6s --beside 3'
stage clients make --no-print-directory clients
stage browser make --no-print-directory browser
tests race -race -- make --no-print-directory race
exit $failed
