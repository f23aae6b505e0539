package admin

import (
	"embed"
	"path"
)

// The dashboard: a page that asks this API as any client does. It is open to
// everyone, for it holds nothing; what it asks needs the token.

//go:embed page
var files embed.FS

// policy lets the page load and ask nothing but this address, run no script but
// its own files, and be shown within no other page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) page() []route {
	list, err := files.ReadDir("page")
	if err != nil {
		panic("BUG: no page: " + err.Error())
	}
	var routes []route
	for _, f := range list {
		at := "/" + f.Name()
		if f.Name() == "index.html" {
			at = "/"
		}
		routes = append(routes, route{method: "GET", path: at, do: show(f.Name()), who: everyone, gives: ""})
	}
	return routes
}

func show(name string) func(*call) error {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	kind := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)]
	return func(c *call) error {
		h := &c.Response.Header
		h.SetContentType(kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		c.SetBody(text)
		return nil
	}
}
