package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/starling-lb/starling/testcluster/llm"
)

// throws has an operator eject a backend and admit it again, at all nodes. Meanwhile
// it hangs, but for its health: else the stream that tries it after some seconds may
// bring it back before a slow page has shown anything.
func (l *looker) throws() {
	l.t.add("b3 hangs", l.c.Backend(2).SetFaults(llm.Faults{Hang: true, Health: llm.HealthOK}))
	l.press("click Eject b3", "Eject b3", "")
	l.until("the question says what follows, and what else there is", `if (!dialog.open || !dialog.textContent.includes("All nodes") || !dialog.textContent.includes("drain it")) return dialog.textContent;`)
	l.t.add("confirm", l.run(`document.querySelector("#ask .do").click()`))
	l.until("b3 is out, and says until when", `
		if (dialog.open || cell("#pools", "b3", "State") !== "ejected") return cell("#pools", "b3", "State") + dialog.textContent;
		if (!/until \d/.test(cell("#pools", "b3", "Why"))) return cell("#pools", "b3", "Why");
		if (button("Eject b3")) return "it can be ejected again";`)
	l.t.add("at another node, too", l.elsewhere("b3", "ejected"))
	l.press("admit it", "Admit b3", confirmed)
	l.t.add("b3 goes on", l.c.Backend(2).Revive())
	l.back("b3")
	l.t.add("at the other node, too", l.elsewhere("b3", "active"))
}

// elsewhere waits until another node than the page's sees a backend so.
func (l *looker) elsewhere(id, state string) error {
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := backend(l.c.Node(2), id)
		if err == nil && string(b.State) == state {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is %s, not %s: %s", id, b.State, state, b.Reason), err)
		}
	}
}

// policies has another policy chosen from the list, and that of the file again.
func (l *looker) policies() {
	l.press("click Policy", "Policy of llm", "")
	l.until("asks with the list, at the one that holds", `
		const list = document.querySelector("#ask select");
		if (!dialog.open || document.activeElement !== list) return "the focus is on " + document.activeElement.outerHTML;
		if (list.value !== "p2c" || list.options.length !== 10) return list.value + " of " + list.options.length;`)
	l.t.add("choose another", l.run(`document.querySelector("#ask select").value = "least_connections"; document.querySelector("#ask .do").click()`))
	l.until("it holds", `const s = document.querySelector(".pool p").textContent; if (dialog.open || !s.includes("Chosen by least_connections")) return s + dialog.textContent;`)
	l.press("as the configuration says", "Policy of llm", `document.querySelector("#ask select").value = "";`+confirmed)
	l.until("it does again", `const s = document.querySelector(".pool p").textContent; if (dialog.open || !s.includes("Chosen by p2c")) return s + dialog.textContent;`)
}

// planted has the page hear what nodes rarely say: plant changes an answer, refuse puts
// a refusal in its place, and again ends both.
const planted = `
	if (window.again) window.again();
	const real = window.fetch, plants = [];
	window.again = () => { window.fetch = real; };
	const plant = (at, change) => plants.push({ at, change });
	const refuse = (at, message) => plants.push({ at, message });
	window.fetch = async (url, how) => {
		let answer = await real(url, how);
		for (const p of plants.filter((p) => String(url).includes(p.at))) {
			if (p.message) return new Response(JSON.stringify({ error: { message: p.message } }), { status: 409 });
			const said = await answer.json();
			p.change(said);
			answer = new Response(JSON.stringify(said));
		}
		return answer;
	};`

