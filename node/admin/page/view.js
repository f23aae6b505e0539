// Shows what the node said.
import { chart, History, natural } from "./chart.js";
import { backendOrders, nodeOrders, policyOrder, rebalanceOrder, shardOrders } from "./orders.js";
import { find, make, say, table } from "./dom.js";
import { bytes, clock, count, millis, plural, reasons, since, span } from "./words.js";
import { Log } from "./log.js";

const tone = { active: "good", alive: "good", warming: "fair", suspect: "fair", draining: "fair", unhealthy: "bad", ejected: "bad", dead: "bad", left: "dim", removed: "dim" };
const state = (word, more = "") => make("span", { class: "state " + (tone[word] || "dim") }, word + more);

export class View {
  #load = new History();
  #step = new History();
  #ends = new History();
  #draw;
  #pools = new Map();
  #before = null; // streams that had ended, and when
  #at = "";
  #log = new Log(find("#log"), find("#filter"));

  // order has the operator asked, and what it says done.
  constructor(order) {
    this.order = order;
    const whole = (v) => v == null ? "" : Number.isInteger(v) ? count(v) : v.toFixed(1);
    this.#draw = [
      chart(find("#chart-load"), this.#load, whole),
      chart(find("#chart-step"), this.#step, (v) => v == null ? "" : v >= 10 || v === 0 ? v.toFixed(0) : v.toFixed(1)),
      chart(find("#chart-ends"), this.#ends, (v) => v == null ? "" : v >= 10 || Number.isInteger(v) ? v.toFixed(0) : v.toFixed(1)),
    ];
    this.members = table(find("#members"), "Nodes as this one sees them", [
      { name: "Node", cell: (m) => m.self ? make("span", {}, m.name, make("small", {}, " this one")) : m.admin_url ? make("a", { href: m.admin_url, rel: "noreferrer" }, m.name) : m.name, mark: (m) => m.name + m.admin_url },
      { name: "State", cell: (m) => make("span", {}, state(m.state, m.agreed && !["active", m.state].includes(m.agreed) ? ", " + m.agreed : ""), make("small", {}, doing(m))), mark: (m) => m.state + m.agreed + doing(m) },
      { name: "For", cell: (m) => since(m.since), kind: "n" },
      { name: "Up for", cell: (m) => m.said ? since(m.said.node.started) : "–", kind: "n" },
      { name: "Streams", cell: (m) => m.said ? count(m.said.streams.in_flight) + (m.said.streams.waiting ? `, ${count(m.said.streams.waiting)} wait` : "") : "–", kind: "n" },
      { name: "Leads", cell: (m) => m.said ? m.said.shards.led : "–", kind: "n" },
      { name: "Zone", cell: (m) => m.zone || "–" },
      { name: "Round trip", cell: (m) => m.self ? "–" : millis(m.rtt) + (m.udp_lost ? ", UDP is lost" : ""), kind: "n" },
      { name: "Last report", cell: (m) => m.report_age == null ? "–" : span(m.report_age), kind: "n" },
      { name: "Address", cell: (m) => m.address || "–" },
      { name: "Version", cell: (m) => m.version },
      { name: "Configuration", cell: (m) => m.config_hash },
      { name: "", cell: (m) => m.self ? this.#buttons(nodeOrders(this.status)) : "", mark: (m) => `${m.self} ${!!this.status.drain}` },
    ]);
    this.shards = table(find("#shard-list"), "Shards of the sessions, and the cluster's own", [
      { name: "Shard", cell: (s) => (s.id === 0 ? "0, the cluster's own" : s.id) + (s.incarnation > 1 ? ` #${s.incarnation}` : "") },
      { name: "Leader", cell: (s) => s.leader || state("none") , mark: (s) => s.leader },
      { name: "Replicas", cell: (s) => s.replicas.map((r) => r.node + notes(r)).join(", ") || "–" },
      { name: "Sessions", cell: (s) => s.id === 0 ? "–" : count(s.sessions), kind: "n" },
      { name: "Term", cell: (s) => s.term, kind: "n" },
      { name: "Applied", cell: (s) => s.applied === s.last_index ? s.applied : `${s.applied} of ${s.last_index}`, kind: "n" },
      { name: "What is done", cell: (s) => s.step ? `${s.step.kind} ${s.step.node}: ${s.step.reason}${s.step.waits ? `; it waits: ${s.step.waits}` : ""}` : "–" },
      { name: "", cell: (s) => this.#buttons(shardOrders(s)), mark: (s) => s.leader + s.replicas.map((r) => `${r.node} ${r.state}`).join() },
    ]);
    this.sessions = table(find("#session-list"), "Sessions in the shards that this node leads, and what became of their moves since it started", [
      { name: "Pool", cell: (p) => p.name },
      { name: "Sessions", cell: (p) => count(p.sessions), kind: "n" },
      { name: "Moved", cell: (p) => count(p.moves.done), kind: "n" },
      { name: "Called off", cell: (p) => count(p.moves.cancelled), kind: "n" },
      { name: "Backend was gone", cell: (p) => count(p.moves.rebound), kind: "n" },
      { name: "Last look", cell: (p) => p.rebalance.last_decision ? `${since(p.rebalance.last_decision)} ago` : "–", kind: "n" },
      { name: "It said", cell: (p) => p.rebalance.reason || (p.rebalance.enabled ? "–" : "off") },
    ]);
    this.ends = table(find("#ends"), "Streams that have ended, by why", [
      { name: "Why", cell: (e) => e.why },
      { name: "Streams", cell: (e) => count(e.n), kind: "n" },
      { name: "Share", cell: (e) => make("meter", { min: 0, max: 1, value: e.share, "aria-label": `${Math.round(100 * e.share)} %` }), mark: (e) => String(Math.round(100 * e.share)) },
      { name: "It means", cell: (e) => reasons[e.why] || "", kind: "wide" },
    ]);
    this.running = table(find("#running"), "Streams that run, oldest first", [
      { name: "Stream", cell: (s) => s.id },
      { name: "Node", cell: (s) => (s.node || this.status.node.name) + (s.pid ? ", its older process" : "") },
      { name: "Backend", cell: (s) => s.backend || "–" },
      { name: "Phase", cell: (s) => s.phase },
      { name: "For", cell: (s) => since(s.started), kind: "n" },
      { name: "Sent", cell: (s) => bytes(s.bytes_out), kind: "n" },
      { name: "Client", cell: (s) => s.client },
    ]);
  }

  #buttons(orders) {
    return make("span", { class: "orders" }, ...orders.map((o) => make("button", { type: "button", "aria-label": o.title.replace("?", ""), onclick: () => this.order(o) }, o.name)));
  }

  forget() {
    this.#before = null;
    this.#log.clear();
  }

  take(event) { this.#log.take(event); }

  lively({ on, why }) {
    const el = find("#live");
    el.className = on ? "good" : "bad";
    say(el, on ? "live" : why ? "no events: " + why : "connecting");
  }

  silent(why, asked) {
    this.#notices([why + (asked ? ` What stands below is of ${this.#at}.` : "")]);
    document.body.classList.add("stale");
  }

  // stale tells whether the node itself gave no answer the last time.
  stale() { return document.body.classList.contains("stale"); }

  show({ status, backends, pools, members, shards, nodes, streams, wide }, live) {
    const older = olderThanThis(members?.members || []);
    const now = Date.now();
    this.#at = clock(now);
    this.status = status;
    document.body.classList.remove("stale");
    document.title = `${status.node.name} · starling`;
    say(find("#who"), `${status.node.name}${status.cluster.id ? " of cluster " + status.cluster.id.slice(0, 8) : ""} · ${status.node.version}`);
    this.#notices(warnings(status, pools.pools, nodes || [], older, wide, live));
    this.#tiles(status, backends.backends, pools.pools);
    this.#samples(now, status, backends.backends);
    this.#showPools(pools.pools, backends.backends);
    if (members) this.members(members.members.map((m) => told(m, nodes || [], older)), (m) => m.id, "This node is alone.");
    if (shards) {
      this.shards(shards.shards, (s) => s.id, "There are none: no pool has sessions, or there is no cluster yet.");
      say(find("#leads"), leads(shards.shards));
    }
    this.sessions(pools.pools, (p) => p.name);
    if (streams) this.running(streams.streams, (s) => `${s.node} ${s.pid || 0} ${s.id}`, "Nothing runs.");
    say(find("#counted"), (streams?.nodes || []).map((n) => `${n.name} ${!n.error ? count(n.count || 0) : older.has(n.id) ? "cannot be asked" : "does not answer"}`).join(" · "));
    this.#ended((streams?.nodes && nodes || []).map((n) => n.status).filter(Boolean), status);
    const marks = this.#log.marks();
    for (const draw of this.#draw) draw(marks);
  }

  #notices(list) {
    const el = find("#notices");
    if (el.dataset.said === list.join("\n")) return;
    el.dataset.said = list.join("\n");
    el.replaceChildren(...list.map((text) => make("p", { class: "notice bad" }, text)));
  }

  #tiles(s, backends, pools) {
    const usable = pools.reduce((n, p) => n + p.usable, 0);
    const cv = Math.max(0, ...pools.map((p) => p.step_time_cv));
    const alone = !s.cluster.id && s.cluster.members <= 1;
    const all = backends.reduce((n, b) => n + b.in_flight.cluster, 0);
    const tiles = [
      ["Streams here", count(s.streams.in_flight), `${count(all)} in the cluster`],
      ["Waiting", count(s.streams.waiting), "for a backend", s.streams.waiting > 0 && "fair"],
      ["Backends", `${usable} of ${backends.length}`, "take streams", usable < backends.length && (usable ? "fair" : "bad")],
      ["Imbalance", cv.toFixed(2), "of step times, cv", cv > 0.5 ? "bad" : cv > 0.3 && "fair"],
      ["Nodes", `${s.cluster.alive} of ${s.cluster.members}`, alone ? "alone" : "alive", s.cluster.alive < s.cluster.members && "bad"],
      ["Shards", s.shards.count ? String(s.shards.count - s.shards.without_leader) : "–", s.shards.count ? `of ${s.shards.count} have a leader` : "no sessions here", s.shards.without_leader > 0 && "bad"],
      ["Sessions", count(pools.reduce((n, p) => n + p.sessions, 0)), "in shards led here"],
      ["Up for", since(s.node.started), s.drain ? "drains: " + s.drain.phase : "", s.drain && "fair"],
    ];
    const el = find("#tiles");
    tiles.forEach(([name, value, about, tone], i) => {
      const tile = el.children[i] || el.appendChild(make("div", {}, make("dt"), make("dd"), make("dd", { class: "about" })));
      say(tile.children[0], name);
      say(tile.children[1], value);
      say(tile.children[2], about);
      tile.className = tone || "";
    });
  }

  #samples(now, status, backends) {
    const load = {}, step = {};
    for (const b of [...backends].sort((a, c) => natural(a.id, c.id))) {
      load[b.id] = b.in_flight.cluster;
      step[b.id] = b.step_time ? b.step_time * 1000 : null;
    }
    this.#load.add(now, load);
    this.#step.add(now, step);
    const ended = status.streams.ended || {};
    const before = this.#before;
    if (!before || before.started !== status.node.started || now - before.now >= 900) this.#before = { ended, now, started: status.node.started };
    if (!before || before.started !== status.node.started || now - before.now < 900) return;
    const rate = {};
    for (const [why, n] of Object.entries(ended)) if (n > 0) rate[why] = (n - (before.ended[why] || 0)) / (now - before.now) * 1000;
    this.#ends.add(now, rate);
  }

  // #ended sums over all nodes, where they were asked.
  #ended(all, status) {
    const ended = {};
    for (const s of all.length ? all : [status]) for (const [why, n] of Object.entries(s.streams.ended || {})) ended[why] = (ended[why] || 0) + n;
    const total = Object.values(ended).reduce((a, b) => a + b, 0);
    this.ends(Object.entries(ended).filter(([why, n]) => n > 0 || why === "done").sort((a, b) => b[1] - a[1]).map(([why, n]) => ({ why, n, share: total ? n / total : 0 })), (e) => e.why, "None yet.");
  }

  #showPools(pools, backends) {
    const el = find("#pools"), select = find("#find select[name=pool]");
    for (const [name, p] of this.#pools) {
      if (!pools.some((q) => q.name === name)) {
        p.el.remove();
        p.option.remove();
        this.#pools.delete(name);
      }
    }
    for (const p of [...pools].sort((a, b) => natural(a.name, b.name))) {
      if (!this.#pools.has(p.name)) {
        const made = this.#makePool(p);
        this.#pools.set(p.name, made);
        el.append(made.el);
        select.append(made.option);
      }
      this.#pools.get(p.name).show(p, backends.filter((b) => b.pool === p.name).sort((a, b) => natural(a.id, b.id)));
    }
  }

