package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-lb/starling/testcluster"
)

// looker looks at the page of one node.
type looker struct {
	ctx   context.Context
	t     *table
	p     *page
	c     *testcluster.Cluster
	shots string
}

func (l *looker) until(check, script string) {
	l.t.add(check, l.p.until(l.ctx, "(() => {"+helpers+again+script+"\nreturn '' })()"))
}

func (l *looker) run(script string) error {
	return l.p.eval(l.ctx, "(() => {"+helpers+script+"})()", nil)
}

// helpers are at hand for every script: a row by the text of its head, a cell of it
// by its column, and what ends a script with a fault.
const helpers = `
const all = (s, at = document) => [...at.querySelectorAll(s)];
const row = (table, head) => all(table + " tbody tr").find((r) => r.children[0].textContent.trim().split(" ")[0] === head);
const cell = (table, head, column) => { const r = row(table, head); return r ? r.querySelector('[data-name="' + column + '"]').textContent : "no row " + head; };
const button = (name) => all("button").find((b) => b.getAttribute("aria-label") === name || b.textContent === name);
const log = () => all("#log li").map((li) => li.textContent);
const dialog = document.querySelector("#ask");
`

// again is what a person does where the cluster could not agree just then, as on a
// machine that is so busy that it elects: the question stands, and is confirmed again;
// and a session that nobody could tell of is looked for again.
const again = `
const wrong = document.querySelector("#ask .wrong"), yes = document.querySelector("#ask .do"), found = document.querySelector("#found");
if (dialog.open && !yes.disabled && /the cluster did not agree|nobody can tell now/.test(wrong.textContent)) yes.click();
if (found.textContent.includes("nobody can tell now")) { found.textContent = ""; document.querySelector("#find").requestSubmit(); }
`

// press clicks a button once it is there: on a busy machine a backend may be out for a
// moment, and has others then. Then follows what is done next, before anything else can
// happen to the page.
func (l *looker) press(check, name, then string) {
	l.until(check, `const b = button("`+name+`"); if (!b) return "there is no button `+name+`"; b.click();`+then)
}

const confirmed = `document.querySelector("#ask .do").click();`

func (l *looker) everything() error {
	base := l.c.Node(0).AdminURL() + "/"
	if err := l.p.look(l.ctx, 1280, 900, "light"); err != nil {
		return err
	}
	if err := l.p.visit(l.ctx, base); err != nil {
		return err
	}
	l.renders()
	l.lives()
	l.orders()
	l.overlaps()
	l.throws()
	l.policies()
	l.whole()
	l.keyboard()
	l.sessions()
	l.looks()
	l.t.add("nothing was asked of any other address", outside(l.p, base))
	l.loses()
	l.ends()
	l.t.add("no error, no exception, no breach of the page's policy", l.p.faults())
	return nil
}

func outside(p *page, base string) error {
	if urls := p.outside(base); len(urls) > 0 {
		return errors.New(strings.Join(urls, " "))
	}
	return nil
}

func (l *looker) renders() {
	l.until("three backends, each with state, load and why", `
		for (const b of ["b1", "b2", "b3"]) {
			if (cell("#pools", b, "State") !== "active") return b + " is " + cell("#pools", b, "State");
			if (cell("#pools", b, "Why") === "–") return b + " does not say why";
			if (!/^\d+ \d+ here$/.test(cell("#pools", b, "Streams"))) return "streams of " + b + ": " + cell("#pools", b, "Streams");
		}
		if (!document.title.startsWith("n1")) return "title " + document.title;`)
	l.until("speed and step time, once they are known", `
		for (const b of ["b1", "b2", "b3"]) {
			if (!cell("#pools", b, "Step").endsWith(" ms")) return "step of " + b + ": " + cell("#pools", b, "Step");
			if (!cell("#pools", b, "Speed").endsWith("/s")) return "speed of " + b + ": " + cell("#pools", b, "Speed");
		}`)
	l.until("three nodes alive, the others with links to theirs", `
		for (const n of ["n1", "n2", "n3"]) if (!cell("#members", n, "State").startsWith("alive")) return n + " is " + cell("#members", n, "State");
		if (all("#members a").length !== 2) return all("#members a").length + " links";`)
	l.until("every shard with its leader", `
		const rows = all("#shard-list tbody tr");
		if (rows.length !== 17) return rows.length + " shards";
		const bad = rows.find((r) => !/^n[123]$/.test(r.children[1].textContent));
		if (bad) return bad.textContent;`)
	l.until("streams by why they ended, and those that run", `
		if (!(parseInt(cell("#ends", "done", "Streams")) > 0)) return cell("#ends", "done", "Streams");
		if (all("#running tbody tr").length < 2) return "no stream runs";`)
	l.until("charts have lines and figures", `
		for (const f of all("figure")) if (!all("path.line", f).some((p) => p.getAttribute("d").includes("L"))) return f.id + " has no line";
		const names = all("#chart-load .legend span").map((s) => s.textContent).join(" ");
		if (names !== "b1 b2 b3") return names;`)
	l.until("what happened before the page was opened is there", `if (!log().some((e) => e.includes("leader"))) return log().join("\n") || "no events";`)
}

