package node

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	settings := func(dirty string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: dirty}}
	}
	for _, tt := range []struct {
		info debug.BuildInfo
		want Build
	}{
		{debug.BuildInfo{}, Build{"dev", "unknown", runtime.Version()}},
		{debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "(devel)"}}, Build{"dev", "unknown", "go1.26.1"}},
		{debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v1.2.3"}, Settings: settings("false")}, Build{"v1.2.3", "0123456789ab", "go1.26.1"}},
		{debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v1.2.3+dirty"}, Settings: settings("true")}, Build{"v1.2.3+dirty", "0123456789ab-dirty", "go1.26.1"}},
	} {
		if got := build(&tt.info); got != tt.want {
			t.Errorf("build(%+v) = %+v, want %+v", tt.info, got, tt.want)
		}
	}
	if got := Version(); got.Version == "" || got.Commit == "" || got.Go != runtime.Version() {
		t.Errorf("Version() = %+v", got)
	}
}
