package proxy

import (
	"errors"
	"expvar"
	"fmt"
	"io"
	slogs "log/slog"
	"net/http"
	"regexp"
	"time"

	"example.test/surprise" // want owner
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix" // want owner

	"github.com/starling-lb/starling/gossip" // want arrow
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/proxy/wire"
)

var ErrDraining = errors.New("draining")

var (
	errFull             = fmt.Errorf("queue: %w", ErrDraining)
	errText             = "an error in name only" // want var
	_         io.Reader = (*body)(nil)
	_                   = regexp.MustCompile("x")             // want var
	word                = regexp.MustCompile("x")             // want var
	fault               = errors.New("not named as an error") // want var
	errLog              = slogs.New(nil)                      // want var
	connected           = new(int)                            // want var
)

//go:embed page.html
var page string

type body struct{ init int }

func (*body) init() {}

func init() { // want init
	var local = 1
	http.HandleFunc("/", nil) // want global
	slogs.SetDefault(nil)     // want global
	expvar.NewInt("streams")  // want global
	time.Sleep(local)
}