func (l *looker) lives() {
	l.t.add("kill a backend", l.c.Backend(1).Kill())
	l.until("the page shows it, and why, without a reload", `
		const s = cell("#pools", "b2", "State");
		if (s !== "ejected" && s !== "unhealthy") return "b2 is " + s;
		if (!/row|check/.test(cell("#pools", "b2", "Why"))) return cell("#pools", "b2", "Why");
		if (!log().some((e) => e.includes("b2") && e.includes("active →"))) return "no event: " + log().slice(0, 3);
		if (!document.querySelector("#chart-load .mark.bad title")) return "no mark in the chart";`)
	l.t.add("revive it", l.c.Backend(1).Revive())
	l.until("and that it is back", `if (cell("#pools", "b2", "State") !== "active") return cell("#pools", "b2", "State") + ": " + cell("#pools", "b2", "Why");`)
}

func (l *looker) orders() {
	l.press("click Drain b3", "Drain b3", "")
	l.until("nothing is done without a question", `
		if (!dialog.open || !dialog.textContent.includes("Drain b3?")) return "no question";
		if (cell("#pools", "b3", "State") !== "active") return "b3 is " + cell("#pools", "b3", "State");`)
	l.t.add("cancel", l.run(`document.querySelector("#ask .no").click()`))
	b, err := backend(l.c.Node(0), "b3")
	if err == nil && b.State == "draining" {
		err = errors.New("b3 drains")
	}
	l.t.add("no: b3 is as it was", err)
	l.press("click Drain b3, and confirm", "Drain b3", confirmed)
	l.until("b3 drains, in the cluster, and the event says who did it", `
		if (dialog.open) return "the question is still there: " + dialog.textContent;
		if (cell("#pools", "b3", "State") !== "draining") return cell("#pools", "b3", "State");
		if (!log().some((e) => e.includes("operator") && e.includes("drain backend, backend b3"))) return "no event";`)
	l.press("undrain it", "Undrain b3", confirmed)
	l.back("b3")
	l.press("give b1 weight 3", "Weight of b1", `document.querySelector("#ask input").value = "3";`+confirmed)
	l.until("b1 has weight 3", `if (dialog.open || cell("#pools", "b1", "Weight") !== "3") return cell("#pools", "b1", "Weight") + ", " + dialog.textContent;`)
	l.press("a weight that there is not", "Weight of b1", `document.querySelector("#ask input").value = "0";`+confirmed)
	l.until("is not sent", `if (!dialog.open || document.querySelector("#ask input").validity.valid) return "it was";`)
	l.t.add("cancel it", l.run(`document.querySelector("#ask .no").click()`))
	l.press("switch rebalancing off", "Leave the sessions of llm where they are", confirmed)
	l.until("it is off, and can be switched on", `
		if (!document.querySelector(".pool p").textContent.includes("no session is moved")) return document.querySelector(".pool p").textContent;
		if (!button("Even out llm")) return "no button";`)
}

// overlaps has an order's answer come when the operator has left that question, and
// reads another one.
func (l *looker) overlaps() {
	l.t.add("an order's answer is held up", l.run(`
		const real = window.fetch;
		window.fetch = (url, how) => how?.method !== "POST" ? real(url, how) : new Promise((done) => {
			window.letGo = () => { window.fetch = real; done(real(url, how)); };
		})`))
	l.press("click Drain b2, and confirm", "Drain b2", confirmed)
	l.t.add("cancel", l.run(`document.querySelector("#ask .no").click()`))
	l.press("another question", "Weight of b1", "")
	l.until("can be answered", `if (!dialog.open || document.querySelector("#ask .do").disabled) return dialog.textContent;`)
	l.t.add("the answer comes", l.run(`window.letGo()`))
	l.until("what it brought is shown", `if (cell("#pools", "b2", "State") !== "draining") return cell("#pools", "b2", "State");`)
	l.until("the other question is still there, and as it was", `if (!dialog.open || !dialog.textContent.includes("Weight of b1")) return dialog.open + ": " + dialog.textContent;`)
	l.t.add("answer it", l.run(`document.querySelector("#ask input").value = "2"; document.querySelector("#ask .do").click()`))
	l.until("which is done", `if (dialog.open || cell("#pools", "b1", "Weight") !== "2") return cell("#pools", "b1", "Weight") + ", " + dialog.textContent;`)
	l.press("undrain b2", "Undrain b2", confirmed)
	l.back("b2")
}