  #makePool(p) {
    const about = make("p"), orders = make("span"), list = make("table");
    const show = table(list, `Backends of pool ${p.name}`, [
      { name: "Backend", cell: (b) => make("span", { title: b.url }, b.id), mark: (b) => b.url },
      { name: "State", cell: (b) => state(b.state, b.slow ? ", slow" : ""), mark: (b) => `${b.state} ${b.slow}` },
      { name: "For", cell: (b) => since(b.since), kind: "n" },
      { name: "Streams", cell: (b) => make("span", {}, count(b.in_flight.cluster), make("small", {}, ` ${count(b.in_flight.local)} here`)), mark: (b) => `${b.in_flight.cluster} ${b.in_flight.local}`, kind: "n" },
      { name: "Load", cell: (b) => make("meter", { min: 0, max: 1, high: b.cap ? 0.9 : 1, value: b.share, "aria-label": b.load }), mark: (b) => b.load, kind: "load" },
      { name: "Step", cell: (b) => millis(b.step_time), kind: "n" },
      { name: "Speed", cell: (b) => b.speed ? (b.speed < 10 ? b.speed.toFixed(1) : count(b.speed)) + "/s" : "–", kind: "n" },
      { name: "Cap", cell: (b) => b.cap ? `${b.cap} ${b.cap_source}` : "–", kind: "n" },
      { name: "Weight", cell: (b) => b.weight, kind: "n" },
      { name: "Sessions", cell: (b) => count(b.sessions), kind: "n" },
      { name: "Why", cell: (b) => (b.reason || "–") + (b.drain ? `; ${span(b.drain.left)} left` : "") + (b.ejected_until ? `; until ${clock(b.ejected_until)}` : ""), kind: "wide" },
      { name: "", cell: (b) => this.#buttons(backendOrders(b)), mark: (b) => `${b.state} ${b.weight} ${b.reason}` },
    ]);
    const el = make("div", { class: "pool" }, make("h3", {}, "Pool " + p.name), about, orders, make("div", { class: "scroll" }, list));
    let marked = "";
    return {
      el, option: make("option", { value: p.name }, p.name),
      show: (p, backends) => {
        const second = p.second ? `, and ${Math.round(100 * p.second_share)} % by ${p.second}` : "";
        const moves = p.rebalance.enabled ? "sessions are moved to even out load" : "no session is moved to even out load";
        say(about, `Chosen by ${p.policy}${second}. ${plural(p.in_flight, "stream")} here, ${count(p.waiting)} waiting; cv of step times ${p.step_time_cv.toFixed(2)}, of streams ${p.in_flight_cv.toFixed(2)}; ${moves}.`);
        const mark = `${p.rebalance.enabled} ${p.policy}`;
        if (marked !== mark) orders.replaceChildren(this.#buttons([rebalanceOrder(p), policyOrder(p)]));
        marked = mark;
        const most = Math.max(1, ...backends.map((b) => b.in_flight.cluster));
        show(backends.map((b) => {
          const share = b.in_flight.cluster / (b.cap || most);
          return { ...b, share, load: `${Math.round(100 * share)} % of ${b.cap ? "its cap" : "the most"}` };
        }), (b) => b.id, "There is no backend: every stream is refused.");
      },
    };
  }
}

// olderThanThis are the nodes whose program is older than that of the node that is asked,
// and may not know what it would be asked.
function olderThanThis(members) {
  const self = members.find((m) => m.self);
  return new Set(members.filter((m) => self && m.level < self.level).map((m) => m.id));
}

// told is a node with what it said of itself; what an old answer says of one that is
// dead counts no more.
function told(m, nodes, older) {
  const one = nodes.find((n) => n.id === m.id);
  const silent = one?.error && !["dead", "left"].includes(m.state);
  return { ...m, said: one?.status, quiet: !silent ? "" : older.has(m.id) ? "runs an older program" : "does not answer" };
}

// doing is what a node does besides carrying streams.
function doing({ said, quiet }) {
  const list = [];
  if (quiet) list.push(quiet);
  if (said?.drain) list.push({ notice: "gives notice", turning_away: "turns streams away", cutting: "cuts streams" }[said.drain.phase] || "drains");
  else if (said?.not_ready) list.push("gets no traffic");
  const older = (said?.elders || []).reduce((n, e) => n + e.in_flight, 0);
  if (said?.elders?.length) list.push(`upgraded, ${plural(older, "stream")} at an older process`);
  return list.length ? " " + list.join(", ") : "";
}

function notes(r) {
  const list = [];
  if (r.role !== "voter" && r.role !== "leader") list.push(r.role);
  if (r.state && r.state !== "alive") list.push(r.state);
  if (r.lag > 0) list.push(`lacks ${r.lag}`);
  return list.length ? ` (${list.join(", ")})` : "";
}

// leads says how many shards each node leads.
function leads(shards) {
  const by = new Map();
  for (const s of shards) by.set(s.leader || "nobody", (by.get(s.leader || "nobody") || 0) + 1);
  return [...by].sort((a, b) => natural(a[0], b[0])).map(([node, n]) => `${node} leads ${n}`).join(" · ");
}

// warnings are what a person should know first.
function warnings(s, pools, nodes, older, wide, live) {
  const list = [...(s.faults || [])];
  for (const n of nodes) {
    if (n.error && !["dead", "left"].includes(n.state)) list.push(`Node ${n.name} ${older.has(n.id) ? "says nothing of itself" : "does not answer"}: ${n.error}.`);
    for (const fault of n.self || !n.status ? [] : n.status.faults || []) list.push(`Node ${n.name}: ${fault}`);
  }
  if (s.not_ready && !s.drain) list.push(`This node gets no traffic: ${s.not_ready}.`);
  if (s.cluster.id && !s.cluster.meta_quorum) list.push("The cluster cannot decide anything now: too few of the nodes that keep its map answer. Streams and sessions go on.");
  if (s.shards.without_leader) list.push(`${plural(s.shards.without_leader, "shard has", "shards have")} no leader: their sessions go by what is known last.`);
  if (s.cluster.paused) list.push(`Nothing is repaired now: ${s.cluster.paused}.`);
  if (s.cluster.config_hashes > 1) list.push(`The nodes run ${s.cluster.config_hashes} different configurations.`);
  for (const p of pools) if (p.panic) list.push(`Pool ${p.name} is in panic: so few of its backends look well that health is ignored.`);
  if (wide?.why) list.push(`The nodes could not all be asked: ${wide.why.replace(/\.$/, "")}. ${wide.at ? `What is shown of them is of ${clock(wide.at)}.` : "What is shown is what this node knows."}`);
  if (!live.on && live.why) list.push(`Events do not come (${live.why}); figures are asked for all the same.`);
  return list;
}
