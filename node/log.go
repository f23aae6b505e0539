package node

import (
	"io"
	"log/slog"
)

// Logger makes the logger that the section describes.
func (c LogConfig) Logger(w io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	opt := &slog.HandlerOptions{Level: levels[c.Level]}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