// whole looks at what the page tells of the other nodes.
func (l *looker) whole() {
	l.until("every node says for how long it is up, and what it carries", `
		for (const n of ["n1", "n2", "n3"]) {
			if (!/^\d+ (s|min)/.test(cell("#members", n, "Up for"))) return n + " is up for " + cell("#members", n, "Up for");
			if (!/^\d/.test(cell("#members", n, "Streams")) || !/^\d/.test(cell("#members", n, "Leads"))) return n + ": " + row("#members", n).textContent;
		}`)
	l.until("streams of all nodes", `
		const nodes = new Set(all("#running tbody tr").map((r) => r.querySelector('[data-name="Node"]').textContent));
		if (nodes.size !== 3) return [...nodes].join(" ");
		if (!/^n1 \d+ · n2 \d+ · n3 \d+$/.test(document.querySelector("#counted").textContent)) return document.querySelector("#counted").textContent;`)
	l.t.add("choose this node's alone", l.run(`const s = document.querySelector("#whose select"); s.value = "node"; s.dispatchEvent(new Event("change", { bubbles: true }))`))
	l.until("streams of it alone", `
		const nodes = new Set(all("#running tbody tr").map((r) => r.querySelector('[data-name="Node"]').textContent));
		if ([...nodes].join() !== "n1") return [...nodes].join(" ");`)
	l.t.add("n2 says nothing", l.run(`
		const real = window.fetch;
		window.again = () => { window.fetch = real; };
		window.fetch = async (url, how) => {
			const answer = await real(url, how);
			if (!String(url).includes("status?scope=cluster")) return answer;
			const said = await answer.json();
			const silent = said.nodes.find((n) => n.name === "n2");
			delete silent.status;
			silent.error = "it did not answer within 2s";
			return new Response(JSON.stringify(said));
		}`))
	l.until("that is said, and no figure of it is left", `
		if (!cell("#members", "n2", "State").includes("does not answer")) return cell("#members", "n2", "State");
		if (cell("#members", "n2", "Streams") !== "–") return cell("#members", "n2", "Streams");
		if (!document.querySelector("#notices").textContent.includes("n2 does not answer: it did not answer within 2s")) return document.querySelector("#notices").textContent;`)
	l.t.add("it answers again", l.run(`window.again()`))
	l.until("and has its figures", `if (!/^\d/.test(cell("#members", "n2", "Streams")) || cell("#members", "n2", "State") !== "alive") return row("#members", "n2").textContent;`)
	l.t.add("n2 is of an older program", l.run(planted+`
		plant("v1/members", (said) => { said.members.find((m) => m.name === "n2").level = 1; });
		plant("status?scope=cluster", (said) => {
			const older = said.nodes.find((n) => n.name === "n2");
			delete older.status;
			older.error = "it runs a program that cannot be asked this: upgrade it";
		});`))
	l.until("which is not that it does not answer", `
		if (!cell("#members", "n2", "State").includes("runs an older program")) return cell("#members", "n2", "State");
		const notices = document.querySelector("#notices").textContent;
		if (!notices.includes("n2 says nothing of itself: it runs a program") || notices.includes("n2 does not answer")) return "the notices are: " + notices;`)
	l.t.add("it is of this one", l.run(`window.again()`))
	l.until("it has its figures again", `if (!/^\d/.test(cell("#members", "n2", "Streams"))) return row("#members", "n2").textContent;`)
	l.t.add("the nodes cannot all be asked", l.run(planted+`
		refuse("scope=cluster", "too much is asked for");`))
	l.until("that is said, and what was known stays", `
		const notices = document.querySelector("#notices").textContent;
		if (!notices.includes("could not all be asked: too much is asked for. What is shown of them is of")) return "the notices are: " + notices;
		if (!/^\d/.test(cell("#members", "n2", "Streams"))) return row("#members", "n2").textContent;`)
	l.t.add("streams of like names", l.run(planted+`
		plant("v1/streams", (said) => {
			const one = { ...said.streams[0] };
			said.streams = [{ ...one, node: "lb-1", id: "12" }, { ...one, node: "lb-11", id: "2" }, { ...one, node: "lb-1", id: "12", pid: 7 }];
		});`))
	l.until("each is there", `
		const rows = all("#running tbody tr").map((r) => r.querySelector('[data-name="Node"]').textContent);
		if (rows.join() !== "lb-1,lb-11,lb-1, its older process") return rows.join();
		if (document.querySelector("#notices").textContent.includes("could not all be asked")) return "it is said still that the nodes could not be asked";`)
	l.t.add("all is as it is", l.run(`window.again()`))
	l.t.add("choose events but for leaders and steps", l.run(`const s = document.querySelector("#filter select"); s.value = "-"; s.dispatchEvent(new Event("input", { bubbles: true }))`))
	l.until("what people did and what became of it is left", `
		const kinds = new Set(all("#log li:not([hidden]) b").map((b) => b.textContent));
		if (!kinds.has("operator") || !kinds.has("state") || kinds.has("leader") || kinds.has("step")) return [...kinds].join(" ");`)
	l.t.add("choose all", l.run(`const s = document.querySelector("#filter select"); s.value = ""; s.dispatchEvent(new Event("input", { bubbles: true }))`))
	l.t.add("an upgrade's events are told, and marked", l.p.until(l.ctx, `import("./log.js").then(({ text, tone }) => {
		const said = [{ from: "0.1.0", to: "0.1.1", reason: "process 7 took over" }, { from: "dev", to: "dev", reason: "process 7 took over" }, { reason: "the upgrade failed" }]
			.map((e) => ({ kind: "upgrade", node: "n1", ...e })).map((e) => text(e) + ", " + tone(e)).join("; ");
		return said === "n1 0.1.0 → 0.1.1: process 7 took over, fair; n1: process 7 took over, fair; n1: the upgrade failed, bad" ? "" : said;
	})`))
}

