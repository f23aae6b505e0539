// The events, newest first, and their marks in the charts.
import { make, say } from "./dom.js";
import { clock } from "./words.js";

const most = 500;

// text says an event in a line.
export function text(e) {
  const what = [e.pool && !e.backend ? "pool " + e.pool : "", e.backend, e.node, e.shard != null ? "shard " + e.shard : ""].filter(Boolean).join(", ");
  switch (e.kind) {
    case "panic": return `${what} ${e.panic ? "is in panic" : "is no longer in panic"}: ${e.reason}`;
    case "move": return `${e.sessions} session${e.sessions === 1 ? "" : "s"} of ${what} ${{ done: "moved", cancelled: "stay", rebound: "live elsewhere" }[e.to] || e.to}: ${e.reason}`;
    case "operator": case "reload": return e.reason;
    case "step": return `${what} ${e.to || e.from}: ${e.reason}`; // which says whether it is over
    case "leader": return `${what} ${!e.to ? "has lost its leader " + e.from : e.from && e.from !== e.to ? `${e.from} → ${e.to}` : "led by " + e.to}: ${e.reason}`;
    case "upgrade": return `${what}${e.from && e.to && e.from !== e.to ? ` ${e.from} → ${e.to}` : ""}: ${e.reason}`;
    case "lost": return (e.lost ? e.lost + " events were missed: " : "") + e.reason;
  }
  if (!e.from && !e.to) return `${what}: ${e.reason}`;
  const turn = e.from === e.to ? `stays ${e.to}` : e.from && e.to ? `${e.from} → ${e.to}` : e.to || `no longer ${e.from}`;
  return `${what} ${turn}${e.reason ? ": " + e.reason : ""}`;
}

export function tone(e) {
  if (e.kind === "panic") return e.panic ? "bad" : "good";
  if (e.kind === "upgrade") return e.to ? "fair" : e.reason.includes("failed") ? "bad" : "dim"; // of its begin and of the end of what was before: nothing to see to
  if (["unhealthy", "ejected", "dead", "not_ready", "cutting"].includes(e.to) || e.kind === "lost" || e.kind === "leader" && !e.to) return "bad";
  if (["draining", "suspect", "warming", "notice", "turning_away", "leaving", "cancelled", "rebound"].includes(e.to)) return "fair";
  return ["active", "alive", "ready"].includes(e.to) ? "good" : "dim";
}

export class Log {
  #list;
  #form;
  #events = []; // oldest first
  #kinds = new Set();

  constructor(list, form) {
    this.#list = list;
    this.#form = form;
    form.addEventListener("input", () => this.#filter());
    form.addEventListener("submit", (e) => e.preventDefault());
  }

  clear() {
    this.#events = [];
    this.#list.replaceChildren();
  }

  take(e) {
    const li = make("li", { class: tone(e) }, make("time", { datetime: e.time }, clock(e.time)), make("b", {}, e.kind), make("span"));
    say(li.lastChild, text(e));
    this.#list.prepend(li);
    this.#events.push({ event: e, li });
    li.hidden = !this.#wanted(e);
    if (this.#events.length > most) this.#events.shift().li.remove();
    if (!this.#kinds.has(e.kind)) {
      this.#kinds.add(e.kind);
      this.#form.elements.kind.append(make("option", { value: e.kind }, e.kind));
    }
  }

  #wanted(e) {
    const kind = this.#form.elements.kind.value, word = this.#form.elements.text.value.toLowerCase();
    const some = kind === "-" ? !["leader", "step"].includes(e.kind) : !kind || e.kind === kind;
    return some && (!word || text(e).toLowerCase().includes(word));
  }

  #filter() {
    for (const { event, li } of this.#events) li.hidden = !this.#wanted(event);
  }

  // marks are the events that may explain a change of load.
  marks() {
    return this.#events.filter(({ event: e }) => !["leader", "step", "node", "move", "lost"].includes(e.kind) && !(e.kind === "upgrade" && tone(e) === "dim"))
      .map(({ event: e }) => ({ time: Date.parse(e.time), tone: tone(e), text: `${clock(e.time)} ${e.kind}: ${text(e)}` }));
  }
}
