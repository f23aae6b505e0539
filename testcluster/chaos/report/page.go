package report

import (
	_ "embed" // of the page
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/chaos/history"
)

//go:embed page.html
var pageText string

// Judged is a run and what the judge said of it.
type Judged struct {
	Run      *history.Run
	Verdicts []history.Verdict
}

// page is what the template shows.
type page struct {
	Title string
	Many  bool
	Runs  []section
}

// section is one run.
type section struct {
	Judged
	Held     bool
	Headline string
	Tiles    []tile
	Broken   []history.Verdict
	Recovery []row
	Faults   []faultRow
	Picture  template.HTML
	When     string
}

type tile struct{ Value, Name string }

type faultRow struct{ From, Lasted, Kind, Target, Detail string }

// HTML writes a page about runs, in their order.
func HTML(w io.Writer, runs ...Judged) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("template of the report: %w", err)
	}
	p := page{Many: len(runs) != 1}
	held := 0
	for _, j := range runs {
		s := sectionOf(j)
		if p.Runs = append(p.Runs, s); s.Held {
			held++
		}
		p.Title = s.Headline
	}
	if p.Many {
		p.Title = fmt.Sprintf("%d of %d scenarios kept all promises", held, len(runs))
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func sectionOf(j Judged) section {
	run := j.Run
	s := section{
		Judged: j, Held: len(brokenOf(j.Verdicts)) == 0, Headline: headline(run, j.Verdicts), Tiles: tiles(run),
		Recovery: recovery(run), Picture: template.HTML(draw(run)), When: run.Began.UTC().Format("2006-01-02 15:04:05 UTC"),
	}
	for _, v := range j.Verdicts {
		if !v.Held {
			s.Broken = append(s.Broken, v)
		}
	}
	for _, f := range run.Faults {
		row := faultRow{
			From: fmt.Sprintf("%.1f s", f.Began.Sub(run.Began).Seconds()), Kind: string(f.Kind), Target: strings.Join(f.Target, ", "), Detail: f.Detail, Lasted: "at once",
		}
		if d := f.Ended.Sub(f.Began); !f.Ended.IsZero() && d >= 100*time.Millisecond {
			row.Lasted = fmt.Sprintf("%.1f s", d.Seconds())
		}
		s.Faults = append(s.Faults, row)
	}
	return s
}

func tiles(run *history.Run) []tile {
	s := total(run)
	share := "none"
	if s.Turns > 0 {
		share = fmt.Sprintf("%.2f %%", 100*float64(s.Whole+s.Left)/float64(s.Turns))
	}
	return []tile{
		{fmt.Sprint(len(run.Faults)), "faults"},
		{fmt.Sprint(s.Turns), "turns tried"},
		{share, "as they should be"},
		{fmt.Sprint(s.Broken), "broken, of hurt nodes and backends"},
		{fmt.Sprint(s.Refused + s.Away), "refused or not let in, and tried elsewhere"},
		{round(s.P50).String(), "first byte, median"},
		{round(s.P99).String(), "first byte, p99"},
		{fmt.Sprintf("%.1f MB", float64(s.Bytes)/1e6), "compared byte by byte"},
	}
}
