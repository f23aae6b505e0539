package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

func (s *Server) controlRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /control/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Status()) })
	mux.HandleFunc("GET /control/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Faults()) })
	mux.HandleFunc("PUT /control/faults", func(w http.ResponseWriter, r *http.Request) { s.putFaults(w, r, Faults{}) })
	mux.HandleFunc("PATCH /control/faults", func(w http.ResponseWriter, r *http.Request) { s.putFaults(w, r, s.Faults()) })
	mux.HandleFunc("GET /control/turns", s.getTurns)
	mux.HandleFunc("DELETE /control/sessions", func(w http.ResponseWriter, _ *http.Request) {
		s.Forget()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", notFound)
	return mux
}

// putFaults reads switches over those given, so that what a request does not
// name keeps that value, and answers with all of them.
func (s *Server) putFaults(w http.ResponseWriter, r *http.Request, over Faults) {
	form := over.form()
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(&form); err != nil && !errors.Is(err, io.EOF) { // an empty body changes nothing
		invalid("", "Could not parse the switches: "+err.Error()).write(w)
		return
	}
	switch err := s.SetFaults(form.faults()); {
	case errors.Is(err, ErrFaults):
		invalid("", err.Error()).write(w)
	case err != nil:
		(&apiError{status: http.StatusInternalServerError, Type: "server_error", Message: err.Error()}).write(w)
	default:
		writeJSON(w, http.StatusOK, s.Faults())
	}
}

// turnsForm answers GET /control/turns.
type turnsForm struct {
	Turns []Turn `json:"turns"`
	Lost  uint64 `json:"lost"` // ended in between, no longer kept
}

func (s *Server) getTurns(w http.ResponseWriter, r *http.Request) {
	after := uint64(0)
	if v := r.URL.Query().Get("after"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			invalid("after", fmt.Sprintf("after must be the seq of a turn, not %q.", v)).write(w)
			return
		}
		after = n
	}
	turns, lost := s.Turns(after)
	writeJSON(w, http.StatusOK, turnsForm{turns, lost})
}