// back waits until a backend is, and the question that led to it has gone.
func (l *looker) back(id string) {
	l.until(id+" is back", `
		if (dialog.open) return "the question is still there: " + dialog.textContent;
		if (cell("#pools", "`+id+`", "State") !== "active") return cell("#pools", "`+id+`", "State");`)
}

// tabTo presses Tab until something of that name has the focus.
func (l *looker) tabTo(name string) error {
	for range 80 {
		if err := l.p.key(l.ctx, "Tab"); err != nil {
			return err
		}
		var at string
		if err := l.p.eval(l.ctx, `document.activeElement.getAttribute("aria-label") || document.activeElement.textContent`, &at); err != nil {
			return err
		}
		if at == name {
			return nil
		}
	}
	return fmt.Errorf("80 Tabs do not lead to %q", name)
}

func (l *looker) keyboard() {
	l.t.add("Tab leads to Drain b2", errors.Join(l.run(`document.activeElement.blur(); window.scrollTo(0, 0)`), l.tabTo("Drain b2")))
	l.t.add("Enter", l.p.key(l.ctx, "Enter"))
	l.until("asks, with the focus on its button", `if (!dialog.open || document.activeElement !== document.querySelector("#ask .do")) return "focus is on " + document.activeElement.outerHTML;`)
	l.t.add("Escape", l.p.key(l.ctx, "Escape"))
	l.until("is a no, and the focus is back, through refreshes", `if (dialog.open || document.activeElement !== button("Drain b2")) return "focus is on " + document.activeElement.outerHTML;`)
	l.t.add("Enter, Enter", errors.Join(l.p.key(l.ctx, "Enter"), l.p.until(l.ctx, `document.querySelector("#ask").open ? "" : "no question"`), l.p.key(l.ctx, "Enter")))
	l.until("drains it", `if (cell("#pools", "b2", "State") !== "draining") return cell("#pools", "b2", "State");`)
	l.press("undrain it", "Undrain b2", confirmed)
	l.back("b2")
}

func (l *looker) sessions() {
	ask := func(key string) error {
		return l.run(`const f = document.querySelector("#find"); f.elements.key.value = "` + key + `"; f.requestSubmit()`)
	}
	l.t.add("look for a session that there is not", ask("no/such key"))
	l.until("says so", `const s = document.querySelector("#found").textContent; if (!s.includes("no session")) return s || "nothing";`)
	l.t.add("look for one that there is", errors.Join(turns(l.ctx, l.c.Node(0).URL(), "looked/at"), ask("looked/at")))
	l.until("says where it lives", `const s = document.querySelector("#found").textContent; if (!/lives at b[123]/.test(s)) return s || "nothing";`)
	l.press("move it nowhere", "Move it", `document.querySelector("#ask input").value = "b9";`+confirmed)
	l.until("is refused, and the refusal shown", `const s = document.querySelector("#ask .wrong").textContent; if (!s.includes("b9")) return s || "nothing";`)
	l.t.add("cancel", l.run(`document.querySelector("#ask .no").click()`))
}

// looks takes pictures, and holds the page against what can be measured of looks.
func (l *looker) looks() {
	for _, at := range []struct {
		name          string
		width, height int
		scheme        string
	}{
		{"light", 1280, 900, "light"}, {"dark", 1280, 900, "dark"}, {"narrow", 375, 800, "light"}, {"narrow-dark", 375, 800, "dark"}, {"tablet", 800, 1000, "light"},
	} {
		l.t.add(fmt.Sprintf("%s: %d pixels", at.name, at.width), l.p.look(l.ctx, at.width, at.height, at.scheme))
		l.until("  nothing is wider than the page, all can be read, all has a name", measured)
		l.t.add("  picture", l.p.shoot(l.ctx, l.shots, at.name))
	}
}

