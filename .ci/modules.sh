#!/usr/bin/env bash
# Modules are what go.sum says, go.mod and go.sum are tidy, and nothing is replaced.
set -euo pipefail
go=${GO:-go}

"$go" mod verify
"$go" mod tidy -diff
if grep -nE '^[[:space:]]*(replace|exclude)[[:space:](]' go.mod; then
	echo "go.mod: remove the line above; with it, go install of a version does not work" >&2
	exit 1
fi
