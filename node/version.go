package node

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Build says which starling this is.
type Build struct {
	Version string // of the module, from its tag; dev if unknown
	Commit  string // twelve digits, -dirty with changes; unknown if it is
	Go      string
}

// Version reads what the go command wrote into the binary.
func Version() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return build(info)
}

func build(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Go: cmp.Or(info.GoVersion, runtime.Version())}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	} else if dirty {
		b.Commit += "-dirty"
	}
	return b
}