// measured is: no sideways scrolling, a contrast of at least 4.5 of every text, a
// name on every control.
const measured = `
	const wide = document.scrollingElement.scrollWidth - window.innerWidth;
	if (wide > 0) {
		const who = all("body *").find((e) => e.getBoundingClientRect().right > window.innerWidth + 1 && !e.closest(".scroll, nav, #log"));
		return wide + " pixels too wide: " + (who ? who.outerHTML.slice(0, 120) : "");
	}
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m[3] ?? 1 }; };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
	const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	for (const e of all("body *")) {
		if (!e.firstChild || e.firstChild.nodeType !== 3 || !e.firstChild.textContent.trim() || e.closest("noscript, dialog:not([open]), svg") || !e.getClientRects().length) continue;
		const a = light(parse(getComputedStyle(e).color).rgb), b = light(ground(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) return "contrast " + ratio.toFixed(2) + ": " + e.outerHTML.slice(0, 120);
	}
	for (const e of all("button, input, select, a")) {
		if (!(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length))) return "no name: " + e.outerHTML;
	}`

// ends has the node of the page die: it says so, and no more.
func (l *looker) ends() {
	l.t.add("back to light", l.p.look(l.ctx, 1280, 900, "light"))
	l.c.Kill(0)
	l.until("a node that is gone is said to be, and what is shown is old", `
		if (!document.body.classList.contains("stale")) return "nothing is said";
		const s = document.querySelector("#notices").textContent;
		if (!s.includes("does not answer") || !s.includes("What stands below is of")) return s;`)
}

// token is of a node that wants one.
func (l *looker) token() error {
	base := l.c.Node(0).AdminURL() + "/"
	if err := l.p.look(l.ctx, 1280, 900, "dark"); err != nil {
		return err
	}
	if err := l.p.visit(l.ctx, base); err != nil {
		return err
	}
	l.until("a node that wants a token: the page asks for it, and shows nothing", `
		if (!dialog.open || dialog.querySelector("input")?.type !== "password") return "no question";
		if (all("#pools tbody tr").length) return "it shows backends";`)
	l.t.add("picture", l.p.shoot(l.ctx, l.shots, "token"))
	l.t.add("Escape: not now", errors.Join(l.run(`window.before = performance.getEntriesByType("resource").length`), l.p.key(l.ctx, "Escape")))
	l.until("it does not insist, and says what is missing", `
		if (dialog.open) return "it asks again";
		if (performance.getEntriesByType("resource").length < window.before + 6) return "it has not been refused twice more";
		if (!document.body.textContent.includes("wants its token")) return "it says nothing";`)
	l.t.add("the button", l.run(`document.querySelector("#key").click()`))
	l.until("asks again", `if (!dialog.open) return "no question";`)
	give := func(text string) error {
		return errors.Join(l.run(`document.querySelector("#ask input").focus()`), l.p.write(l.ctx, text), l.p.key(l.ctx, "Enter"))
	}
	l.t.add("type a wrong one", give("wrong"))
	l.until("it asks again, and says why", `if (!dialog.open || !dialog.textContent.includes("did not take")) return dialog.textContent;`)
	l.t.add("type the right one", give(secret))
	l.until("backends are shown, events come", `
		if (cell("#pools", "b1", "State") !== "active") return cell("#pools", "b1", "State");
		if (document.querySelector("#live").textContent !== "live") return document.querySelector("#live").textContent;`)
	l.press("an order with the token", "Drain b1", confirmed)
	l.until("is taken", `if (cell("#pools", "b1", "State") !== "draining") return cell("#pools", "b1", "State") + dialog.textContent;`)
	l.t.add("Enter on a link to the API", errors.Join(l.run(`
		const open = window.open;
		window.open = (...how) => (window.opened = open.apply(window, how));
		document.querySelector("footer a").focus()`), l.p.key(l.ctx, "Enter")))
	l.until("opens a tab with the answer, as the token gets it", `
		const text = window.opened?.document?.body?.textContent || "";
		if (!text.startsWith('{"node"')) return text || "no tab, or nothing in it";
		window.opened.close();`)
	l.until("the token is in no cookie, in no lasting store, and in no address", `
		if (document.cookie || localStorage.length) return document.cookie + " and " + localStorage.length + " stored";
		if (performance.getEntriesByType("resource").some((e) => e.name.includes("`+secret+`"))) return "it is in an address";`)
	l.t.add("no error, no exception, no breach of the page's policy", l.p.faults())
	return nil
}