// loses has the page's node be the only one that is left: nobody leads a shard, and
// one may be made anew, which names what is lost. The node will refuse: it cannot
// decide. That takes long, and is not waited for.
func (l *looker) loses() {
	l.c.Kill(1)
	l.c.Kill(2)
	l.until("two nodes are dead: a shard can be made anew, but not shard 0", `
		for (const n of ["n2", "n3"]) if (!cell("#members", n, "State").startsWith("dead")) return n + " is " + cell("#members", n, "State");
		if (!button("Make shard 1 anew")) return "no button: " + row("#shard-list", "1").textContent;
		if (button("Make shard 0 anew")) return "a button at shard 0";`)
	l.t.add("picture", l.p.shoot(l.ctx, l.shots, "lost"))
	l.press("click it", "Make shard 1 anew", "")
	l.until("the question names what is lost, and whom to try to start first", `
		const s = dialog.textContent;
		if (!dialog.open || !/What only n[23] and n[23] knew is lost/.test(s) || !s.includes("taken from n1") || !s.includes("started again")) return s;
		if (document.activeElement !== document.querySelector("#ask input")) return "the focus is on " + document.activeElement.outerHTML;`)
	l.t.add("picture", l.p.shoot(l.ctx, l.shots, "anew"))
	l.t.add("Enter, with another number", errors.Join(l.p.write(l.ctx, "7"), l.p.key(l.ctx, "Enter")))
	l.until("is not sent", `if (!dialog.open || document.querySelector("#ask .wrong").textContent || document.querySelector("#ask input").validity.valid) return "it was";`)
	l.t.add("Enter, with its number", errors.Join(l.run(`document.querySelector("#ask input").value = ""`), l.p.write(l.ctx, "1"), l.p.key(l.ctx, "Enter")))
	l.until("is sent", `if (!dialog.open || !document.querySelector("#ask .do").disabled && !document.querySelector("#ask .wrong").textContent) return "it was not";`)
	l.t.add("to where it belongs", l.p.sent("/v1/shards/1/reset"))
	l.t.add("Escape", l.p.key(l.ctx, "Escape"))
}

// sent tells whether the page has asked for an address that ends so.
func (p *page) sent(end string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.asked {
		if strings.HasSuffix(url, end) {
			return nil
		}
	}
	return errors.New("nothing was sent to " + end)
}
